"""The second pass: places for pods of Workloads that hold quota, before a cycle looks at its heads.

A Workload gets places once its admission checks are ready, and other places for those on nodes that failed: for all of
them at once, or for none. If no other nodes have room for these, it is evicted. No quota is asked for, and no Workload
is preempted. Source: Kueue's scheduler. Must never move pods whose node works.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from turnstile.api.topologyassignment import Domain as Place
from turnstile.api.topologyassignment import decode
from turnstile.engine.causes import Cause, Eviction
from turnstile.engine.cycle.entries import Entry, checks_left
from turnstile.engine.decisions import Decision, Outcome
from turnstile.engine.flavors.assignment import Assignment, PodSetAssignment
from turnstile.engine.flavors.places import Found, Seeker, policy_of
from turnstile.engine.instants import Instant
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.queue.secondpasses import failed_hosts
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.reasons import WAITING_FOR_QUOTA, FlavorChoice, Mode
from turnstile.engine.state import State
from turnstile.engine.topology.placement import Placed, Placer, Policy, Wanted
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.replacement import merge, replaced, stale
from turnstile.engine.topology.tree import Capacity, Tree


class SecondPass:
    """The second pass of one cycle."""

    __slots__ = ("_left", "_now", "_pace", "_policy", "_state", "entries")

    def __init__(self, state: State, now: Instant, pace: Pace) -> None:
        self._state = state
        self._now = now
        self._pace = pace
        self._policy: Policy = policy_of(state.options.gates)
        self._left: list[Places] = []
        """Places that were given up, which count until the cycle ends."""
        self.entries: list[Entry] = []
        """Those that were looked at, in order. Those that got places hold them already."""

    def steps(self, faults: list[tuple[str, Exception]]) -> Sliced[None]:
        """Look at the Workloads whose turn has come. Errors of the engine itself are added to `faults`."""
        state = self._state
        for key in state.second_passes.due(self._now):
            info, queue = state.ledger.holder(key), state.reservations.queue_of(key)
            if info is None or queue is None:
                state.second_passes.put_off(key, self._now)  # until its ClusterQueue exists
                continue
            entry = Entry(info, queue)
            try:
                yield from self._find(entry)
            except Exception as error:  # a fault of ours: it costs this Workload its turn, and the others nothing
                entry.set_aside(error)
                faults.append((key, error))
            self._settle(entry)
            self.entries.append(entry)
            yield

    def end(self) -> list[Decision]:
        """Have what was decided outlast the cycle."""
        state = self._state
        self._vacate()
        for entry in self.entries:
            key = entry.info.key
            if entry.held is not None:
                state.second_passes.drop(key)
                state.reservations.assume_places(entry.held, entry.info, entry.queue)
                continue
            state.second_passes.put_off(key, self._now)
            if entry.status == "evicted":
                state.reservations.expect_eviction(key, "NodeFailures")
        return [_decision_on(entry) for entry in self.entries]

    def undo(self) -> None:
        """Leave the places as they were: the cycle is closed before its end."""
        self._vacate()
        for entry in reversed(self.entries):
            if entry.held is not None:
                self._state.ledger.move(entry.queue, entry.held, entry.info)

    def _vacate(self) -> None:
        for places in self._left:
            places.vacate()
        self._left.clear()

    # Places

    def _find(self, entry: Entry) -> Sliced[None]:
        """Find places, or the reasons why there are none."""
        info = entry.info
        entry.assignment = assignment = _as_it_is(info, entry)
        failed = failed_hosts(info.workload)
        if info.failed_checks:
            entry.message = Cause.CHECKS_FAILED.says()
            assignment.mode = Mode.NO_FIT
            return
        if failed:
            found: Found = yield from self._replacements(info, assignment, frozenset(failed))
        else:
            found = yield from self._delayed(info, assignment)
        for pod_set in assignment.pod_sets:
            match found.get(pod_set.name):
                case None:
                    continue
                case Placed() as placed:
                    pod_set.placed = placed
                    pod_set.delayed = "Ready" if pod_set.delayed else None
                case why:
                    pod_set.reasons = [why]
                    pod_set.flavors = {
                        resource: FlavorChoice(choice.flavor, Mode.PREEMPT, 0, 0)
                        for resource, choice in pod_set.flavors.items()
                    }
                    assignment.mode = Mode.PREEMPT
        entry.message = assignment.message

    def _tree_of(self, totals: PodSetTotals) -> tuple[str, Tree] | str:
        """The flavor of a pod set with its tree, or why there is none."""
        trees = self._state.surroundings.nodes.trees
        flavors = sorted(trees.keys() & set((totals.flavors or {}).values()))
        if len(flavors) != 1:
            several = Cause.TOPOLOGY_FLAVORS.says(flavors=", ".join(flavors))
            return several if flavors else Cause.TOPOLOGY_NO_FLAVOR.says()
        return flavors[0], trees[flavors[0]]

    def _delayed(self, info: Info, assignment: Assignment) -> Sliced[Found]:
        """Places of the pod sets that waited for admission checks."""
        wanted: dict[str, list[Wanted]] = {}
        for totals, pod_set in zip(info.totals, assignment.pod_sets, strict=True):
            if pod_set.delayed != "Pending" or pod_set.placed is not None or not totals.count:
                continue
            found = self._tree_of(totals)
            if isinstance(found, str):
                return {totals.name: found}
            wanted.setdefault(found[0], []).append(self._wanted(info, totals))
        seeker = Seeker(self._state.surroundings.nodes, self._policy, self._pace, wanted)
        return (yield from seeker.find())

    def _replacements(self, info: Info, assignment: Assignment, failed: AbstractSet[str]) -> Sliced[Found]:
        """Places of the pod sets that have some on nodes which failed."""
        found: dict[str, Placed | str] = {}
        taken: Mapping[Capacity, Mapping[str, int]] = {}
        groups = _by_group(info, assignment, failed)
        for totals, pod_set in zip(info.totals, assignment.pod_sets, strict=True):
            held = pod_set.placed
            if held is None or not any(place.values[-1] in failed for place in held.places):
                continue
            where = self._tree_of(totals)
            if isinstance(where, str):
                return {totals.name: where}
            tree = where[1]
            nodes = self._state.surroundings.nodes
            placer = Placer(tree, nodes.frees, policy=self._policy, pace=self._pace, taken=taken)
            # Pods on a node that takes no others at present stay there until it is known to have failed.
            away = [each for each in held.places if each.values[-1] not in failed and stale(tree, [each]) is not None]
            here = held._replace(places=tuple(each for each in held.places if each not in away))
            wanted = self._wanted(info, totals)
            beside = [each for each in groups.get(wanted.group, ()) if stale(tree, [each]) is None]
            new = yield from replaced(tree, placer, wanted, here, failed, beside=beside)
            if isinstance(new, str):
                return {totals.name: new}
            found[totals.name] = new._replace(places=merge(tree, new.places, away))
            taken = placer.taken
        return found

    def _wanted(self, info: Info, totals: PodSetTotals) -> Wanted:
        request = totals.pod_set.topology_request if totals.pod_set is not None else None
        group = request.pod_set_group_name or "" if request is not None else ""
        return Wanted(totals.name, totals.count, info.ask(totals), request, info.where(totals), group)

    # What follows

    def _settle(self, entry: Entry) -> None:
        """Have the Workload hold the places that were found, or decide what becomes of it without."""
        assignment, info = entry.assignment, entry.info
        if assignment is not None and assignment.mode is Mode.FIT:
            entry.status = "assumed"
            entry.held = _holding(entry)
            self._state.ledger.move(entry.queue, info, entry.held)
            if (left := info.usage.left_by(entry.held.usage)) is not None:
                left.occupy()
                self._left.append(left)
            return
        if assignment is None or assignment.mode is Mode.NO_FIT:
            return
        if failed_hosts(info.workload) and self._state.options.gates.tas_failed_node_replacement_fail_fast:
            entry.status = "evicted"
        else:
            entry.requeue_reason, entry.quota_reason = "PreemptionNoCandidates", WAITING_FOR_QUOTA


def _as_it_is(info: Info, entry: Entry) -> Assignment:
    """The flavors and places that a Workload holds."""
    result = Assignment(LastAssignment([], entry.queue.generation, 0, ""))
    for totals in info.totals:
        flavors = totals.flavors or {}
        pod_set = PodSetAssignment(totals.name, totals.count, totals.requests)
        pod_set.take({name: FlavorChoice(flavor, Mode.FIT, 0, 0) for name, flavor in flavors.items()}, flavors)
        pod_set.delayed = totals.delayed
        if (given := totals.topology) is not None:
            pod_set.placed = Placed(tuple(given.levels), tuple(decode(given)))
        result.add(pod_set, dict.fromkeys(flavors, 0))
    return result


def _by_group(info: Info, assignment: Assignment, failed: AbstractSet[str]) -> Mapping[str, Sequence[Place]]:
    """The places on nodes that work, by the name of the pod set group."""
    found: dict[str, list[Place]] = {}
    for totals, pod_set in zip(info.totals, assignment.pod_sets, strict=True):
        request = totals.pod_set.topology_request if totals.pod_set is not None else None
        if request is not None and request.pod_set_group_name and pod_set.placed is not None:
            kept = [each for each in pod_set.placed.places if each.values[-1] not in failed]
            found.setdefault(request.pod_set_group_name, []).extend(kept)
    return found


def _holding(entry: Entry) -> Info:
    """The Workload with the places that were found."""
    assert entry.assignment is not None
    totals = [
        PodSetTotals(
            name=before.name,
            count=before.count,
            requests=before.requests,
            flavors=before.flavors,
            shape=before.shape,
            pod_set=before.pod_set,
            min_count=before.min_count,
            once=before.once,
            topology=given.topology,
            delayed=given.delayed,
        )
        for given, before in zip(entry.assignment.pod_sets, entry.info.totals, strict=True)
    ]
    return entry.info.placed(totals, admitted=entry.info.admitted or not checks_left(entry))


def _decision_on(entry: Entry) -> Decision:
    """The decision about a Workload that holds quota."""
    before, assignment = entry.info, entry.assignment
    held = entry.held or before
    outcome: Outcome = "place" if entry.held is not None else "evict" if entry.status == "evicted" else "unplaced"
    message = entry.message
    if outcome == "evict":
        message = Eviction.NODES_IRREPLACEABLE.says(hosts=",".join(failed_hosts(before.workload)))
    return Decision(
        key=before.key,
        uid=before.uid,
        generation=before.generation,
        cluster_queue=entry.queue.name,
        workload=before.workload,
        info=held,
        outcome=outcome,
        status=entry.status,
        mode=assignment.mode if assignment is not None else None,
        admitted=held.admitted,
        message=message,
        requeue_reason=entry.requeue_reason,
        assignment=assignment,
    )
