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
from turnstile.engine.queue.devices import asks_for_devices
from turnstile.release.findings import Check, Finding, danger, listed, warning

_TRUE: Final = "true"


def unbuilt(
    queues: Iterable[ClusterQueue],
    checks: Iterable[AdmissionCheck],
    workloads: Iterable[Workload],
    backed: Iterable[str],
    *,
    installed: bool,
) -> Iterator[Finding]:
    """The findings. `backed` are extended resources that DeviceClasses back. A queue that stops admitting is a danger,
    unless Turnstile is `installed` and the queue stands still already."""
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
    yield from _of_workloads(workloads, frozenset(backed), installed=installed)


def _of_workloads(workloads: Iterable[Workload], backed: frozenset[str], *, installed: bool) -> Iterator[Finding]:
    held, with_devices, elastic = list[str](), list[str](), list[str]()
    for workload in workloads:
        if workload.finished:
            continue
        key = workload.metadata.key
        if asks_for_devices(workload, backed):
            (with_devices if workload.quota_reserved else held).append(key)
        if _is_elastic(workload):
            elastic.append(key)
    if held:
        says = f"Workloads that ask for devices will not be admitted: {listed(held)}"
        cure = "let them end in Kueue, or take the claims out of their jobs"
        yield warning(Check.UNBUILT, says, cure) if installed else danger(Check.UNBUILT, says, cure)
    if with_devices:
        says = f"Workloads that ask for devices run on, and are not admitted again once evicted: {listed(with_devices)}"
        yield warning(Check.UNBUILT, says, "let them end before")
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
