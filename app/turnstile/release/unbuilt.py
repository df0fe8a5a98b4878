"""Names what a cluster uses of Kueue that Turnstile has not: what stops, what goes on without it. Pure.

Read from queues and Workloads, which are Kueue's before a takeover and Turnstile's after it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.workload import Workload
from turnstile.jobs.registry import Registry
from turnstile.release.findings import Check, Finding, listed, warning

_TRUE: Final = "true"
_REGISTRY: Final = Registry()


def unbuilt(queues: Iterable[ClusterQueue], workloads: Iterable[Workload]) -> Iterator[Finding]:
    """The findings."""
    concurrent = [each.metadata.name for each in queues if each.spec.concurrent_admission_policy is not None]
    if concurrent:
        says = (
            "concurrentAdmissionPolicy decides nothing here, unless the gate ConcurrentAdmission is on, of the "
            f"ClusterQueues: {listed(concurrent)}"
        )
        yield warning(Check.UNBUILT, says, "let their jobs end before: a job and its variants would all be charged")
    elastic = [each.metadata.key for each in workloads if not each.finished and _is_elastic(each)]
    if elastic:
        says = f"elastic jobs keep the number of pods that they are charged for: {listed(elastic)}"
        yield warning(Check.UNBUILT, says, "stop them, and create them again without the annotation, to change it")


def _is_elastic(workload: Workload) -> bool:
    """Whether the job of a Workload is elastic, and of a kind that does not grow here."""
    owner = workload.metadata.controller
    integration = _REGISTRY.known_owner(owner) if owner is not None else None
    if integration is not None and integration.elasticity is not None and integration.elasticity.grows:
        return False
    if workload.metadata.annotations.get(names.ELASTIC_JOB) == _TRUE:
        return True
    return any(
        gate.name == names.ELASTIC_GATE
        for each in workload.spec.pod_sets
        for gate in each.template.spec.scheduling_gates
    )
