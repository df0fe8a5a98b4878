"""Which gated pod of a pod set goes to which domain of the assignment. Pure: no store, no clock.

Pods that their controller numbers go to domains in the order of their ranks, so that neighbours in a job are neighbours
in the data center: the first domain gets the lowest ranks. A rank is read from labels, which a tenant may have written;
if those of the pods cannot all be right, and for pods without numbers, each domain gets as many pods as it has places,
in the order of the pods' names. In either case no domain gets more pods than the assignment says.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.numbers import clamped
from turnstile.api.topology import HOSTNAME, TopologyAssignment, TopologyRequest
from turnstile.api.topologyassignment import Domain, decode
from turnstile.api.workload import PodSet, PodSetAssignment, Workload
from turnstile.jobs import pods

Values = tuple[str, ...]
"""The values of the node labels that make a domain."""
_STEP: Final = 100
"""Pods that are looked at before other tasks may run."""


def first_ranks(workload: Workload, assigned: Mapping[str, PodSetAssignment]) -> dict[str, int]:
    """The index of the first pod of each pod set, as the numbering of its job's controller begins: 0, but where a
    leader and its workers, a pod set group, are numbered one after the other."""
    groups: dict[str, list[PodSet]] = {}
    for each in workload.spec.pod_sets:
        if each.topology_request is not None and each.topology_request.pod_set_group_name:
            groups.setdefault(each.topology_request.pod_set_group_name, []).append(each)
    first: dict[str, int] = {}
    for members in groups.values():
        if len(members) != 2:
            continue
        leader, workers = sorted(members, key=lambda each: _count(each, assigned))
        first[workers.name] = _count(leader, assigned)
    return first


def _count(pod_set: PodSet, assigned: Mapping[str, PodSetAssignment]) -> int:
    given = assigned.get(pod_set.name)
    return pod_set.count if given is None or given.count is None else given.count


class Places:
    """The domains of one pod set, the pods that are in them, and the free places. `unhealthy` are names of nodes that
    get no pods."""

    def __init__(
        self, assignment: TopologyAssignment, members: Sequence[Pod], *, unhealthy: Collection[str] = ()
    ) -> None:
        self.levels = tuple(assignment.levels)
        self._domains: list[Domain] = list(decode(assignment))
        self._ends = list(accumulate(each.pods for each in self._domains))
        self._members = members
        self._unhealthy = unhealthy if self.levels[-1:] == (HOSTNAME,) else ()
        self._free: Counter[Values] = Counter()
        for each in self._domains:
            self._free[each.values] += each.pods
        self._alike: dict[tuple[str | None, ...], list[Values]] = {}

    def fill(
        self, request: TopologyRequest | None, *, count: int, first: int, kept: Mapping[str, Values]
    ) -> Generator[None, None, dict[str, Values]]:
        """The domain of each gated pod that gets one, by the uid of the pod. `count` is the number of pods of the pod
        set, `first` the index of its first pod. `kept` has the domains that gated pods were given before, of which the
        writes may have taken effect: a pod that is still gated gets the same domain again."""
        gated: list[Pod] = []
        for number, pod in enumerate(self._members):
            if names.TOPOLOGY_GATE in pods.gates(pod):
                gated.append(pod)
            elif (inside := self._inside(pod)) is not None:
                self._free[inside] -= 1
            if number % _STEP == _STEP - 1:
                yield
        ranks = _ranks(self._members, request, count=count, first=first)
        yield
        wanted = self._by_rank(ranks) if ranks is not None else None
        yield
        found: dict[str, Values] = {}
        for known in (kept, wanted) if wanted is not None else (kept,):
            for pod in gated:
                domain = known.get(pod.metadata.uid)
                if domain is not None and pod.metadata.uid not in found and self._free[domain] > 0:
                    self._take(pod, domain, found)
        if wanted is None:
            yield from self._fill_in_order([pod for pod in gated if pod.metadata.uid not in found], found)
        return found

    def _take(self, pod: Pod, domain: Values, found: dict[str, Values]) -> None:
        self._free[domain] -= 1
        if not self._closed(domain):
            found[pod.metadata.uid] = domain

    def _closed(self, domain: Values) -> bool:
        return bool(self._unhealthy) and domain[-1] in self._unhealthy

    def _fill_in_order(self, waiting: Sequence[Pod], found: dict[str, Values]) -> Generator[None, None, None]:
        """Give each pod the first domain with a free place that its own node selector allows."""
        for number, pod in enumerate(waiting):
            selector = pods.node_selector(pod)
            own = tuple(selector.get(level) for level in self.levels)
            candidates = self._alike.get(own)
            if candidates is None:
                fits = (values for values in self._free if _agrees(own, values) and not self._closed(values))
                candidates = self._alike[own] = list(fits)[::-1]
            while candidates and self._free[candidates[-1]] <= 0:
                candidates.pop()
            if candidates:
                self._take(pod, candidates[-1], found)
            if number % _STEP == _STEP - 1:
                yield

    def _by_rank(self, ranks: Mapping[str, int]) -> dict[str, Values] | None:
        """The domain of each pod by its rank; None if the ranks lie: a pod that runs is in another domain, or a gated
        pod selects another one."""
        wanted: dict[str, Values] = {}
        for pod in self._members:
            rank = ranks[pod.metadata.uid]
            if rank >= self._ends[-1]:
                return None
            values = self._domains[bisect_right(self._ends, rank)].values
            selector = pods.node_selector(pod)
            if names.TOPOLOGY_GATE in pods.gates(pod):
                if not _agrees(tuple(selector.get(level) for level in self.levels), values):
                    return None
                wanted[pod.metadata.uid] = values
            elif self._inside(pod) != values:
                return None
        return wanted

    def _inside(self, pod: Pod) -> Values | None:
        """The domain that a pod without a gate is in: by its node selector, or by its node where that is the domain."""
        selector = pods.node_selector(pod)
        values = tuple(selector.get(level, "") for level in self.levels)
        if self.levels == (HOSTNAME,) and HOSTNAME not in selector and (node := pods.node_name(pod)):
            return (node,)
        return values if all(level in selector for level in self.levels) else None


def _agrees(own: tuple[str | None, ...], values: Values) -> bool:
    return all(mine is None or mine == value for mine, value in zip(own, values, strict=True))


def _ranks(members: Sequence[Pod], request: TopologyRequest | None, *, count: int, first: int) -> dict[str, int] | None:
    """The rank of each pod, from 0, by its uid; None if not all pods have one of their own that is below `count`."""
    if request is None or not request.pod_index_label or not members:
        return None
    each_group = 0
    if request.sub_group_index_label is not None:
        if not request.sub_group_count:
            return None
        each_group = count // request.sub_group_count
    offset = first + (clamped(members[0].metadata.annotations.get(names.POD_INDEX_OFFSET, "")) or 0)
    ranks: dict[str, int] = {}
    taken: set[int] = set()
    for pod in members:
        labels = pod.metadata.labels
        index = clamped(labels.get(request.pod_index_label, ""))
        if index is None:
            return None
        if request.sub_group_index_label is not None:
            group = clamped(labels.get(request.sub_group_index_label, ""))
            if group is None or index >= each_group:
                return None
            index += group * each_group
        rank = index - offset
        if not 0 <= rank < count or rank in taken:
            return None
        taken.add(rank)
        ranks[pod.metadata.uid] = rank
    return ranks
