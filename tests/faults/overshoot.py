"""Counts the pods that run against what is reserved, and what is reserved against the quota, change by change.

A pod says by a label that the test gave it which ClusterQueue it is for; nothing is read that Turnstile writes to it.
Only a Job whose owner is gone has a Workload of its own, in the namespace's default queue: its pods count for that.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from testbed.client import Json
from tests.faults.following import GAP, Change
from tests.faults.moments import is_true
from tests.model.quota import Limits, Tree

FOR_QUEUE: Final = "soak.turnstile.dev/cluster-queue"
"""Label of each pod: the ClusterQueue of its job."""
DECIDED_SECONDS = 10.0
"""For so long a quota that was cut counts for what was decided before the leader knew of the cut."""
SURPLUS_SECONDS = 60.0
"""For so long after a watch broke a pod does not count that its Job has beyond its parallelism. An API server that dies
when it has stored a pod, and before it answers, is asked by the Job controller for another pod, once it is back; the
controller deletes the surplus pod when it has heard of both, which took up to 37 s."""
RECENT: Final = 5000
"""Changes that are kept to show what led to an overshoot."""
_SHOWN: Final = ("suspend", "active", "nodeName", "podReplacementPolicy", "phase", "terminating", "ready")
"""Fields of spec and status that are shown of each change."""


def pod_cpus(pod: Json) -> int:
    """Whole cpus that a pod uses: once it is bound to a node, until its containers have ended."""
    return requests(pod["spec"]) if pod["spec"].get("nodeName") and not has_ended(pod) else 0


def has_ended(pod: Json) -> bool:
    """Whether the containers of a pod have ended."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def requests(spec: Json) -> int:
    """Whole cpus that a pod requests; 1 by the LimitRange of its namespace if it says nothing."""
    return sum(int(each.get("resources", {}).get("requests", {}).get("cpu", 1)) for each in spec["containers"])


def holds(workload: Json) -> bool:
    """Whether a Workload counts against the quota."""
    return is_true(workload, "QuotaReserved") and not is_true(workload, "Finished")


def held(workload: Json) -> tuple[str, int]:
    """The ClusterQueue in which a Workload holds quota, and how much."""
    status = workload["status"]
    ended = {each["name"]: each["count"] for each in status.get("reclaimablePods", ())}
    left = {each["name"]: each["count"] - ended.get(each["name"], 0) for each in workload["spec"]["podSets"]}
    amount = 0
    for each in status["admission"]["podSetAssignments"]:
        count, usage = each.get("count", 1), int(each.get("resourceUsage", {}).get("cpu", 0))
        amount += usage // count * max(0, min(count, left[each["name"]])) if count else 0
    return status["admission"]["clusterQueue"], amount


def asked(workload: Json) -> int:
    """What a Workload that waits asks for."""
    return sum(each["count"] * requests(each["template"]["spec"]) for each in workload["spec"]["podSets"])


def limits_of(obj: Json, *, queue: bool) -> Limits:
    """Quota of a ClusterQueue or a Cohort, in whole cpus."""
    groups = obj["spec"].get("resourceGroups") or ()
    quota = groups[0]["flavors"][0]["resources"][0] if groups else {"nominalQuota": 0}
    return Limits(
        int(quota["nominalQuota"]),
        borrowing=int(quota["borrowingLimit"]) if "borrowingLimit" in quota else None,
        parent=obj["spec"].get("cohortName" if queue else "parentName"),
        queue=queue,
    )


def brief(obj: Json | None) -> str:
    """What matters of a version of an object: a few fields, its conditions, and when it is deleted."""
    if obj is None:
        return "gone"
    meta, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status", {})
    shown = [f"{part}.{key}={fields[key]}" for part, fields in (("spec", spec), ("status", status)) for key in _SHOWN
             if key in fields]  # fmt: skip
    shown += [f"{each['type']}={each['status']}/{each.get('reason', '')}" for each in status.get("conditions", ())]
    if deleted := meta.get("deletionTimestamp"):
        shown.append(f"deleted {deleted}")
    return " ".join(shown)


@dataclass
class Overshoot:
    """What is wrong, if anything; `peak` is the largest number of cpus that pods used at a time."""

    wrong: list[str] = field(default_factory=list)
    peak: int = 0
    reservations: int = 0
    _pods: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    """UIDs of the pods whose containers have ended. No kubelet runs these again, but kwok, which plays the node, may
    set a pod from Failed to Running for some milliseconds when the pod is deleted while kwok starts it."""
    _held: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    _owned: dict[str, str] = field(default_factory=dict)
    """The ClusterQueue in which a Workload of its own holds quota for a Job that an operator made, by the Job's uid."""
    _made: set[str] = field(default_factory=set)
    """UIDs of the Jobs that have an owner."""
    _limits: dict[str, Limits] = field(default_factory=dict)
    _trees: deque[tuple[float, Tree]] = field(default_factory=deque)
    _over: set[str] = field(default_factory=set)
    _jobs: dict[str, int] = field(default_factory=dict)
    """Parallelism of the Jobs, by uid."""
    _of_job: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of each pod of a Job the uid of the Job, and the revision at which the pod was first seen."""
    _broken: float = -SURPLUS_SECONDS
    """When a watch was last found broken."""
    _unknown_until: int = 0
    """The revision of the last list after a watch that ended: until then nothing is judged."""
    _recent: deque[Change] = field(default_factory=lambda: deque(maxlen=RECENT))

    def follow(self, changes: Iterable[Change]) -> None:
        """Judge these changes, one after the other."""
        for change in changes:
            self._recent.append(change)
            if change.kind == GAP:
                self._unknown_until = max(self._unknown_until, change.until)
                self._broken = change.at
            match change.kind:
                case "jobs" if change.obj is not None:
                    self._jobs[change.uid] = change.obj["spec"].get("parallelism", 1)
                    if change.obj["metadata"].get("ownerReferences"):
                        self._made.add(change.uid)
                case "pods":
                    self._pod(change)
                case "workloads":
                    self._workload(change)
                case "clusterqueues" | "cohorts":
                    self._quota(change)

    def _quota(self, change: Change) -> None:
        if change.obj is not None:
            name = change.obj["metadata"]["name"]
            limits = limits_of(change.obj, queue=change.kind == "clusterqueues")
            if self._limits.get(name) != limits:
                self._limits = {**self._limits, name: limits}
                self._trees.append((change.at, Tree(self._limits)))

    def _pod(self, change: Change) -> None:
        pod = change.obj
        self._pods.pop(change.uid, None)
        for owner in pod["metadata"].get("ownerReferences", ()) if pod is not None else ():
            if owner["kind"] == "Job":
                self._of_job.setdefault(change.uid, (owner["uid"], change.revision))
        if pod is not None and has_ended(pod):
            self._ended.add(change.uid)
        if (
            pod is not None
            and change.uid not in self._ended
            and FOR_QUEUE in pod["metadata"].get("labels", {})
            and (used := pod_cpus(pod))
        ):
            meta = pod["metadata"]
            self._pods[change.uid] = (meta["labels"][FOR_QUEUE], used, f"{meta['namespace']}/{meta['name']}")
        self.peak = max(self.peak, sum(each[1] for each in self._pods.values()))
        self._compare(change)

    def _workload(self, change: Change) -> None:
        old, workload = self._held.pop(change.uid, None), change.obj
        if workload is not None and holds(workload):
            queue, amount = held(workload)
            meta = workload["metadata"]
            if old is None:
                self.reservations += 1
                self._fits(change, f"{meta['namespace']}/{meta['name']}", queue, amount)
            self._held[change.uid] = (queue, amount, f"{meta['namespace']}/{meta['name']}")
            self._owned |= {each["uid"]: queue for each in meta.get("ownerReferences", ()) if each["uid"] in self._made}
        self._compare(change)

    def _fits(self, change: Change, name: str, queue: str, amount: int) -> None:
        if change.revision <= self._unknown_until:
            return
        while len(self._trees) > 1 and self._trees[1][0] < change.at - DECIDED_SECONDS:
            self._trees.popleft()
        usage = self.usage(self._held)
        if not any(queue in tree and tree.fits(queue, amount, usage) for _, tree in self._trees):
            self.wrong.append(f"revision {change.revision}: {name} gets {amount} in {queue} beside {usage}")

    def _compare(self, change: Change) -> None:
        """Pods of a ClusterQueue never use more than its Workloads hold."""
        if change.revision <= self._unknown_until:
            return
        surplus = self._surplus() if change.at < self._broken + SURPLUS_SECONDS else set()
        counted = {uid: self._claim(uid) for uid in self._pods if uid not in surplus}
        running, reserved = self.usage(counted), self.usage(self._held)
        over = {queue for queue, amount in running.items() if amount > reserved[queue]}
        for queue in over - self._over:
            pods = sorted(name for of, _, name in map(self._claim, self._pods) if of == queue)
            workloads = sorted(f"{name}={amount}" for of, amount, name in self._held.values() if of == queue)
            self.wrong.append(
                f"revision {change.revision}: pods use {running[queue]} of {queue}, Workloads hold {reserved[queue]}:"
                f" {pods} {workloads}; after a change of {change.kind} {change.uid}"
            )
        self._over = over

    def _claim(self, pod: str) -> tuple[str, int, str]:
        """The ClusterQueue that a pod counts for, its cpus, and its name."""
        queue, used, name = self._pods[pod]
        job, _ = self._of_job.get(pod, ("", 0))
        return self._owned.get(job, queue), used, name

    def _surplus(self) -> set[str]:
        """The newest pods of each Job that has more pods than its parallelism says."""
        found: set[str] = set()
        counts: Counter[str] = Counter()
        for uid, (job, _) in sorted(self._of_job.items(), key=lambda each: each[1][1]):
            if uid in self._pods:
                counts[job] += 1
                if counts[job] > self._jobs.get(job, counts[job]):
                    found.add(uid)
        return found

    def story(self) -> list[str]:
        """The recent changes of the pods and Workloads that `wrong` names, and of the jobs that made these pods."""
        told = "\n".join(self.wrong)
        keys: dict[str, str] = {}
        found: list[str] = []
        for change in self._recent:
            if change.obj is not None:
                meta = change.obj["metadata"]
                owner = next(iter(meta.get("ownerReferences", ())), meta) if change.kind == "workloads" else meta
                keys[change.uid] = f"{meta.get('namespace', '')}/{owner['name']}"
            key = keys.get(change.uid)
            if key is not None and any(f"{key}{end}" in told for end in ("'", "=", "-")):
                found.append(f"{change.revision} {change.at:.2f} {change.kind} {key}: {brief(change.obj)}")
        return found

    @staticmethod
    def usage(claims: dict[str, tuple[str, int, str]]) -> Counter[str]:
        """What is used, by ClusterQueue."""
        total: Counter[str] = Counter()
        for queue, amount, _ in claims.values():
            total[queue] += amount
        return total
