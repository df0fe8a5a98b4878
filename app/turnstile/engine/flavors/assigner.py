"""Which flavor each resource of each pod set gets, and how: by fitting, by borrowing, by preempting.

Flavors of a resource group are tried in the order the ClusterQueue lists them; fungibility says when to look further.
The scan remembers how far it came, so that the next attempt goes on from there. Sources: Kueue's flavorassigner and
KEP-582 (fungibility). Must never change usage: what would be used is in the result.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from turnstile.api.quantity import MAX_INT64
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.flavors.assignment import Assignment, PairOf, PodSetAssignment
from turnstile.engine.flavors.eligibility import mismatch
from turnstile.engine.flavors.fungibility import FIT, NO_FIT, better, try_next
from turnstile.engine.flavors.quotafit import Oracle, QuotaJudge
from turnstile.engine.flavors.together import Companions
from turnstile.engine.flavors.topology import topology_mismatch
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import Amounts, FlavorResource, visiting_order
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.reasons import (
    MODE_OF,
    NO_MATCHING_FLAVOR,
    Attempt,
    FlavorChoice,
    Mode,
)

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info, PodSetTotals

PODS: Final = "pods"

_UNSET: Final = object()
_ALONE: Final = [[0]]


class _Plain(NamedTuple):
    """What is the same for all pod sets of which all resources fit into a flavor without borrowing. Shared by them:
    it is never changed."""

    choices: dict[str, FlavorChoice]
    names: dict[str, str]
    attempts: tuple[tuple[Attempt]]
    tried: dict[str, int]
    pairs: tuple[FlavorResource, ...]


class _Choice(NamedTuple):
    """Flavors by resource, or None and the reasons why there are none."""

    choices: dict[str, FlavorChoice] | None
    reasons: Sequence[str]
    attempts: list[Sequence[Attempt]]
    undeclared: Sequence[str]
    error: str | None

    @property
    def mode(self) -> Mode:
        """The worst over the resources."""
        if self.choices is None:
            return Mode.NO_FIT
        return min((each.mode for each in self.choices.values()), default=Mode.FIT)


class Assigner:
    """Finds flavors for workloads of one ClusterQueue. `flavors` are the ResourceFlavors that exist."""

    __slots__ = (
        "_plain",
        "_plain_sets",
        "cycle",
        "flavors",
        "fungible",
        "ignore_undeclared",
        "judge",
        "pair",
        "topologies",
    )

    def __init__(
        self,
        *,
        flavors: Mapping[str, ResourceFlavor],
        pair: PairOf,
        oracle: Oracle,
        fungible: bool = True,
        fair_sharing: bool = False,
        ignore_undeclared: bool = False,
        topologies: Mapping[str, tuple[str, ...] | None] | None = None,
    ) -> None:
        self.flavors = flavors
        self.topologies = topologies or {}
        self.pair = pair
        self.fungible = fungible
        self.ignore_undeclared = ignore_undeclared
        self.cycle = 0
        self.judge = QuotaJudge(pair=pair, oracle=oracle, fungible=fungible, fair_sharing=fair_sharing)
        self._plain: dict[tuple[str, int], tuple[FlavorChoice, tuple[Attempt]]] = {}
        """What is the same for all that fit into a flavor without borrowing, by flavor and where the scan ended."""
        self._plain_sets: dict[tuple[str | int, ...], _Plain] = {}
        """The same for whole pod sets: by flavor, where the scan ended, and resources."""

    def assign(
        self,
        queue: "ClusterQueue",
        info: "Info",
        *,
        counts: list[int] | None = None,
        pins: Mapping[str, Mapping[str, str]] | None = None,
        replaced: "Info | None" = None,
    ) -> Assignment:
        """Flavors for all pod sets, at reduced `counts` if given, only the flavors in `pins` if given.

        `replaced` is the workload slice whose quota this one takes over: flavors stay, and only the difference counts.
        """
        totals = info.totals
        result = Assignment(LastAssignment([], queue.generation, self.cycle, info.hash if info.last_assignment else ""))
        groups = _ALONE if len(totals) == 1 else groups_of(totals)
        asked: list[dict[str, int]] = []
        for index, item in enumerate(totals):
            count = item.count if counts is None else counts[index]
            requests = item.requests if counts is None else item.scaled(count)
            if queue.covers_pods:
                requests = {**requests, PODS: count}
            asked.append(requests)
        for members in groups:
            if not self._assign_group(queue, info, result, members, asked, counts, pins, replaced):
                break
        if len(result.pod_sets) == 1:
            result.mode = result.pod_sets[0].mode
        else:
            result.mode = min([pod_set.mode for pod_set in result.pod_sets], default=Mode.FIT)
        return result

    def _assign_group(
        self,
        queue: "ClusterQueue",
        info: "Info",
        result: Assignment,
        members: list[int],
        asked: list[dict[str, int]],
        counts: list[int] | None,
        pins: Mapping[str, Mapping[str, str]] | None,
        replaced: "Info | None",
    ) -> bool:
        """One group of pod sets that share their flavors. False if it found none."""
        totals = info.totals
        if len(members) == 1:
            requests = asked[members[0]]
            if pins is None and replaced is None and self._fits_first(queue, info, result, members, requests, counts):
                return True
        else:
            requests = {}
            for index in members:
                for resource, value in asked[index].items():
                    requests[resource] = min(requests.get(resource, 0) + value, MAX_INT64)
        choices, reasons, attempts, undeclared, error = self._choose(
            queue, info, result, members, requests, pins, replaced
        )
        usage, pair_of = result.usage.quota, self.pair
        for index in members:
            item, requests = totals[index], asked[index]
            count = item.count if counts is None else counts[index]
            pod_set = PodSetAssignment(
                item.name, count, requests, reasons=reasons, error=error, attempts=attempts, undeclared=undeclared
            )
            tried_index: dict[str, int] = {}
            if choices is not None:
                flavors = pod_set.flavors
                if len(choices) == 1 and choices.keys() == requests.keys():
                    pod_set.flavors = flavors = choices  # what the loop below would come to
                old = replaced.totals[index] if replaced is not None and index < len(replaced.totals) else None
                for resource, value in requests.items():
                    choice = choices.get(resource)
                    if choice is None:
                        continue
                    flavors[resource] = choice
                    if choice.borrow > result.borrowing:
                        result.borrowing = choice.borrow
                    if old is not None:
                        value -= old.requests.get(resource, 0)
                    pair = pair_of(choice.flavor, resource)
                    if pair in usage:
                        value += usage[pair]
                    usage[pair] = min(value, MAX_INT64)
                    tried_index[resource] = choice.tried_index
                if not flavors and len(members) > 1:
                    for resource, choice in choices.items():
                        found_flavor = self.flavors.get(choice.flavor)
                        if found_flavor is not None and found_flavor.spec.topology_name is not None:
                            flavors[resource] = choice
                            tried_index[resource] = choice.tried_index
            result.pod_sets.append(pod_set)
            result.last.tried.append(tried_index)
        return choices is not None

    def _choose(
        self,
        queue: "ClusterQueue",
        info: "Info",
        result: Assignment,
        members: list[int],
        requests: dict[str, int],
        pins: Mapping[str, Mapping[str, str]] | None,
        replaced: "Info | None",
    ) -> _Choice:
        """Flavors for all resources of one group of pod sets.

        Where not all of them fit, a flavor with which a flavor of a later resource group does not fit together is given
        up and the search begins anew, at most once a flavor of the ClusterQueue; the first of the best results counts.
        """
        given_up: dict[str, str] = {}
        best: _Choice | None = None
        while True:
            companions = Companions(given_up)
            found = self._choose_beside(queue, info, result, members, requests, pins, replaced, companions)
            if best is None or found.mode > best.mode:
                best = found
            if best.mode is Mode.FIT or not companions.blocking:
                return best
            given_up[companions.blocking] = companions.reason

    def _choose_beside(
        self,
        queue: "ClusterQueue",
        info: "Info",
        result: Assignment,
        members: list[int],
        requests: dict[str, int],
        pins: Mapping[str, Mapping[str, str]] | None,
        replaced: "Info | None",
        companions: Companions,
    ) -> _Choice:
        choices: dict[str, FlavorChoice] = {}
        reasons: Sequence[str] = ()
        attempts: list[Sequence[Attempt]] = []
        order = visiting_order(requests) if len(requests) > 1 else requests
        for resource in order:
            if resource in choices:
                continue
            group = queue.group_of.get(resource)
            if group is None:
                if requests[resource] == 0 or self.ignore_undeclared:
                    continue
                why = [f"resource {resource} unavailable in ClusterQueue"]
                return _Choice(None, why, attempts, (resource,), None)
            wanted = (
                {name: requests[name] for name in order if name in group.covered} if len(requests) > 1 else requests
            )
            if choices:
                others = {each.flavor for name, each in choices.items() if name not in group.covered}
                companions.begin(self.flavors[name] for name in sorted(others))
            found, why_not, tried, error = self._find(
                queue, info, result, members, resource, wanted, group.flavors, pins, replaced, companions
            )
            attempts.append(tried)
            if error is not None or not found:
                return _Choice(None, why_not, attempts, (), error)
            if choices:
                choices.update(found)
                reasons = [*reasons, *why_not] if why_not else reasons
            else:
                choices, reasons = found, why_not
        return _Choice(choices, reasons, attempts, (), None)

    def _fits_first(
        self,
        queue: "ClusterQueue",
        info: "Info",
        result: Assignment,
        members: list[int],
        requests: dict[str, int],
        counts: list[int] | None,
    ) -> bool:
        """Give all resources of a lone pod set the first flavor of their one group, if they fit there without
        borrowing, as most do: what the search would come to, for a third of its work. False if it must be searched."""
        group = queue.group_of.get(next(iter(requests), ""))
        if group is None or info.last_assignment is not None or info.allowed_flavors is not None:
            return False
        if not group.covered.issuperset(requests):
            return False
        flavor = group.flavors[0]
        tried = 0 if len(group.flavors) > 1 and self.fungible else -1
        plain = self._plain_sets.get((flavor, tried, *requests))
        if plain is None:
            plain = self._plain_sets[flavor, tried, *requests] = self._plainly(flavor, tried, tuple(requests))
        node, usage = queue.node, result.usage.quota
        taken: Amounts = {}
        for pair, value in zip(plain.pairs, requests.values(), strict=True):
            total = value + usage.get(pair, 0)
            if total > MAX_INT64 or total > tree.available(node, pair):
                return False
            if node.parent is not None and tree.borrowing_with(node, pair, total):
                return False
            taken[pair] = total
        try:
            if self.unfit(queue, info, members, flavor) is not None:
                return False
        except ValueError:
            return False
        if usage:
            usage.update(taken)
        else:
            result.usage.quota = taken
        index = members[0]
        item = info.totals[index]
        count = item.count if counts is None else counts[index]
        pod_set = PodSetAssignment(item.name, count, requests, attempts=plain.attempts)
        pod_set.take(plain.choices, plain.names)
        result.pod_sets.append(pod_set)
        result.last.tried.append(plain.tried)
        return True

    def _plainly(self, flavor: str, tried: int, resources: tuple[str, ...]) -> _Plain:
        choice, attempts = self._plain_fit(flavor, tried)
        return _Plain(
            dict.fromkeys(resources, choice),
            dict.fromkeys(resources, flavor),
            (attempts,),
            dict.fromkeys(resources, tried),
            tuple(self.pair(flavor, resource) for resource in resources),
        )

    def _find(
        self,
        queue: "ClusterQueue",
        info: "Info",
        result: Assignment,
        members: list[int],
        resource: str,
        wanted: dict[str, int],
        flavors: tuple[str, ...],
        pins: Mapping[str, Mapping[str, str]] | None,
        replaced: "Info | None",
        companions: Companions,
    ) -> tuple[dict[str, FlavorChoice], Sequence[str], Sequence[Attempt], str | None]:
        """The best flavor for the resources of one group: choices, reasons, attempts, error."""
        fungibility = queue.fungibility
        last = info.last_assignment
        start = 0
        if self.fungible and last is not None and members[0] < len(last.tried):
            start = last.tried[members[0]].get(resource, -1) + 1
            result.resumed = result.resumed or start > 0
        best: dict[str, FlavorChoice] = {}
        best_how, best_level = NO_FIT, 0
        reasons: list[str] = []
        attempts: list[Attempt] = []
        attempted = -1
        pinned = pins.get(info.totals[members[0]].name, {}) if pins is not None else None
        for index in range(start, len(flavors)):
            attempted = index
            flavor = flavors[index]
            if pinned is not None and pinned.get(resource) != flavor:
                reasons.append(
                    f"skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
                )
                continue
            if info.allowed_flavors is not None and flavor not in info.allowed_flavors:
                reasons.append(f"skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation")
                continue
            try:
                unfit = self.unfit(queue, info, members, flavor) or companions.unfit(
                    self.flavors[flavor], (info.totals[each].shape for each in members)
                )
            except ValueError as error:
                return {}, reasons, attempts, str(error)
            if unfit is not None:
                self._skip(attempts, reasons, flavor, unfit)
                continue
            attempt = Attempt(flavor)
            choices, how, level_ = self.judge.suits(
                queue, info, result.usage, members, flavor, wanted, replaced, attempt
            )
            if how is FIT and not choices:
                choice, alone = self._plain_fit(flavor, -1 if index == len(flavors) - 1 else index)
                return dict.fromkeys(wanted, choice), (), [*attempts, *alone] if attempts else alone, None
            if attempt.reasons:
                reasons.extend(attempt.reasons)
                attempt.reasons = list(dict.fromkeys(attempt.reasons))
            attempts.append(attempt)
            attempt.mode = MODE_OF[how]
            attempt.borrow = max(attempt.borrow, level_)
            attempt.possibility = how
            if how is FIT and level_ == 0:
                best, best_how, best_level = choices, how, level_
                break
            enough = not try_next(how, level_, fungibility) if self.fungible else how is FIT
            if enough or better(how, level_, best_how, best_level, fungibility, fungible=self.fungible):
                best, best_how, best_level = choices, how, level_
            if enough:
                break
        if self.fungible:
            tried = -1 if attempted == len(flavors) - 1 else attempted
            for choice in best.values():
                choice.tried_index = tried
        if best_how is FIT:
            reasons = []
        return best, reasons, attempts, None

    def _plain_fit(self, flavor: str, tried: int) -> tuple[FlavorChoice, tuple[Attempt]]:
        plain = self._plain.get((flavor, tried))
        if plain is None:
            choice = FlavorChoice(flavor, Mode.FIT, 0)
            if self.fungible:
                choice.tried_index = tried
            plain = self._plain[flavor, tried] = choice, (Attempt(flavor),)
        return plain

    @staticmethod
    def _skip(attempts: list[Attempt], reasons: list[str], flavor: str, reason: str) -> None:
        attempt = Attempt(flavor)
        attempt.mode = Mode.NO_FIT
        attempt.possibility = NO_FIT
        attempt.refuse(reason, NO_MATCHING_FLAVOR)
        attempts.append(attempt)
        reasons.append(reason)

    def unfit(self, queue: "ClusterQueue", info: "Info", members: list[int], flavor: str) -> str | None:
        """Why pods of these pod sets cannot have a flavor, whatever its quota; None if they can. Raises ValueError if
        their affinity is malformed."""
        found = self.flavors.get(flavor)
        if found is None:
            return f"flavor {flavor} not found"
        for index in members:
            pod_set = info.totals[index].pod_set
            request = pod_set.topology_request if pod_set is not None else None
            if (request is not None or found.spec.topology_name is not None) and (
                mismatched := topology_mismatch(
                    queue, info.totals[index], request, found, flavors=self.flavors, topologies=self.topologies
                )
            ):
                return mismatched
            shape = info.totals[index].shape
            if shape is None:
                continue
            answer = shape.answers.get(flavor, _UNSET)
            if answer is _UNSET:
                answer = shape.answers[flavor] = mismatch(shape, found)
            if answer is not None:
                return str(answer)
        return None


def groups_of(totals: "list[PodSetTotals]") -> list[list[int]]:
    """Indexes of pod sets that share their flavors, in order of first appearance."""
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(totals):
        request = item.pod_set.topology_request if item.pod_set is not None else None
        name = request.pod_set_group_name if request is not None else None
        groups.setdefault(f"group {name}" if name else f"pod set {index}", []).append(index)
    return list(groups.values())
