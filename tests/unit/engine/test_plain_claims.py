"""What the entries of a cycle claim, and in which order they come, held against the rules without any shortcut."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from turnstile.engine import State
from turnstile.engine.cycle.claims import Claims
from turnstile.engine.cycle.entries import Entry
from turnstile.engine.cycle.precedence import after_their_preemptors
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.pace import Pace, finish
from turnstile.engine.preemption.targets import Target, Targets
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota import tree
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import Mode

EXAMPLES = int(os.environ.get("HISTORIES", "200"))
drawn = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def entry_of(state: State, queue: str, name: str, *, priority: int = 0, victims: Iterable[str] | None = None) -> Entry:
    """A Workload of that ClusterQueue on its way through a cycle; the names of those it had preempted before."""
    state.put_workload(b.workload(name, queue, priority=priority), b.NOW)
    holder = state.cluster_queues[queue]
    holder.pending.nomination = None
    if victims is not None:
        gone = {f"team/{victim}": "" for victim in victims}
        holder.pending.nomination = Nomination(f"team/{name}", sticky=True, victims=gone)
    entry = Entry(state.queues.waiting[f"team/{name}"], holder)
    entry.assignment = Assignment(LastAssignment([], 0, 0, ""))
    return entry


# Order


def plain_order(entries: list[Entry], order: Iterable[Entry]) -> Iterator[Entry]:
    """Each entry asks every preemptor that is still to come; whenever a preemptor had its turn all are asked again."""

    def waits_for_victims(entry: Entry) -> bool:
        return entry.nomination is not None and bool(entry.nomination.victims)

    ahead = {entry.info.key: entry for entry in entries if waits_for_victims(entry)}
    held_up: dict[str, Entry] = {}

    def precedes(preemptor: Entry, entry: Entry) -> bool:
        if preemptor is entry:
            return False
        assert preemptor.nomination is not None
        assert entry.assignment is not None
        if entry.info.key in preemptor.nomination.victims:
            return True
        return (
            entry.assignment.borrowing > 0
            and not waits_for_victims(entry)
            and entry.info.priority <= preemptor.info.priority
            and entry.queue.node.root is preemptor.queue.node.root
        )

    def must_wait(entry: Entry) -> bool:
        return any(precedes(preemptor, entry) for preemptor in ahead.values())

    def go(entry: Entry) -> Iterator[Entry]:
        yield entry
        if ahead.pop(entry.info.key, None) is not None:
            for key, other in list(held_up.items()):
                if key in held_up and not must_wait(other):
                    yield from go(held_up.pop(key))

    for entry in order:
        if must_wait(entry):
            held_up[entry.info.key] = entry
        else:
            yield from go(entry)
    while held_up:
        yield from go(held_up.pop(next((key for key in held_up if key in ahead), next(iter(held_up)))))


head = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 1), st.none() | st.sets(st.integers(0, 9)))


@drawn
@given(st.lists(head, min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_nobody_waits_longer_than_the_rule_says(
    heads: list[tuple[int, int, int, set[int] | None]], how: object
) -> None:
    """Whatever was preempted for whom, in two trees and in any order."""
    state = b.world(*(b.queue(f"q{index}", cohort=f"tree-{head[0]}") for index, head in enumerate(heads)))
    entries = []
    for index, (_, priority, borrowing, victims) in enumerate(heads):
        names = None if victims is None else [f"w{victim}" for victim in victims]
        entry = entry_of(state, f"q{index}", f"w{index}", priority=priority, victims=names)
        assert entry.assignment is not None
        entry.assignment.borrowing = borrowing
        entries.append(entry)
    order = entries.copy()
    how.shuffle(order)  # type: ignore[attr-defined]
    found = [entry.info.key for entry in after_their_preemptors(entries, order, Pace()) if entry is not None]
    assert found == [entry.info.key for entry in plain_order(entries, order)]


# Claims

amount = st.integers(0, 5)
limit = st.none() | st.integers(0, 4)
quota = st.tuples(amount, limit, limit)
COHORTS = 4


@dataclass
class PlainClaims:
    """Lists of what was claimed in one tree, which is computed anew for each question."""

    root: Node
    passing: list[tuple[Node, Usage]] = field(default_factory=list)
    reserved: list[tuple[Node, Usage]] = field(default_factory=list)
    preempting: list[Entry] = field(default_factory=list)
    admitted: bool = False

    def fits_if(self, entry: Entry, gone: list[tuple[Node, Usage]], more: Entry | None = None) -> bool:
        """Whether an entry fits without some usage, and with that of one more entry."""
        before = {node: node.usage for node in self.root.walk_queues()}
        assert entry.assignment is not None
        for node in before:
            node.usage = node.usage.copy()
        changes = [(node, usage, -1) for node, usage in gone]
        if more is not None:
            assert more.assignment is not None
            changes.append((more.queue.node, more.assignment.usage, 1))
        for node, usage, times in changes:
            for pair, value in usage.quota.items():
                node.usage[pair] = node.usage.get(pair, 0) + times * value
        tree.rebuild(self.root)
        try:
            return entry.assignment.usage.fits(entry.queue.node)
        finally:
            for node, usage_before in before.items():
                node.usage = usage_before
            tree.rebuild(self.root)

    def fits(self, entry: Entry) -> bool:
        """The rule: with all victims gone; by its own victims; and so that it leaves enough to each preemptor."""
        waits = entry.nomination is not None and bool(entry.nomination.victims)
        if not entry.targets and not (self.preempting or (self.reserved and waits)):
            return self.fits_if(entry, [])
        gone = [each for one in (*self.preempting, entry) for each in freed(one)]
        if not self.fits_if(entry, gone + (self.reserved if waits else [])):
            return False
        assert entry.assignment is not None
        admits = entry.assignment.mode is Mode.FIT
        if not self.preempting or not (admits or (self.admitted and entry.targets)):
            return True
        if not self.fits_if(entry, self.passing + freed(entry)):
            return False
        return not (
            admits
            and len(self.preempting) > 1
            and any(
                self.fits_if(other, self.passing + freed(other))
                and not self.fits_if(other, self.passing + freed(other), entry)
                for other in self.preempting
            )
        )


def freed(entry: Entry) -> list[tuple[Node, Usage]]:
    """What the victims of an entry hold."""
    return [(queue.node, usage) for queue, usage in entry.targets.freed.items()]


@drawn
@given(st.data())
def test_an_entry_fits_where_each_preemptor_is_asked(data: st.DataObject) -> None:
    """In a tree of cohorts with any limits: entries that are admitted, preempt, reserve and pass, each asked first."""
    count = data.draw(st.integers(2, 8), "queues")
    state = b.world(*(b.queue(f"q{index}", cohort=f"c{index % COHORTS}") for index in range(count)))
    for index in range(1, COHORTS):
        state.put_cohort(b.cohort(f"c{index}", parent=f"c{data.draw(st.integers(0, index - 1), 'parent')}"))
    pairs = [state.surroundings.catalog.pair("default", name) for name in ("cpu", "memory")]
    state.ledger.settle()
    queues = list(state.cluster_queues.values())
    root = queues[0].node.root
    for node in (*state.ledger.cohorts.values(), *(queue.node for queue in queues)):
        for pair in pairs:
            node.nominal[pair], borrowing, lending = data.draw(quota, "quota")
            if node.parent is not None and borrowing is not None:
                node.borrowing_limit[pair] = borrowing
            if node.parent is not None and lending is not None:
                node.lending_limit[pair] = lending
    held = {queue: {pair: data.draw(amount, "held") for pair in pairs} for queue in queues}
    for queue in queues:
        queue.node.usage = dict(held[queue])
    tree.rebuild(root)
    claims, plain, pace = Claims(lambda _: False), PlainClaims(root), Pace()
    for number, queue in enumerate(data.draw(st.permutations([*queues, *queues[:3]]), "order")):
        entry = entry_of(state, queue.name, f"w{number}", victims=["v"] if data.draw(st.booleans()) else None)
        assert entry.assignment is not None
        how = data.draw(st.sampled_from(["admit", "admit", "preempt", "preempt", "reserve"]))
        entry.assignment.usage = Usage({pair: data.draw(st.integers(-1, 4)) for pair in pairs})
        entry.assignment.mode = Mode.FIT if how == "admit" else Mode.PREEMPT
        if how == "preempt" and not any(other.queue is queue for other in plain.preempting):
            entry.targets = Targets([Target(entry.info, queue, "")])
            for other in queues:
                part = {pair: data.draw(st.integers(0, most)) for pair, most in held[other].items()}
                entry.targets.freed[other] = Usage(part)
        assert finish(claims.fits(entry, pace)) == plain.fits(entry)
        usage = entry.assignment.usage
        if entry.targets:
            for owner, part_of in entry.targets.freed.items():
                for pair, value in part_of.quota.items():
                    held[state.cluster_queues[owner.name]][pair] -= value
            claims.preempted.clear()
            finish(claims.preempt(entry, Pace()))
            plain.preempting.append(entry)
        if how == "reserve":
            claims.reserve(queue, usage)
            plain.reserved.append((queue.node, usage))
        else:
            claims.count(queue, usage, admitted=how == "admit")
            plain.admitted = plain.admitted or how == "admit"
        if how != "admit":
            plain.passing.append((queue.node, usage))
    finish(claims.take_off(pace))
