"""Requests of the pods that are bound to each node: those of Workloads that hold places, by Workload, and all others.

A Workload's places count from its admission until its quota is released. Its pods name it, which any pod may do, so on
a node they count as placed only up to the amounts that the Workload holds there. Whatever is beyond that counts like
the pods that topology did not place: pods of a place that is given up, until they are gone, and pods that lie. Must
never know what a node has.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from turnstile.engine.topology.capacity import PODS
from turnstile.engine.topology.places import Places

MOST_ALIKE: Final = 1024
"""Requests that are kept once for all pods that are alike; then they are forgotten."""


class Bound(NamedTuple):
    """A pod on its node."""

    node: str
    amounts: Mapping[str, int]
    """Its requests, the place of the pod itself among them. Shared, so never changed."""
    workload: str = ""
    """The Workload (`namespace/name`) that it names, if any."""


class Load:
    """The requests on one node."""

    __slots__ = ("members", "outside")

    def __init__(self) -> None:
        self.outside: dict[str, int] = {}
        """Requests of pods that topology did not place."""
        self.members: dict[str, dict[str, int]] = {}
        """Requests of pods that name a Workload which holds places somewhere, by Workload."""


class Loads:
    """The loads of all nodes, whether the nodes are known or not."""

    __slots__ = ("_alike", "_claims", "_of", "_pods", "held")

    def __init__(self) -> None:
        self._alike: dict[frozenset[tuple[str, int]], Mapping[str, int]] = {}
        self._of: dict[str, Load] = {}
        self._pods: dict[str, Bound] = {}
        self._claims: dict[str, dict[str, dict[str, int]]] = {}
        """Requests of the pods that name a Workload, by Workload and node."""
        self.held: dict[str, Places] = {}
        """The places of Workloads that hold any."""

    def on(self, node: str) -> Load:
        """The load of a node, which lasts until `forget`."""
        found = self._of.get(node)
        if found is None:
            found = self._of[node] = Load()
        return found

    def forget(self, node: str) -> None:
        """The node is gone. Its load stays while pods are bound to it."""
        found = self._of.get(node)
        if found is not None and not found.outside and not found.members:
            del self._of[node]

    def bound(self, node: str, requests: Mapping[str, int], workload: str) -> Bound:
        """A pod with these requests."""
        amounts = {**requests, PODS: 1}
        known = frozenset(amounts.items())
        if len(self._alike) >= MOST_ALIKE and known not in self._alike:
            self._alike.clear()
        return Bound(node, self._alike.setdefault(known, amounts), workload)

    def pod(self, key: str) -> Bound | None:
        """A pod, if it is bound."""
        return self._pods.get(key)

    @property
    def bound_pods(self) -> Iterable[Bound]:
        """All pods that are bound."""
        return self._pods.values()

    @property
    def claims(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Requests of the pods that name a Workload, by Workload and node."""
        return self._claims

    def pods_of(self, workload: str) -> list[str]:
        """The pods that name a Workload. Looks at all pods, so only questions may ask."""
        return [key for key, pod in self._pods.items() if pod.workload == workload] if workload in self._claims else []

    def put(self, key: str, pod: Bound) -> None:
        """A pod is bound."""
        self._pods[key] = pod
        self._count(pod, 1)

    def drop(self, key: str) -> None:
        """A pod that was bound is gone, or has ended."""
        self._count(self._pods.pop(key), -1)

    def _count(self, pod: Bound, sign: int) -> None:
        load = self.on(pod.node)
        if not pod.workload:
            _add(load.outside, pod.amounts, sign)
            return
        claims = self._claims.setdefault(pod.workload, {})
        claim = claims.setdefault(pod.node, {})
        _add(claim, pod.amounts, sign)
        if pod.workload not in self.held:
            _add(load.outside, pod.amounts, sign)
        elif claim:
            load.members[pod.workload] = claim
        else:
            load.members.pop(pod.workload, None)
        if not claim:
            del claims[pod.node]
            if not claims:
                del self._claims[pod.workload]

    def hold(self, workload: str, places: Places) -> Iterable[str]:
        """A Workload holds these places, in place of those before. The nodes with pods that name it."""
        claims = self._claims.get(workload, {})
        if workload not in self.held:
            for node, claim in claims.items():
                load = self.on(node)
                _add(load.outside, claim, -1)
                load.members[workload] = claim
        self.held[workload] = places
        return claims

    def release(self, workload: str) -> Iterable[str]:
        """A Workload holds no places any more. The nodes with pods that name it."""
        if self.held.pop(workload, None) is None:
            return ()
        claims = self._claims.get(workload, {})
        for node, claim in claims.items():
            load = self.on(node)
            del load.members[workload]
            _add(load.outside, claim, 1)
        return claims


def _add(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for resource, amount in amounts.items():
        left = total.get(resource, 0) + sign * amount
        if left:
            total[resource] = left
        else:
            total.pop(resource, None)
