"""A recorded history as moments: at each, the quota there was, who waited for it, who held it, and which Jobs ran.

Sizes are counted from pod sets and from Jobs. Of what Turnstile writes only conditions, the queue of an admission and
what it takes back are believed. Must never judge; see `promises`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property

from testbed.client import Json, condition
from tests.faults.recording import Event
from tests.model.quota import Limits, Tree
from tests.model.rules import Policy

QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True)
class Claim:
    """One Workload, waiting or with quota: where, how much and who may pass it. `cpus` counts pods yet to end."""

    uid: str
    name: str
    job: str
    queue: str
    cpus: int
    priority: int
    created: float
    evicted: str = ""
    """Why it has to go, if it has."""

    @property
    def terms(self) -> tuple[str, int, int]:
        """What a decision about it was made for."""
        return self.queue, self.cpus, self.priority


@dataclass(frozen=True)
class Moment:
    """How things stood after one event."""

    event: Event
    limits: Mapping[str, Limits]
    policies: Mapping[str, Policy]
    waiting: Mapping[str, Claim]
    """By uid: may be admitted, and is not."""
    holding: Mapping[str, Claim]
    """By uid: has quota reserved."""
    running: Mapping[str, Claim]
    """By uid of the Job: unsuspended and unfinished."""
    leader: str

    @cached_property
    def tree(self) -> Tree:
        """The quota there was."""
        return Tree(self.limits)

    @cached_property
    def usage(self) -> dict[str, int]:
        """What is reserved, by ClusterQueue."""
        return total(self.holding)

    @property
    def going(self) -> dict[str, Claim]:
        """Who holds quota and has to give it back."""
        return {uid: claim for uid, claim in self.holding.items() if claim.evicted}


def total(claims: Mapping[str, Claim]) -> dict[str, int]:
    """What they use, by ClusterQueue."""
    usage: dict[str, int] = {}
    for claim in claims.values():
        usage[claim.queue] = usage.get(claim.queue, 0) + claim.cpus
    return usage


def is_true(obj: Json | None, kind: str) -> bool:
    """Whether the object is there and has that condition."""
    return obj is not None and condition(obj, kind).get("status") == "True"


def finished(job: Json) -> bool:
    """Whether the Job is complete or failed."""
    return is_true(job, "Complete") or is_true(job, "Failed")


def runs(job: Json) -> bool:
    """Whether the Job counts: unsuspended and unfinished."""
    return not job["spec"].get("suspend") and not finished(job)


def pod_cpus(pod: Json) -> int:
    """Whole cpus of a pod of a history while it runs: once it is bound to a node, until its containers have ended."""
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return _pod_cpus(pod) if pod["spec"].get("nodeName") and not ended else 0


def job_cpus(job: Json) -> int:
    """Whole cpus of the pods that a Job of a history still has or makes at a time."""
    spec = job["spec"]
    left = max(0, int(spec["completions"]) - int(job.get("status", {}).get("succeeded", 0)))
    return _pod_cpus(spec["template"]) * min(int(spec["parallelism"]), left)


def _pod_cpus(template: Json) -> int:
    return sum(int(each["resources"]["requests"]["cpu"]) for each in template["spec"]["containers"])


def workload_cpus(workload: Json) -> int:
    """Whole cpus that a Workload of a history counts for; none for pods that are through, though it was made smaller
    since."""
    reclaimable = {each["name"]: each["count"] for each in workload.get("status", {}).get("reclaimablePods", ())}
    return sum(
        _pod_cpus(pod_set["template"]) * max(0, pod_set["count"] - reclaimable.get(pod_set["name"], 0))
        for pod_set in workload["spec"]["podSets"]
    )


def _limits(obj: Json, *, queue: bool) -> Limits:
    spec = obj["spec"]
    groups = spec.get("resourceGroups") or ()
    quota = groups[0]["flavors"][0]["resources"][0] if groups else {"nominalQuota": 0}
    weight = (spec.get("fairSharing") or {}).get("weight", 1)

    def whole(name: str) -> int | None:
        return int(quota[name]) if name in quota else None

    return Limits(
        int(quota["nominalQuota"]),
        borrowing=whole("borrowingLimit"),
        lending=whole("lendingLimit"),
        parent=spec.get("cohortName" if queue else "parentName"),
        queue=queue,
        weight=Fraction(str(weight)),
    )


def _policy(obj: Json) -> Policy:
    spec = obj["spec"].get("preemption") or {}
    borrow = spec.get("borrowWithinCohort") or {}
    return Policy(
        within=spec.get("withinClusterQueue", "Never"),
        reclaim=spec.get("reclaimWithinCohort", "Never"),
        borrow=borrow.get("policy", "Never"),
        threshold=borrow.get("maxPriorityThreshold"),
    )


@dataclass
class Replay:
    """Turns events into moments, one after the other."""

    limits: dict[str, Limits] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    open_queues: dict[str, str] = field(default_factory=dict)
    """ClusterQueue by LocalQueue, of LocalQueues that are not stopped."""
    stopped: set[str] = field(default_factory=set)
    workloads: dict[str, Json] = field(default_factory=dict)
    running: dict[str, Claim] = field(default_factory=dict)
    waiting: dict[str, Claim] = field(default_factory=dict)
    holding: dict[str, Claim] = field(default_factory=dict)
    cluster_queues: dict[str, str] = field(default_factory=dict)
    """By LocalQueue, also stopped ones."""
    leader: str = ""
    jobs: dict[str, str] = field(default_factory=dict)
    """Uids of Jobs by those of their Workloads, which forget them when the Job is deleted with orphan."""

    def moments(self, history: list[Event]) -> list[Moment]:
        """One for each event."""
        return [self._after(event) for event in history]

    def _after(self, event: Event) -> Moment:
        match event.kind:
            case "workloads":
                self._workload(event.obj["metadata"]["uid"], event.new)
            case "jobs":
                self._job(event)
            case "clusterqueues" | "cohorts":
                self._node(event)
            case "localqueues":
                self._local_queue(event)
            case "leases":
                self.leader = event.obj["spec"].get("holderIdentity") or ""
        return Moment(
            event, self.limits, self.policies, self.waiting, self.holding, self.running, self.leader
        )  # maps are replaced when they change, never changed

    def _node(self, event: Event) -> None:
        name, queue = event.obj["metadata"]["name"], event.kind == "clusterqueues"
        rest = {other: limits for other, limits in self.limits.items() if other != name}
        if event.new is None:
            self.limits = rest
            return
        limits = _limits(event.new, queue=queue)
        if self.limits.get(name) != limits:
            self.limits = {**rest, name: limits}
        if queue:
            self.policies = {**self.policies, name: _policy(event.new)}
            stopped = self.stopped - {name}
            if event.new["spec"].get("stopPolicy", "None") != "None":
                stopped |= {name}
            if stopped != self.stopped:
                self.stopped = stopped
                self._look_again()

    def _local_queue(self, event: Event) -> None:
        name, obj = event.obj["metadata"]["name"], event.new
        before = dict(self.open_queues)
        self.open_queues.pop(name, None)
        if obj is not None:
            self.cluster_queues[name] = obj["spec"]["clusterQueue"]
            if obj["spec"].get("stopPolicy", "None") == "None":
                self.open_queues[name] = obj["spec"]["clusterQueue"]
        if before != self.open_queues:
            self._look_again()

    def _look_again(self) -> None:
        for uid, workload in self.workloads.items():
            self._workload(uid, workload)

    def _workload(self, uid: str, workload: Json | None) -> None:
        waiting = holding = None
        if workload is None:
            self.workloads.pop(uid, None)
        else:
            self.workloads[uid] = workload
            if not is_true(workload, "Finished"):
                if is_true(workload, "QuotaReserved"):
                    holding = self._claim(uid, workload, workload["status"]["admission"]["clusterQueue"])
                elif workload["spec"].get("active", True) and "deletionTimestamp" not in workload["metadata"]:
                    queue = self.open_queues.get(workload["spec"].get("queueName", ""))
                    if queue is not None and queue not in self.stopped:
                        waiting = self._claim(uid, workload, queue)
        self.waiting = _with(self.waiting, uid, waiting)
        self.holding = _with(self.holding, uid, holding)

    def _claim(self, uid: str, workload: Json, queue: str) -> Claim:
        meta = workload["metadata"]
        evicted = condition(workload, "Evicted")
        for owner in meta.get("ownerReferences", ())[:1]:
            self.jobs.setdefault(uid, owner["uid"])
        return Claim(
            uid=uid,
            name=meta["name"],
            job=self.jobs.get(uid, ""),
            queue=queue,
            cpus=workload_cpus(workload),
            priority=workload["spec"].get("priority", 0),
            created=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
            evicted=evicted["message"] if evicted.get("status") == "True" else "",
        )

    def _job(self, event: Event) -> None:
        job, claim = event.new, None
        uid = event.obj["metadata"]["uid"]
        if job is not None and runs(job):
            meta = job["metadata"]
            queue = self.cluster_queues[meta["labels"][QUEUE]]
            claim = Claim(uid=uid, name=meta["name"], job=uid, queue=queue, cpus=job_cpus(job), priority=0, created=0)
        self.running = _with(self.running, uid, claim)


def _with(claims: dict[str, Claim], uid: str, claim: Claim | None) -> dict[str, Claim]:
    if claims.get(uid) == claim:
        return claims
    rest = {other: each for other, each in claims.items() if other != uid}
    return rest if claim is None else {**rest, uid: claim}
