"""The pod sets of a Workload: what each requests together, and what decides where its pods may run.

Must never know what a Workload holds, or where it waits.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from turnstile.api.pods import PodSpec, Toleration
from turnstile.api.quantity import MAX_INT64
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import TopologyAssignment
from turnstile.api.workload import PodSet
from turnstile.engine.devices.claims import sole_claim
from turnstile.engine.quota.amounts import multiplied

_encode = msgspec.json.Encoder(order="sorted").encode

Delay = Literal["Pending", "Ready"]
"""Whether the pods of a pod set still wait for their places until admission checks are ready, or did."""


class PodShape:
    """Fields that decide whether a pod may run on a flavor's nodes. Interned, so that answers are found once a
    shape."""

    __slots__ = ("answers", "node_selector", "preferred", "terms", "tolerations")

    def __init__(self, spec: PodSpec) -> None:
        self.node_selector = spec.node_selector
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
        self.terms = required.node_selector_terms if required is not None else None
        self.tolerations: Sequence[Toleration] = spec.tolerations
        preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else ()
        self.preferred = tuple((each.weight, each.preference) for each in preferred)
        self.answers: dict[str, tuple[ResourceFlavor, str | None]] = {}
        """By name of a flavor: the flavor as it was, and why the pod may not run on its nodes."""


_PLAIN: Final = PodSpec()


class Shapes:
    """Interns pod shapes."""

    __slots__ = ("_plain", "_shapes")

    def __init__(self) -> None:
        self._plain = PodShape(_PLAIN)
        self._shapes: dict[bytes, PodShape] = {}

    def of(self, spec: PodSpec) -> PodShape:
        """The shape of a pod spec."""
        if not spec.node_selector and spec.affinity is None and not spec.tolerations:
            return self._plain
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        key = _encode([spec.node_selector, affinity, spec.tolerations])
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) > 10_000:
                self._shapes.clear()
            shape = self._shapes[key] = PodShape(spec)
        return shape


class PodSetTotals:
    """Requests of one pod set: `requests` are totals of `count` pods, `flavors` what they were given, if anything."""

    __slots__ = ("count", "delayed", "flavors", "min_count", "name", "once", "pod_set", "requests", "shape", "topology")

    def __init__(
        self,
        *,
        name: str,
        count: int,
        requests: dict[str, int],
        shape: PodShape | None = None,
        pod_set: PodSet | None = None,
        min_count: int | None = None,
        once: Mapping[str, int] | None = None,
        flavors: dict[str, str] | None = None,
        topology: TopologyAssignment | None = None,
        delayed: Delay | None = None,
    ) -> None:
        self.name = name
        self.count = count
        self.requests = requests
        self.shape = shape
        self.pod_set = pod_set
        self.min_count = min_count
        self.once = once or {}
        """The part of the requests that all pods ask for together, however many they are."""
        self.flavors = flavors
        self.topology = topology
        """Where its pods were placed, if topology did."""
        self.delayed = delayed

    @property
    def claim(self) -> str:
        """Name of the ResourceClaim that all its devices are of; empty if they are not of one."""
        return sole_claim(self.pod_set.template.spec) if self.once and self.pod_set is not None else ""

    @property
    def pod_requests(self) -> set[str]:
        """Names of the resources that the pods themselves ask for, before any transformation."""
        if self.pod_set is None:
            return set()
        spec = self.pod_set.template.spec
        blocks = [*spec.containers, *spec.init_containers]
        names = {name for block in blocks if block.resources for name in block.resources.requests}
        return names | {name for block in blocks if block.resources for name in block.resources.limits}

    def scaled(self, count: int) -> dict[str, int]:
        """Requests of so many pods: per pod rounded down, as Kueue scales them."""
        if count == self.count or self.count == 0 or self.topology is not None:
            return dict(self.requests)
        return of_fewer(self.requests, self.once, self.count, count)


def of_pods(single: dict[str, int], count: int, once: Mapping[str, int] | None) -> dict[str, int]:
    """Requests of so many pods, and what they ask for together."""
    requests = single if count == 1 else {name: multiplied(value, count) for name, value in single.items()}
    if not once:
        return requests
    return requests | {name: min(requests.get(name, 0) + value, MAX_INT64) for name, value in once.items()}


def of_fewer(requests: Mapping[str, int], once: Mapping[str, int], count: int, left: int) -> dict[str, int]:
    """Requests of `count` pods as those of so many, but for the part of them that pods ask for together."""
    return {
        name: min(multiplied((value - once.get(name, 0)) // count, left) + once.get(name, 0), MAX_INT64)
        for name, value in requests.items()
    }


def same_requests(left: Sequence[PodSetTotals], right: Sequence[PodSetTotals]) -> bool:
    """Whether two versions ask for the same."""
    return len(left) == len(right) and all(
        a.name == b.name and a.count == b.count and a.requests == b.requests for a, b in zip(left, right, strict=True)
    )
