"""Names what a cluster uses of Kueue that Turnstile has not: what stops, what goes on without it. Pure.

Read from queues, checks and Workloads, which are Kueue's before a takeover and Turnstile's after it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.workload import Workload
from turnstile.controllers.view.clusterview import checks_in
from turnstile.release.findings import Check, Finding, danger, listed, warning

_TRUE: Final = "true"


def unbuilt(
    queues: Iterable[ClusterQueue],
    checks: Iterable[AdmissionCheck],
    workloads: Iterable[Workload],
    *,
    installed: bool,
) -> Iterator[Finding]:
    """The findings. A queue that stops admitting is a danger, unless Turnstile is `installed` and the queue stands
    still already."""
    stops = warning if installed else danger
    remote = {
        each.metadata.name
        for each in checks
        if each.spec is not None and each.spec.controller_name == names.MULTIKUEUE_CONTROLLER
    }
    elsewhere, concurrent = list[str](), list[str]()
    for queue in queues:
        name = queue.metadata.name
        if remote.intersection(checks_in(queue)):
            elsewhere.append(name)
        if queue.spec.concurrent_admission_policy is not None:
            concurrent.append(name)
    if elsewhere:
        says = f"ClusterQueues with a check of MultiKueue will admit nothing: {listed(elsewhere)}"
        yield stops(Check.UNBUILT, says, "take the check out of them, or stay with Kueue")
    if concurrent:
        says = f"concurrentAdmissionPolicy decides nothing here, of the ClusterQueues: {listed(concurrent)}"
        yield warning(Check.UNBUILT, says, "let their jobs end before: a job and its variants would all be charged")
    elastic = [each.metadata.key for each in workloads if not each.finished and _is_elastic(each)]
    if elastic:
        says = f"elastic jobs keep the number of pods that they are charged for: {listed(elastic)}"
        yield warning(Check.UNBUILT, says, "stop them, and create them again without the annotation, to change it")


def _is_elastic(workload: Workload) -> bool:
    if workload.metadata.annotations.get(names.ELASTIC_JOB) == _TRUE:
        return True
    return any(
        gate.name == names.ELASTIC_GATE
        for each in workload.spec.pod_sets
        for gate in each.template.spec.scheduling_gates
    )
