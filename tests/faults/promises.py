"""What must hold of every history: no overshoot, nobody evicted in vain, evictions in order.

What is written is judged against the objects, revision by revision; what was decided, against what the leader that
decided it knew (`evidence`). So nothing here depends on how long anything took. Each check gives back what is wrong in
sentences, none if all is well. Must never ask Turnstile's own code.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.client import Json, condition
from tests.faults.evidence import Look
from tests.faults.fates import Preemption
from tests.faults.moments import Moment, finished, is_true, pod_cpus, runs, total
from tests.faults.preemptions import Preemptions
from tests.faults.recording import Event

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


@dataclass
class Verdict:
    """What is wrong with a history, and what was seen in it."""

    wrong: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)


class Judge:
    """Judges one history: its moments, and the cycles of its leaders. `fair`: whether ClusterQueues shared by weight,
    and not by the classical rules."""

    def __init__(self, moments: list[Moment], looks: list[Look], *, fair: bool) -> None:
        self.moments = moments
        self.looks = looks
        events = (moment.event for moment in moments if moment.event.kind == "workloads")
        deleted = {event.obj["metadata"]["uid"] for event in events if event.new is None}
        waiting = moments[-1].waiting if moments else None
        self.preemptions = Preemptions(looks, fair=fair, deleted=deleted, waiting=waiting)
        self.verdict = Verdict()

    def judge(self) -> Verdict:
        """All promises."""
        self._order_of_evictions()
        self._pods_are_charged()
        for index, moment in enumerate(self.moments):
            before = self.moments[index - 1] if index else moment
            self._starts(index, before, moment)
            self._preempted(index, before, moment)
        for preemption in self.preemptions.all:
            if sentence := self.preemptions.fault(preemption):
                self.verdict.wrong.append(f"{self._told(preemption)}: {sentence}")
            elif preemption.written:
                what, good = self.preemptions.outcome(preemption)
                self.verdict.figures[what] += good
                if not good:
                    self.verdict.wrong.append(f"{self._told(preemption)} has no beneficiary: {what}")
        return self.verdict

    def _wrong(self, index: int, sentence: str) -> None:
        moment = self.moments[index]
        self.verdict.wrong.append(f"#{index} revision {moment.event.revision}: {sentence}")

    def _told(self, preemption: Preemption) -> str:
        """Where to read on, and what was decided."""
        newest = self.looks[preemption.look].newest
        index = next((i for i, moment in enumerate(self.moments) if moment.event.revision >= newest), 0)
        return f"#{index} {preemption}"

    # --- never over quota -----------------------------------------------------------------------------------------

    def _starts(self, index: int, before: Moment, moment: Moment) -> None:
        """Who gets quota must fit beside all that have some at that revision; who runs must have quota for it."""
        if before.holding is not moment.holding:
            for uid, claim in moment.holding.items():
                if uid in before.holding:
                    continue
                self.verdict.figures["got quota"] += 1
                wrong, since = self.preemptions.land(uid, claim.queue, moment.event.revision)
                if wrong:
                    self._wrong(index, f"{claim.name} gets quota in {claim.queue}: {wrong}")
                trees, others = [moment.tree], dict(before.holding)
                if since and moment.leader.startswith(f"{since[0].leader}_"):
                    # Quota may be cut while it is written, and those let in after it may be written first: it counted
                    # for them. What a late leader decided is not written any more.
                    trees += [look.tree for look in since]
                    others = {u: c for u, c in others.items() if self.preemptions.decided_before(u, uid)}
                usage = total(others)
                if not any(tree.fits(claim.queue, claim.cpus, usage) for tree in trees if claim.queue in tree):
                    limits = moment.limits
                    self._wrong(index, f"{claim.name} gets {claim.cpus} in {claim.queue} beside {usage}: {limits}")
        if before.running is not moment.running:
            held = {claim.job: claim.cpus for claim in moment.holding.values()}
            for uid, claim in moment.running.items():
                self.verdict.figures["started"] += uid not in before.running
                if claim.cpus > held.get(uid, 0) and uid not in before.running:
                    self._wrong(index, f"{claim.name} runs {claim.cpus} with quota for {held.get(uid, 0)}")

    def _pods_are_charged(self) -> None:
        """The pods that a Job ever created request no more than its Workload holds, at any revision.

        Counted pod by pod: neither the status of the Job nor a label of the pod is believed, and a pod that was
        orphaned still counts for its Job. Who gets quota must fit, so pods never run beyond the quota either.
        """
        jobs: dict[str, str] = {}
        running: dict[str, dict[str, int]] = {}
        over: set[str] = set()
        before: Moment | None = None
        for index, moment in enumerate(self.moments):
            event, changed = moment.event, before is None or before.holding is not moment.holding
            before = moment
            if event.kind == "pods":
                meta = event.obj["metadata"]
                controllers = [owner["uid"] for owner in meta.get("ownerReferences", ()) if owner.get("controller")]
                job = jobs.setdefault(meta["uid"], controllers[0] if controllers else "")
                cpus = pod_cpus(event.new) if event.new is not None else 0
                there = running.setdefault(job, {})
                self.verdict.figures["pods ran"] += bool(cpus) and meta["uid"] not in there
                there.pop(meta["uid"], None)
                if cpus:
                    there[meta["uid"]] = cpus
            elif not changed:
                continue
            held: Counter[str] = Counter()
            for claim in moment.holding.values():
                held[claim.job] += claim.cpus
            beyond = {job for job, pods in running.items() if sum(pods.values()) > held[job]}
            for job in beyond - over:
                self._wrong(index, f"pods of Job {job} run {sum(running[job].values())} with quota for {held[job]}")
            over = beyond

    # --- the order of things --------------------------------------------------------------------------------------

    def _order_of_evictions(self) -> None:
        """Evicted and Preempted in one write; Job suspended or being deleted; pods gone; only then quota back, and in
        line again. The Job controller makes no pods for a Job that is being deleted."""
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
        makes_pods = job is not None and runs(job) and not job["metadata"].get("deletionTimestamp")
        if makes_pods:
            self._wrong(index, f"{name} gives quota back while its Job runs")
        elif job is not None and not finished(job) and (there := pods.of(owners[0]["uid"])):
            self._wrong(index, f"{name} gives quota back while its pods are there: {there}")
        if is_true(workload, "Evicted") and condition(workload, "Evicted")["reason"] == "Preempted":
            self.verdict.figures["requeued"] += 1
            over = is_true(workload, "Finished")  # its Job is gone: the eviction ends with the Workload
            if not over and condition(workload, "Requeued").get("status") != "True":
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
        decision = self.preemptions.write(uid, found["uid"], said["reason"], event.revision)
        if decision is None:
            self._wrong(index, f"nobody decided to preempt {victim.name} for {found['uid']}")
            return
        tree = self.looks[decision.look].tree
        paths = tree.path(decision.decided.queue), tree.path(victim.queue)
        if paths != (found["preemptor"], found["preemptee"]):
            self._wrong(index, f"the paths were {paths}: {said['message']}")
        self.verdict.figures[said["reason"]] += 1


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
