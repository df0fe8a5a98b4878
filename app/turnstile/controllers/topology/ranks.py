"""Which gated pod of a pod set goes to which domain of the assignment. Pure: no store, no clock.

Pods that their controller numbers go to domains in the order of their ranks, so that neighbours in a job are neighbours
in the data center: the first domain gets the lowest ranks. A rank is read from labels, which a tenant may have written;
if those of the pods cannot all be right, and for pods without numbers, each domain gets as many pods as it has places,
in the order of the pods' names. A pod that is being deleted takes up a place and no rank: the pod that is made for it
has the same one, and waits for the place. In no case a domain gets more pods than the assignment says.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.numbers import clamped
from turnstile.api.topology import HOSTNAME, TopologyAssignment, TopologyRequest
from turnstile.api.topologyassignment import Domain, decode
from turnstile.api.workload import PodSet, PodSetAssignment, Workload
from turnstile.jobs import pods
from turnstile.jobs.topologyrequest import FROM_ZERO

Values = tuple[str, ...]
"""The values of the node labels that make a domain."""
_STEP: Final = 50
"""Pods that are looked at before other tasks may run."""


def first_ranks(
    workload: Workload, assigned: Mapping[str, PodSetAssignment], *, numbers_leader: bool
) -> dict[str, int]:
    """The index of the first pod of each pod set, as the numbering of its job's controller begins: 0, but where a
    leader and its workers, a pod set group, are numbered one after the other.

    Kueue supposes that of all groups, so the workers of most kinds lose their ranks in a group. Here the label of the
    workers decides; with a label that counts from 0 in each pod set, only `numbers_leader` has the leader counted.
    """
    groups: dict[str, list[PodSet]] = {}
    for each in workload.spec.pod_sets:
        if each.topology_request is not None and each.topology_request.pod_set_group_name:
            groups.setdefault(each.topology_request.pod_set_group_name, []).append(each)
    first: dict[str, int] = {}
    for members in groups.values():
        if len(members) != 2:
            continue
        leader, workers = sorted(members, key=lambda each: _count(each, assigned))
        label = workers.topology_request.pod_index_label if workers.topology_request is not None else None
        if numbers_leader or label not in FROM_ZERO:
            first[workers.name] = _count(leader, assigned)
    return first


def _count(pod_set: PodSet, assigned: Mapping[str, PodSetAssignment]) -> int:
    given = assigned.get(pod_set.name)
    return pod_set.count if given is None or given.count is None else given.count


class _Seen(NamedTuple):
    """The facts of a pod that decide where it goes."""

    uid: str
    labels: Mapping[str, str]
    gated: bool
    own: tuple[str | None, ...]
    """The values of the levels that its node selector has."""
    inside: Values | None
    """The domain that it is in, if it has no gate."""
    leaving: bool
    """Whether it runs, and is being deleted."""


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

    def fill(
        self, request: TopologyRequest | None, *, count: int, first: int, kept: Mapping[str, Values]
    ) -> Generator[None, None, dict[str, Values]]:
        """The domain of each gated pod that gets one, by the uid of the pod. `count` is the number of pods of the pod
        set, `first` the index of its first pod. `kept` has the domains that gated pods were given before, of which the
        writes may have taken effect: a pod that is still gated gets the same domain again."""
        seen: list[_Seen] = []
        for number, pod in enumerate(self._members):
            seen.append(each := self._read(pod))
            if each.inside is not None:
                self._free[each.inside] -= 1
            if number % _STEP == _STEP - 1:
                yield
        if self._members:
            first += clamped(self._members[0].metadata.annotations.get(names.POD_INDEX_OFFSET, "")) or 0
        wanted = yield from self._by_rank(seen, request, count=count, offset=first)
        found: dict[str, Values] = {}
        gated = [each for each in seen if each.gated]
        for known in (kept, wanted) if wanted is not None else (kept,):
            for each in gated:
                domain = known.get(each.uid)
                if domain is not None and each.uid not in found and self._free[domain] > 0:
                    self._take(each.uid, domain, found)
            yield
        if wanted is None:
            yield from self._in_order([each for each in gated if each.uid not in found], found)
        return found

    def _take(self, uid: str, domain: Values, found: dict[str, Values]) -> None:
        self._free[domain] -= 1
        if not self._closed(domain):
            found[uid] = domain

    def _closed(self, domain: Values) -> bool:
        return bool(self._unhealthy) and domain[-1] in self._unhealthy

    def _in_order(self, waiting: Sequence[_Seen], found: dict[str, Values]) -> Generator[None, None, None]:
        """Give each pod the first domain with a free place that its own node selector allows."""
        alike: dict[tuple[str | None, ...], list[Values]] = {}
        for number, pod in enumerate(waiting):
            candidates = alike.get(pod.own)
            if candidates is None:
                fits = (values for values in self._free if _agrees(pod.own, values) and not self._closed(values))
                candidates = alike[pod.own] = list(fits)[::-1]
            while candidates and self._free[candidates[-1]] <= 0:
                candidates.pop()
            if candidates:
                self._take(pod.uid, candidates[-1], found)
            if number % _STEP == _STEP - 1:
                yield

    def _by_rank(
        self, seen: Sequence[_Seen], request: TopologyRequest | None, *, count: int, offset: int
    ) -> Generator[None, None, dict[str, Values] | None]:
        """The domain of each gated pod by its rank; None if not all pods have ranks, or the ranks lie: two pods have
        the same, there is no such place, a pod runs in another domain, or a gated pod selects another one."""
        if request is None or not request.pod_index_label:
            return None
        wanted: dict[str, Values] = {}
        taken: set[int] = set()
        for number, pod in enumerate(each for each in seen if not each.leaving):
            index = _index(pod.labels, request, count)
            rank = index - offset if index is not None else -1
            if not 0 <= rank < min(count, self._ends[-1] if self._ends else 0) or rank in taken:
                return None
            taken.add(rank)
            values = self._domains[bisect_right(self._ends, rank)].values
            if not (_agrees(pod.own, values) if pod.gated else pod.inside == values):
                return None
            if pod.gated:
                wanted[pod.uid] = values
            if number % _STEP == _STEP - 1:
                yield
        return wanted

    def _read(self, pod: Pod) -> _Seen:
        """Without a gate a pod is in a domain by its node selector, or by its node where that is the domain."""
        binding, meta = pods.binding(pod), pod.metadata
        selector = binding.node_selector
        own = tuple(selector.get(level) for level in self.levels)
        gated = any(gate.name == names.TOPOLOGY_GATE for gate in binding.scheduling_gates)
        inside: Values | None = None
        if not gated:
            inside = tuple(value for value in own if value is not None)
            if len(inside) < len(own):
                inside = (binding.node_name,) if self.levels == (HOSTNAME,) and binding.node_name else None
        leaving = not gated and meta.deletion_timestamp is not None
        return _Seen(meta.uid, meta.labels, gated, own, inside, leaving)


def _agrees(own: tuple[str | None, ...], values: Values) -> bool:
    return all(mine is None or mine == value for mine, value in zip(own, values, strict=True))


def _index(labels: Mapping[str, str], request: TopologyRequest, count: int) -> int | None:
    """The number of a pod among all pods of the pod set, as the labels say; None if they do not say one."""
    index = clamped(labels.get(request.pod_index_label or "", ""))
    if index is None or request.sub_group_index_label is None:
        return index
    if not request.sub_group_count:
        return None
    each_group = count // request.sub_group_count
    group = clamped(labels.get(request.sub_group_index_label, ""))
    return index + group * each_group if group is not None and index < each_group else None
