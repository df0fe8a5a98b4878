"""What must hold of every history, judged from its moments: no overshoot, nobody evicted in vain, evictions in order.

A decision is made on what was seen a moment before it is written, so it is judged good if it was right at any moment
within `LAG` before its write. What was seen of different objects may be of slightly different moments, and what was
admitted side by side may reach the server in any order. Each check gives back
what is wrong in sentences, none if all is well. Must never ask Turnstile's own code.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from testbed.client import Json, condition
from tests.faults.moments import Claim, Moment, finished, is_true, runs, total
from tests.faults.recording import Event

LAG = 6.0
"""Seconds between a look at the cluster and the write that follows from it, at most, however busy the machine is."""
AT_ONCE = 3.0
"""What happens to the same two within so many seconds is one story."""
TOGETHER = 0.25
"""Victims of one decision are written within so many seconds of one another; what is later may be another decision."""
UNSEEN = 1.0
"""Seconds for which a decision made just before may be unwritten."""
UNCOUNTED = 5.0
"""Seconds for which a new pod may be missing in the status of its Job: that depends on the Job controller alone."""

REASONS = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}
_MESSAGE = re.compile(
    r"Preempted to accommodate a workload \(UID: (?P<uid>\S+), JobUID: (?P<job>\S+)\) due to (?P<text>[^;]+);"
    r" preemptor path: (?P<preemptor>\S+); preemptee path: (?P<preemptee>\S+)"
)


@dataclass(frozen=True)
class Preemption:
    """One eviction for another workload: `index` is that of its moment, `victim` as it held quota right before."""

    index: int
    victim: Claim
    preemptor: str
    queue: str
    reason: str

    def __str__(self) -> str:
        return f"#{self.index} {self.victim.name} in {self.victim.queue} for {self.preemptor} in {self.queue}"


@dataclass
class Verdict:
    """What is wrong with a history, and what was seen in it."""

    wrong: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    """Preemptions for which no good came of it to see. What a decision was made on is inferred from writes that are
    seconds apart at times, so one or two of these prove nothing yet: read the history."""
    figures: Counter[str] = field(default_factory=Counter)


class Judge:
    """Judges one history. `fair`: whether ClusterQueues shared by weight, and not by the classical rules."""

    def __init__(self, moments: list[Moment], *, fair: bool) -> None:
        self.moments = moments
        self.fair = fair
        self.verdict = Verdict()
        self.preemptions: list[Preemption] = []

    def judge(self) -> Verdict:
        """All promises."""
        self._order_of_evictions()
        for index, moment in enumerate(self.moments):
            before = self.moments[index - 1] if index else moment
            self._starts(index, before, moment)
            self._preempted(index, before, moment)
        for preemption in self.preemptions:
            self._allowed(preemption)
            self._needed(preemption)
            self._beneficiary(preemption)
        self._no_repetition()
        return self.verdict

    def _wrong(self, index: int, sentence: str) -> None:
        moment = self.moments[index]
        self.verdict.wrong.append(f"#{index} revision {moment.event.revision}: {sentence}")

    def _doubtful(self, index: int, sentence: str) -> None:
        moment = self.moments[index]
        self.verdict.doubtful.append(f"#{index} revision {moment.event.revision}: {sentence}")

    def _lately(self, index: int, *, seconds: float = LAG) -> Iterator[int]:
        """Moments right before that one, the latest first: the states that a decision may have been made on."""
        since = self.moments[index].event.at - seconds
        for earlier in range(index - 1, -1, -1):
            yield earlier
            if self.moments[earlier].event.at < since:
                return

    def _soon(self, index: int, *, seconds: float = LAG) -> Iterator[int]:
        """The moments after that one."""
        until = self.moments[index].event.at + seconds
        for later in range(index + 1, len(self.moments)):
            if self.moments[later].event.at > until:
                return
            yield later

    # --- never over quota -----------------------------------------------------------------------------------------

    def _starts(self, index: int, before: Moment, moment: Moment) -> None:
        """Who gets quota must fit beside all that have some at that revision; who runs must have quota for it."""
        if before.holding is not moment.holding:
            usage = total(before.holding)
            # A new leader looks anew, and nobody writes any more what the one before it decided.
            lately = (self.moments[earlier] for earlier in self._lately(index))
            trees = [moment.tree, *(earlier.tree for earlier in lately if earlier.leader == moment.leader)]
            for uid, claim in moment.holding.items():
                if uid in before.holding:
                    continue
                self.verdict.figures["got quota"] += 1
                if not any(tree.fits(claim.queue, claim.cpus, usage) for tree in trees if claim.queue in tree):
                    limits = moment.limits
                    self._wrong(index, f"{claim.name} gets {claim.cpus} in {claim.queue} beside {usage}: {limits}")
        if before.running is not moment.running:
            held = {claim.job: claim.cpus for claim in moment.holding.values()}
            for uid, claim in moment.running.items():
                self.verdict.figures["started"] += uid not in before.running
                if claim.cpus > held.get(uid, 0) and uid not in before.running:
                    self._wrong(index, f"{claim.name} runs {claim.cpus} with quota for {held.get(uid, 0)}")

    # --- the order of things --------------------------------------------------------------------------------------

    def _order_of_evictions(self) -> None:
        """Evicted and Preempted in one write; Job suspended; pods gone; only then quota back, and in line again."""
        jobs: dict[str, Json] = {}
        pods = _Pods()
        evictions: Counter[str] = Counter()
        for index, moment in enumerate(self.moments):
            event = moment.event
            if event.kind == "jobs":
                pods.job(event)
                if event.new is None:
                    jobs.pop(event.obj["metadata"]["uid"], None)
                else:
                    jobs[event.new["metadata"]["uid"]] = event.new
            elif event.kind == "pods":
                pods.pod(event)
            elif event.kind == "workloads" and event.new is not None:
                uid = event.new["metadata"]["uid"]
                if _newly_preempted(event):
                    evictions[uid] += 1
                    said = condition(event.new, "Preempted")
                    same = said.get("message") == condition(event.new, "Evicted")["message"]
                    if said.get("status") != "True" or said["reason"] not in REASONS or not same:
                        self._wrong(index, f"Evicted for {said or 'no Preempted condition'}: {event.new['status']}")
                if is_true(event.old, "QuotaReserved") and not is_true(event.new, "QuotaReserved"):
                    self._gave_back(index, event, jobs, pods)
                stats = event.new.get("status", {}).get("schedulingStats", {}).get("evictions", ())
                counted = sum(entry["count"] for entry in stats if entry["reason"] == "Preempted")
                if counted != evictions[uid]:
                    self._wrong(index, f"{counted} evictions counted of {evictions[uid]}: {event.new['status']}")

    def _gave_back(self, index: int, event: Event, jobs: Mapping[str, Json], pods: "_Pods") -> None:
        workload = event.obj
        owners = workload["metadata"].get("ownerReferences") or [{"uid": ""}]
        job = jobs.get(owners[0]["uid"])
        name = workload["metadata"]["name"]
        if job is not None and runs(job):
            self._wrong(index, f"{name} gives quota back while its Job runs")
        elif job is not None and not finished(job) and (there := pods.of(owners[0]["uid"])):
            self._wrong(index, f"{name} gives quota back while its pods are there: {there}")
        if is_true(workload, "Evicted") and condition(workload, "Evicted")["reason"] == "Preempted":
            self.verdict.figures["requeued"] += 1
            if condition(workload, "Requeued").get("status") != "True":
                self._wrong(index, f"{name} is not in line again: {workload['status']}")

    # --- preemptions ----------------------------------------------------------------------------------------------

    def _preempted(self, index: int, before: Moment, moment: Moment) -> None:
        event = moment.event
        if event.kind != "workloads" or event.new is None or not _newly_preempted(event):
            return
        said = condition(event.new, "Preempted")
        found = _MESSAGE.fullmatch(said.get("message", ""))
        uid = event.new["metadata"]["uid"]
        victim = before.holding.get(uid)
        if found is None or found["text"] != REASONS.get(said["reason"]) or victim is None:
            self._wrong(index, f"preempted without saying for whom, or without quota: {event.new['status']}")
            return
        queue = found["preemptor"].rsplit("/", 1)[-1]
        trees = [moment.tree, *(self.moments[earlier].tree for earlier in self._lately(index))]
        for node, path in ((queue, found["preemptor"]), (victim.queue, found["preemptee"])):
            if not any(node in tree and tree.path(node) == path for tree in trees):
                self._wrong(index, f"there is no {path}")
                return
        self.verdict.figures[said["reason"]] += 1
        self.preemptions.append(Preemption(index, victim, found["uid"], queue, said["reason"]))

    def _allowed(self, preemption: Preemption) -> None:
        """The policy of the preemptor's queue allows it, at a moment when the preemptor waited there."""
        seen = "the preemptor did not wait there"
        coming = self._coming(preemption)
        for preemptor in self._preemptors(preemption):
            for earlier in self._lately(preemption.index):
                moment = self.moments[earlier]
                victim = moment.holding.get(preemption.victim.uid, preemption.victim)
                for usage in (moment.usage, total({**coming, **moment.holding})):
                    seen = self._refusal(preemption.reason, preemptor, victim, moment, usage)
                    if not seen:
                        return
        self._wrong(preemption.index, f"{preemption}: {preemption.reason} is not allowed: {seen}")

    def _preemptors(self, preemption: Preemption) -> list[Claim]:
        """The preemptor as it waited in that queue, the latest first: more than one if it was changed just then."""
        found: list[Claim] = []
        for earlier in self._lately(preemption.index):
            claim = self.moments[earlier].waiting.get(preemption.preemptor)
            if claim is not None and claim.queue == preemption.queue and claim not in found:
                found.append(claim)
        return found

    def _coming(self, preemption: Preemption) -> dict[str, Claim]:
        """Who may have been let in already when that was decided, and had it written a little later."""
        soon = (preemption.index, *self._soon(preemption.index))
        coming = {uid: claim for after in soon for uid, claim in self.moments[after].holding.items()}
        coming.pop(preemption.preemptor, None)
        return coming

    def _refusal(self, reason: str, preemptor: Claim, victim: Claim, moment: Moment, usage: Mapping[str, int]) -> str:
        policy = moment.policies[preemptor.queue]
        lower = victim.priority < preemptor.priority
        newer = victim.priority == preemptor.priority and preemptor.created < victim.created
        own = victim.queue == preemptor.queue
        if reason == "InClusterQueue":
            allowed = {"LowerPriority": lower, "LowerOrNewerEqualPriority": lower or newer}.get(policy.within, False)
        else:
            allowed = {"LowerPriority": lower, "Any": True}.get(policy.reclaim, False)
        if reason == "InCohortReclaimWhileBorrowing":
            threshold = policy.threshold
            allowed = allowed and policy.borrow == "LowerPriority" and lower and not self.fair
            allowed = allowed and (threshold is None or victim.priority <= threshold)
        if own != (reason == "InClusterQueue") or (reason == "InCohortFairSharing" and not self.fair) or not allowed:
            return f"{preemptor} preempts {victim} under {policy}"
        if not own and not moment.tree.borrows(victim.queue, usage):
            return f"{victim} is within the quota of its queue: {usage}, {moment.limits}"
        return ""

    def _needed(self, preemption: Preemption) -> None:
        """With its victims gone the preemptor fits, and without any one of them it does not."""
        batch, all_of_them = self._batch(preemption)
        coming = self._coming(preemption)
        seen = "the preemptor did not wait there"
        for preemptor in self._preemptors(preemption):
            for earlier in self._lately(preemption.index):
                moment = self.moments[earlier]
                # Its admission may have been decided, and written only after that of others who came later.
                seen_then = {preemption.victim.uid: preemption.victim, **moment.holding}
                for others in (seen_then, {**coming, **seen_then}):
                    for borrow in (False, True):
                        seen = self._superfluous(
                            preemption, preemptor, moment, others, batch, all_of_them, borrow=borrow
                        )
                        if not seen:
                            return
        self._doubtful(preemption.index, f"{preemption}: {seen}")

    def _superfluous(
        self,
        preemption: Preemption,
        preemptor: Claim,
        moment: Moment,
        others: Mapping[str, Claim],
        batch: set[str],
        all_of_them: set[str],
        *,
        borrow: bool,
    ) -> str:
        def fits_without(gone: set[str]) -> bool:
            usage = total({uid: claim for uid, claim in others.items() if uid not in gone})
            return moment.tree.fits(preemptor.queue, preemptor.cpus, usage, borrow=borrow)

        going = set(moment.going)
        if not self._cut_short(preemption) and not fits_without(going | batch | all_of_them):
            return f"{preemptor} would not fit though all its victims went: {moment.usage}, {moment.limits}"
        own = (
            set()
            if self.fair
            else {u for u, claim in moment.going.items() if f"UID: {preemptor.uid}," in claim.evicted}
        )
        if fits_without((own | batch) - {preemption.victim.uid}):
            return f"{preemptor} would have fitted without: {moment.usage}, {moment.limits}, gone {own | batch}"
        return ""

    def _cut_short(self, preemption: Preemption) -> bool:
        """Whether not all evictions of a decision may have been written: its leader died, or there was room after
        all."""
        here = self.moments[preemption.index]
        around = (*self._lately(preemption.index, seconds=UNSEEN), *self._soon(preemption.index))
        return any(
            self.moments[index].leader != here.leader or preemption.preemptor in self.moments[index].holding
            for index in around
        )

    def _batch(self, preemption: Preemption) -> tuple[set[str], set[str]]:
        """Victims of the same decision, and all victims of the same preemptor about that time."""
        mine = [each for each in self.preemptions if each.preemptor == preemption.preemptor]
        at = {each.index: self.moments[each.index].event.at for each in mine}
        position = mine.index(preemption)
        batch = {preemption.victim.uid}
        for step in (-1, 1):
            here = position
            while 0 <= here + step < len(mine):
                if abs(at[mine[here + step].index] - at[mine[here].index]) > TOGETHER:
                    break
                here += step
                batch.add(mine[here].victim.uid)
        close = {each.victim.uid for each in mine if abs(at[each.index] - at[preemption.index]) <= LAG}
        return batch, close

    # --- beneficiaries --------------------------------------------------------------------------------------------

    def _beneficiary(self, preemption: Preemption) -> None:
        """The preemptor gets quota in the queue that preempted for it, or the history shows why it could not."""
        why = self._outcome(preemption)
        if why in _GOOD:
            self.verdict.figures[why] += 1
        else:
            self._doubtful(preemption.index, f"{preemption} has no beneficiary: {why}")

    def _outcome(self, preemption: Preemption) -> str:
        uid = preemption.preemptor
        decided = self._decided(preemption)
        waited = self._preemptors(preemption)
        if decided is None and self._cut_short(preemption):
            decided = preemption.index
        if decided is None or not waited:
            return "its preemptor never fitted beside the others"
        terms = waited[0].terms
        leaving = self._leaving(preemption)
        passed = False
        for index in range(decided + 1, len(self.moments)):
            before, moment = self.moments[index - 1], self.moments[index]
            preemptor = moment.waiting.get(uid)
            if uid in moment.holding:
                if index <= preemption.index and moment.event.at < self.moments[preemption.index].event.at - 1.0:
                    return "its preemptor had quota already"
                there = moment.holding[uid].queue == preemption.queue
                return "served" if there else "its preemptor got quota elsewhere"
            if preemptor is None or preemptor.terms != terms:
                if index < preemption.index and self._waits(preemption, index):
                    continue  # not there yet: what was seen of others was a little older
                return "withdrawn"
            passed = passed or self._passed(index, preemptor, before, moment, preemption)
            had_room = self._has_room(before, preemptor, {v for v, until in leaving.items() if index - 1 < until})
            if not had_room or self._has_room(moment, preemptor, {v for v, until in leaving.items() if index < until}):
                continue
            if moment.limits is not before.limits:
                return "quota cut"
            why = self._taken(index, preemptor, before, moment, preemption)
            return "outranked" if passed and why not in _GOOD else why
        return "its preemptor still waits at the end"

    def _decided(self, preemption: Preemption) -> int | None:
        """The latest moment at which the preemptor waited and would have fitted with all victims gone."""
        _, victims = self._batch(preemption)
        for preemptor in self._preemptors(preemption):
            for earlier in self._lately(preemption.index):
                moment = self.moments[earlier]
                going = set(moment.going) | victims
                usage = total({uid: claim for uid, claim in moment.holding.items() if uid not in going})
                if moment.tree.fits(preemptor.queue, preemptor.cpus, usage):
                    return earlier
        return None

    def _waits(self, preemption: Preemption, index: int) -> bool:
        """Whether the preemptor waits at some moment from that one until its victim is evicted."""
        return any(preemption.preemptor in self.moments[i].waiting for i in range(index + 1, preemption.index + 1))

    def _leaving(self, preemption: Preemption) -> dict[str, int]:
        """Victims of the same preemptor about that time, and until which moment their evictions were being written."""
        _, victims = self._batch(preemption)
        mine = (each for each in self.preemptions if each.preemptor == preemption.preemptor)
        return {each.victim.uid: each.index for each in mine if each.victim.uid in victims}

    @staticmethod
    def _has_room(moment: Moment, preemptor: Claim, leaving: set[str]) -> bool:
        """Whether it fits, or will once all that are on their way out are gone."""
        going = leaving.union(moment.going)
        usage = total({uid: claim for uid, claim in moment.holding.items() if uid not in going})
        return moment.tree.fits(preemptor.queue, preemptor.cpus, usage)

    def _passed(self, index: int, preemptor: Claim, before: Moment, moment: Moment, preemption: Preemption) -> bool:
        """Whether the room that its own victims left, or will, went to somebody who comes first. That others are on
        their way out for reasons of their own is no room for it yet: nobody keeps that for a preemptor."""
        if moment.holding is before.holding or moment.limits is not before.limits:
            return False

        if not self._fits_without_victims(preemptor, before) or self._fits_without_victims(preemptor, moment):
            return False
        return self._taken(index, preemptor, before, moment, preemption) == "outranked"

    @staticmethod
    def _fits_without_victims(preemptor: Claim, moment: Moment) -> bool:
        """Whether it fits once those are gone that are on their way out for it."""
        mine = f"UID: {preemptor.uid},"
        usage = total({uid: claim for uid, claim in moment.holding.items() if mine not in claim.evicted})
        return moment.tree.fits(preemptor.queue, preemptor.cpus, usage)

    def _taken(self, index: int, preemptor: Claim, before: Moment, moment: Moment, preemption: Preemption) -> str:
        """Who took the room: it must come before the preemptor, or the preemptor was not looked at."""
        came = [claim for uid, claim in moment.holding.items() if uid not in before.holding]
        if not came:
            return f"room was lost by {moment.event.kind} {moment.event.obj['metadata']['name']}"
        (other,) = came
        if moment.leader == self.moments[preemption.index].leader and other.uid in self._victims_of(preemption, index):
            return f"its victim {other} was let in again before {preemptor}: {moment.usage}, {moment.limits}"
        written = moment.event.at - self.moments[preemption.index].event.at < UNSEEN
        ahead = _place(other) <= _place(preemptor) or self._was_sticky(other, preemption)
        if other.queue == preemptor.queue and written and ahead:
            return "outranked"  # let in before, and written a little later
        for earlier in (index, *self._lately(index)):
            state = self.moments[earlier]
            waiting = state.waiting.get(preemptor.uid)
            if waiting is not None and other.queue in state.tree and self._comes_first(other, waiting, state):
                return "outranked"
        for earlier in (index, *self._lately(index)):
            if self._hidden(preemptor, self.moments[earlier], preemption):
                return "not at the head"
        return f"{other} took its room though {preemptor} comes first: {moment.usage}, {moment.limits}"

    def _was_sticky(self, other: Claim, preemption: Preemption) -> bool:
        """Whether another one of its queue had had others preempted before, so that it stood at the head."""
        leader = self.moments[preemption.index].leader
        return any(
            each.preemptor == other.uid
            and each.queue == preemption.queue
            and each.index < preemption.index
            and self.moments[each.index].leader == leader
            for each in self.preemptions
        )

    def _victims_of(self, preemption: Preemption, index: int) -> set[str]:
        """Whom its preemptor had had preempted by then."""
        mine = (each for each in self.preemptions if each.preemptor == preemption.preemptor)
        return {each.victim.uid for each in mine if each.index < index}

    def _comes_first(self, other: Claim, preemptor: Claim, moment: Moment) -> bool:
        """The order in which heads are taken: who borrows least, then priority, then age."""
        tree = moment.tree
        usage = total({uid: claim for uid, claim in moment.holding.items() if uid != other.uid})
        if other.queue == preemptor.queue:
            return False  # whoever had others preempted stays at the head of its queue
        if not self.fair:

            def rank(claim: Claim) -> tuple[int, int, float]:
                return tree.level(claim.queue, claim.cpus, usage), -claim.priority, claim.created

            return rank(other) <= rank(preemptor)

        def standing(node: str, claim: Claim) -> tuple[bool, tuple[bool, Fraction], int, float]:
            with_it = {**usage, claim.queue: usage.get(claim.queue, 0) + claim.cpus}
            return tree.borrows(node, with_it), tree.share(node, with_it), -claim.priority, claim.created

        theirs, mine = tree.below(other.queue, preemptor.queue)
        return standing(theirs, other) <= standing(mine, preemptor)

    def _hidden(self, preemptor: Claim, moment: Moment, preemption: Preemption) -> bool:
        """Whether somebody else stood at the head of its queue: a preemptor stays there only for one leader, and until
        another of its queue preempts."""
        since = self.moments[preemption.index]
        ahead = any(
            other.queue == preemptor.queue and other.uid != preemptor.uid and _place(other) <= _place(preemptor)
            for other in moment.waiting.values()
        )
        replaced = any(
            each.queue == preemptor.queue and each.preemptor != preemptor.uid and each.index > preemption.index
            for each in self.preemptions
        )
        return (ahead and moment.leader != since.leader) or replaced

    def _no_repetition(self) -> None:
        """Nobody is evicted again for the same preemptor unless something happened that could have mattered."""
        last: dict[tuple[str, str], Preemption] = {}
        for preemption in self.preemptions:
            pair = preemption.preemptor, preemption.victim.uid
            earlier, last[pair] = last.get(pair), preemption
            if earlier is None:
                continue
            pause = self.moments[preemption.index].event.at - self.moments[earlier.index].event.at
            if pause > AT_ONCE and self._outcome(earlier) != "served":
                continue  # somebody who comes first had the room for a while
            between = range(earlier.index + 1, preemption.index + 1)
            if not any(self._matters(index, preemption) or self._outranked(index, preemption) for index in between):
                self._doubtful(preemption.index, f"{preemption} again, after #{earlier.index}")

    def _outranked(self, index: int, preemption: Preemption) -> bool:
        """Whether somebody who was never stopped for the preemptor, and comes first, took its room just then. Victims
        of its own queue do not count: they stand behind it, and come when it has been given up."""
        before, moment = self.moments[index - 1], self.moments[index]
        preemptor = moment.waiting.get(preemption.preemptor)
        came = [claim for uid, claim in moment.holding.items() if uid not in before.holding]
        if preemptor is None or not came:
            return False
        victims = {each.victim.uid for each in self.preemptions if each.preemptor == preemptor.uid}
        (other,) = came
        if other.uid in victims or not self._comes_first(other, preemptor, moment):
            return False
        mine = f"UID: {preemptor.uid},"
        staying = {
            uid: claim
            for uid, claim in moment.holding.items()
            if mine not in claim.evicted and not (uid in victims and claim.queue == preemptor.queue)
        }
        without = total({uid: claim for uid, claim in staying.items() if uid != other.uid})
        fits = moment.tree.fits
        return fits(preemptor.queue, preemptor.cpus, without) and not fits(
            preemptor.queue, preemptor.cpus, total(staying)
        )

    def _matters(self, index: int, preemption: Preemption) -> bool:
        before, moment, uid = self.moments[index - 1], self.moments[index], preemption.preemptor
        if before.limits is not moment.limits or before.leader != moment.leader or uid in moment.holding:
            return True
        old, new = before.waiting.get(uid), moment.waiting.get(uid)
        return (old.terms if old else None) != (new.terms if new else None)


_GOOD = ("served", "withdrawn", "quota cut", "outranked", "not at the head")


def _place(claim: Claim) -> tuple[int, float]:
    """Place in the line of one queue, but for ties."""
    return -claim.priority, claim.created


def _newly_preempted(event: Event) -> bool:
    """Whether the Workload was evicted for another one just then."""
    return (
        is_true(event.new, "Evicted")
        and condition(event.obj, "Evicted")["reason"] == "Preempted"
        and not (is_true(event.old, "Evicted") and _evicted_reason(event.old) == "Preempted")
    )


def _evicted_reason(workload: Json | None) -> str:
    return str(condition(workload, "Evicted")["reason"]) if workload is not None else ""


class _Pods:
    """Pods that run, by Job.

    The Job controller makes pods from what it last saw of a Job. If that is stopped right after its start, pods may
    come that its status never tells of, and go at once: nobody who looks at Jobs can know of them.
    """

    def __init__(self) -> None:
        self._running: dict[str, dict[str, float]] = {}
        self._made: dict[str, float] = {}
        self._stopped: dict[str, float] = {}

    def job(self, event: Event) -> None:
        """Note when it was stopped."""
        if event.old is not None and event.new is not None and runs(event.old) and not runs(event.new):
            self._stopped[event.new["metadata"]["uid"]] = event.at

    def pod(self, event: Event) -> None:
        """Note whether it runs, and since when it is there."""
        meta = event.obj["metadata"]
        made = self._made.setdefault(meta["uid"], event.at)
        for owner in meta.get("ownerReferences", ()):
            there = self._running.setdefault(owner["uid"], {})
            if event.new is not None and event.new.get("status", {}).get("phase") == "Running":
                there[meta["name"]] = made
            else:
                there.pop(meta["name"], None)

    def of(self, job: str) -> list[str]:
        """Those of a Job that its status had time to tell of."""
        stopped = self._stopped.get(job, float("inf"))
        return [name for name, made in self._running.get(job, {}).items() if made < stopped - UNCOUNTED]
