"""The charge of a Workload: the pods of each pod set, and the requests of one of them, compared with those of a pod.

A pod is made from the template of a pod set, and the API server completes it: LimitRanges add requests, a RuntimeClass
adds its overhead. So templates are completed in the same way before they are compared; a pod that exists is complete.
The charge at the admission counts too: a LimitRange may have changed since. Must never decide what becomes of a
pod or a job.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from turnstile.api.core import Pod
from turnstile.api.errors import InvalidValue
from turnstile.api.pods import PodSpec
from turnstile.api.workload import PodSetAssignment, Workload
from turnstile.controllers.charging.charges import pods_charged
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine.quota.requests import Exact, effective_pod, exact, pod_requests
from turnstile.jobs.once import Once

_decode: Final = msgspec.json.Decoder(PodSpec).decode


@dataclass(slots=True)
class Allowance:
    """The allowance of a Workload, or of a job below it: pods by pod set, the templates of a pod, and the assignment of
    the admission."""

    counts: dict[str, int] = field(default_factory=dict)
    specs: dict[str, list[PodSpec]] = field(default_factory=dict)
    assigned: dict[str, PodSetAssignment] = field(default_factory=dict)

    def add(self, pod_set: str, count: int, spec: PodSpec) -> None:
        """Allow more pods of a pod set."""
        self.counts[pod_set] = self.counts.get(pod_set, 0) + count
        self.specs.setdefault(pod_set, []).append(spec)


def allowed_by(workload: Workload) -> Allowance:
    """The pods that a Workload is charged for."""
    admission = workload.status.admission
    allowance, counts = Allowance(), pods_charged(workload)
    for pod_set in workload.spec.pod_sets:
        allowance.add(pod_set.name, counts[pod_set.name], pod_set.template.spec)
    allowance.assigned = {each.name: each for each in (admission.pod_set_assignments if admission else ())}
    return allowance


class Charge:
    """The charge for one pod of each pod set of an allowance, in a namespace."""

    def __init__(self, allowance: Allowance, namespace: str, cluster: ClusterView) -> None:
        self._allowance = allowance
        self._requests = cluster.requests_in(namespace)
        self._most: dict[str, Exact] = {}

    def covers(self, pod_set: str, pod: Pod) -> bool:
        """Whether a pod requests at most what is charged for a pod of that pod set."""
        return not self.exceeded_by_pod(pod_set, pod)

    def exceeded_by_pod(self, pod_set: str, pod: Pod) -> str:
        """The resources of which a pod requests more than is charged for a pod of that pod set."""
        return self._exceeded(pod_set, lambda: requested(pod))

    def exceeded_by(self, pod_set: str, template: PodSpec) -> str:
        """The resources of which pods of a template will request more than is charged for a pod of that pod set."""
        return self._exceeded(pod_set, lambda: self._requests(template))

    def _exceeded(self, pod_set: str, read: Callable[[], Exact]) -> str:
        try:
            wanted, most = read(), self._charged(pod_set)
        except (InvalidValue, msgspec.ValidationError) as error:
            return f"than can be read ({error})"
        return ", ".join(sorted(name for name, value in wanted.items() if value > most.get(name, 0)))

    def _charged(self, pod_set: str) -> Exact:
        """The largest amount of each resource that the templates request now, or that was charged for a pod."""
        most = self._most.get(pod_set)
        if most is None:
            given, most = self._allowance.assigned.get(pod_set), Exact()
            if given is not None and given.count:
                most = {name: value // given.count for name, value in exact(given.resource_usage).items()}
            for spec in self._allowance.specs.get(pod_set, ()):
                for name, value in self._requests(spec).items():
                    most[name] = max(value, most.get(name, 0))
            self._most[pod_set] = most
        return most


requested: Final = Once[Exact](lambda spec: pod_requests(effective_pod(_decode(spec))))
"""The requests of a created pod. Raises InvalidValue, or ValidationError if its spec cannot be read."""
