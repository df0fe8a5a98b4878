"""What a Workload charges for one pod of each of its pod sets, compared with what a pod requests.

A pod is made from the template of a pod set, and the API server completes it: LimitRanges add requests, a RuntimeClass
adds its overhead. So the template is completed in the same way before both are compared. What was charged at the
admission counts too: a LimitRange may have changed since. Must never decide what becomes of a pod.
"""

from functools import lru_cache
from typing import Final

import msgspec

from app.api.core import Pod
from app.api.errors import InvalidValue
from app.api.pods import PodSpec
from app.api.workload import Workload
from app.controllers.clusterview import ClusterView
from app.engine.requests import Exact, effective_pod, exact, pod_requests

_decode: Final = msgspec.json.Decoder(PodSpec).decode


class Charge:
    """The charge of one Workload."""

    def __init__(self, workload: Workload, cluster: ClusterView) -> None:
        self._workload = workload
        self._cluster = cluster
        self._most: dict[str, Exact] = {}

    def covers(self, pod_set: str, pod: Pod) -> bool:
        """Whether a pod requests at most what the Workload charges for a pod of that pod set."""
        try:
            wanted = _requests(bytes(pod.spec))
            most = self._most.get(pod_set)
            if most is None:
                most = self._most[pod_set] = self._charged(pod_set)
        except (InvalidValue, msgspec.ValidationError):
            return False
        return all(value <= most.get(name, 0) for name, value in wanted.items())

    def _charged(self, pod_set: str) -> Exact:
        """Of each resource the larger of what the template requests now and what the admission charged for a pod."""
        workload = self._workload
        most: Exact = {}
        for each in workload.spec.pod_sets:
            if each.name == pod_set:
                most = self._cluster.requests_in(workload.metadata.namespace)(each.template.spec)
        admission = workload.status.admission
        for given in admission.pod_set_assignments if admission is not None else ():
            if given.name == pod_set and given.count:
                for name, value in exact(given.resource_usage).items():
                    most[name] = max(most.get(name, 0), value // given.count)
        return most


@lru_cache(maxsize=2048)
def _requests(spec: bytes) -> Exact:
    """What a created pod requests; cached, because each change of one pod reconciles its whole group."""
    return pod_requests(effective_pod(_decode(spec)))
