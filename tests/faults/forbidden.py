"""States that may not last: each with its deadline, looked for in everything that a namespace holds.

A rule names the objects that are in such a state now. `Deadlines` counts for how long each of them has been in it
without interruption, by a clock that stands still while Turnstile or the API server is away. Must never ask Turnstile.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from testbed.client import Json, condition
from tests.faults.moments import is_true
from tests.faults.overshoot import asked, has_ended, held, holds, limits_of, pod_cpus
from tests.model.quota import Tree

LABEL: Final = "kueue.x-k8s.io/queue-name"
GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
TOTAL_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
OWNER_KIND: Final = "kueue.x-k8s.io/job-owner-gvk"
ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
RETENTION_SECONDS: Final = 3.0
"""Of the soak's configuration."""


@dataclass
class World:
    """All objects at one moment, by kind."""

    objects: Mapping[str, list[Json]]
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.workloads = self.objects["workloads"]
        self.pods = self.objects["pods"]
        self.suspendable = [*self.objects["jobs"], *self.objects["jobsets"]]
        self.by_uid = {each["metadata"]["uid"]: each for kind in self.objects.values() for each in kind}
        self.workloads_of: dict[str, list[Json]] = {}
        for workload in self.workloads:
            for owner in workload["metadata"].get("ownerReferences", ()):
                self.workloads_of.setdefault(owner["uid"], []).append(workload)
        self.local_queues = {key_of(each): each for each in self.objects["localqueues"]}
        self.cluster_queues = {each["metadata"]["name"]: each for each in self.objects["clusterqueues"]}
        self.pods_of_jobs: dict[str, list[Json]] = {}
        for pod in self.pods:
            for uid in self._above(pod):
                self.pods_of_jobs.setdefault(uid, []).append(pod)

    def _above(self, obj: Json) -> set[str]:
        """Uids of an object and of all that own it."""
        found: set[str] = set()
        left = [obj["metadata"]["uid"]]
        while left:
            uid = left.pop()
            if uid not in found:
                found.add(uid)
                owned = self.by_uid.get(uid, {"metadata": {}})["metadata"]
                left += [owner["uid"] for owner in owned.get("ownerReferences", ())]
        return found

    def jobs(self) -> Iterator[tuple[Json, Json | None]]:
        """Jobs with a queue that are suspended and resumed, each with its Workload."""
        for job in self.suspendable:
            if LABEL in job["metadata"].get("labels", {}) and "deletionTimestamp" not in job["metadata"]:
                found = self.workloads_of.get(job["metadata"]["uid"], [])
                yield job, found[0] if found else None

    def running_for(self, workload: Json) -> list[Json]:
        """The pods on nodes of the jobs or pods that own a Workload."""
        owners = [owner["uid"] for owner in workload["metadata"].get("ownerReferences", ())]
        pods = (pod for uid in owners for pod in self.pods_of_jobs.get(uid, ()))
        named = (
            pod
            for pod in self.pods
            if pod["metadata"]["namespace"] == workload["metadata"]["namespace"]
            and pod["metadata"].get("annotations", {}).get("kueue.x-k8s.io/workload") == workload["metadata"]["name"]
        )
        return [pod for pod in (*pods, *named) if pod_cpus(pod)]

    def workloads_for(self, pod: Json) -> list[Json]:
        """The Workloads of a pod: that of its group, its own, or that of the StatefulSet that made it."""
        meta = pod["metadata"]
        name = meta.get("annotations", {}).get(GROUP_NAME, "") or meta.get("labels", {}).get(GROUP_NAME, "")
        named = [each for each in self.workloads if name and key_of(each) == f"{meta['namespace']}/{name}"]
        owners = [owner["uid"] for owner in meta.get("ownerReferences", ()) if owner["kind"] == "StatefulSet"]
        return named or [each for uid in (meta["uid"], *owners) for each in self.workloads_of.get(uid, ())]

    def is_kept(self, pod: Json) -> bool:
        """Whether a deleted pod runs still, or stands for one that has to replace it in its group."""
        waits = (is_true(each, "WaitingForReplacementPods") for each in self.workloads_for(pod))
        return bool(pod_cpus(pod)) or any(waits)

    def ownerless(self) -> Iterator[Json]:
        """The Workloads without an owner that exists and without a pod that runs."""
        for workload in self.workloads:
            owners = [owner["uid"] for owner in workload["metadata"].get("ownerReferences", ())]
            if owners and not any(uid in self.by_uid for uid in owners) and not self.running_for(workload):
                yield workload

    def left_by_owners(self, workload: Json) -> list[Json]:
        """The Jobs that can make pods still and have an owner of a Workload: the garbage collector deletes them."""
        owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences", ())}
        return [
            each
            for each in self.objects["jobs"]
            if not finished(each) and owners & {owner["uid"] for owner in each["metadata"].get("ownerReferences", ())}
        ]

    def left_behind(self, pod: Json) -> bool:
        """Whether the controller of a pod is gone."""
        owners = [owner for owner in pod["metadata"].get("ownerReferences", ()) if owner.get("controller")]
        return any(owner["uid"] not in self.by_uid for owner in owners)

    def may_run(self, workload: Json) -> bool:
        """Whether pods of a Workload run, or may still be made by Jobs that an owner left behind."""
        orphan = any(each is workload for each in self.ownerless())
        return bool(self.running_for(workload)) or (orphan and bool(self.left_by_owners(workload)))

    def queue_of(self, workload: Json) -> str:
        """The ClusterQueue where a Workload may be admitted; empty if its queues are stopped or missing."""
        name = f"{workload['metadata']['namespace']}/{workload['spec'].get('queueName', '')}"
        local = self.local_queues.get(name)
        if local is None or local["spec"].get("stopPolicy", "None") != "None":
            return ""
        queue = self.cluster_queues.get(local["spec"]["clusterQueue"])
        if queue is None or queue["spec"].get("stopPolicy", "None") != "None":
            return ""
        found: str = queue["metadata"]["name"]
        return found

    def old(self, text: str | None, *, seconds: float = 0.0) -> bool:
        """Whether that time was so long ago."""
        return bool(text) and (self.now - datetime.fromisoformat(str(text))).total_seconds() > seconds


def key_of(obj: Json) -> str:
    """`namespace/name`."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def finished(job: Json) -> bool:
    """Whether a Job or a JobSet has ended."""
    return any(is_true(job, kind) for kind in ("Complete", "Failed", "Completed"))


def runs(job: Json) -> bool:
    """Whether a Job or a JobSet is not suspended and has not ended."""
    return not job["spec"].get("suspend") and not finished(job)


def is_active(workload: Json) -> bool:
    """Whether a Workload may be admitted, as far as users say."""
    return bool(workload["spec"].get("active", True)) and "deletionTimestamp" not in workload["metadata"]


def _may_run(workload: Json) -> bool:
    """Whether nothing asks a Workload to stop, and it has not ended."""
    return is_active(workload) and not is_true(workload, "Evicted") and not is_true(workload, "Finished")


Found = Iterator[tuple[Json, str]]
"""Objects in a state, and what is to be known of each."""


def admitted_but_suspended(world: World) -> Found:
    """A Workload is admitted, and its job is suspended."""
    for job, workload in world.jobs():
        if workload and job["spec"].get("suspend") and _may_run(workload) and is_true(workload, "Admitted"):
            yield job, state_of(workload)


def running_without_admission(world: World) -> Found:
    """A job runs, and its Workload is not admitted or not there."""
    for job, workload in world.jobs():
        if runs(job) and (workload is None or not is_true(workload, "Admitted") or is_true(workload, "Evicted")):
            yield job, state_of(workload)


def without_workload(world: World) -> Found:
    """A job waits in a queue without a Workload."""
    for job, workload in world.jobs():
        if workload is None and not finished(job):
            yield job, "no Workload"


def evicted_with_quota(world: World) -> Found:
    """A Workload is evicted and has quota, though its pods are gone and nothing can make others."""
    for workload in world.workloads:
        if holds(workload) and is_true(workload, "Evicted") and not world.may_run(workload):
            yield workload, state_of(workload)


def inactive_with_quota(world: World) -> Found:
    """A deactivated Workload has quota, though its pods are gone and nothing can make others."""
    for workload in world.workloads:
        if holds(workload) and not workload["spec"].get("active", True) and not world.may_run(workload):
            yield workload, state_of(workload)


def waits_beside_free_quota(world: World) -> Found:
    """A Workload waits, and its ClusterQueue could take it."""
    limits = {
        each["metadata"]["name"]: limits_of(each, queue=kind == "clusterqueues")
        for kind in ("clusterqueues", "cohorts")
        for each in world.objects[kind]
    }
    tree = Tree(limits)
    usage: dict[str, int] = {}
    for workload in world.workloads:
        if holds(workload):
            queue, amount = held(workload)
            usage[queue] = usage.get(queue, 0) + amount
    for workload in world.workloads:
        if holds(workload) or is_true(workload, "Finished") or not is_active(workload):
            continue
        back_off = workload.get("status", {}).get("requeueState", {}).get("requeueAt")
        if (back_off and not world.old(back_off)) or is_true(workload, "WaitingForReplacementPods"):
            continue  # it waits for a time, or for its user
        if condition(workload, "QuotaReserved").get("reason") == "OnHold":
            continue  # it was scaled to nothing
        queue = world.queue_of(workload)
        if queue and tree.fits(queue, asked(workload), usage):
            yield workload, f"asks for {asked(workload)} in {queue} beside {usage}: {state_of(workload)}"


def not_requeued(world: World) -> Found:
    """The time of a Workload's back-off is over, and it is not requeued."""
    for workload in world.workloads:
        requeued = condition(workload, "Requeued")
        at = workload.get("status", {}).get("requeueState", {}).get("requeueAt")
        waits = requeued.get("status") == "False" and is_active(workload) and not is_true(workload, "Finished")
        if waits and world.old(at) and world.queue_of(workload):
            yield workload, state_of(workload)


def not_admitted_though_ready(world: World) -> Found:
    """All checks of a Workload with quota are ready, and it is not admitted."""
    for workload in world.workloads:
        states = [each["state"] for each in workload.get("status", {}).get("admissionChecks", ())]
        waits = holds(workload) and _may_run(workload) and not is_true(workload, "Admitted")
        if waits and all(state == "Ready" for state in states):
            yield workload, state_of(workload)


def rejected_and_kept(world: World) -> Found:
    """A check wants a Workload evicted, and it has quota."""
    for workload in world.workloads:
        states = {each["state"] for each in workload.get("status", {}).get("admissionChecks", ())}
        if holds(workload) and states & {"Retry", "Rejected"} and not world.running_for(workload):
            yield workload, state_of(workload)


def gated_though_admitted(world: World) -> Found:
    """A pod is held, though the Workload that it or its group belongs to is admitted."""
    for pod in world.pods:
        if ADMISSION_GATE not in {each["name"] for each in pod["spec"].get("schedulingGates", ())}:
            continue
        if "deletionTimestamp" in pod["metadata"]:
            continue
        for workload in world.workloads_for(pod):
            if is_true(workload, "Admitted") and _may_run(workload):
                yield pod, state_of(workload)


def gated_without_workload(world: World) -> Found:
    """A pod is held and has no Workload, though it is alone or its group is complete. What made it is there: else the
    garbage collector is waited for, see `not_collected`."""
    groups: dict[str, int] = {}
    for pod in world.pods:
        meta = pod["metadata"]
        if "deletionTimestamp" not in meta and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            group = f"{meta['namespace']}/{meta.get('labels', {}).get(GROUP_NAME, '')}"
            groups[group] = groups.get(group, 0) + 1
    for pod in world.pods:
        meta = pod["metadata"]
        if ADMISSION_GATE not in {each["name"] for each in pod["spec"].get("schedulingGates", ())}:
            continue
        if "deletionTimestamp" in meta or world.workloads_for(pod) or world.left_behind(pod):
            continue
        name = meta.get("labels", {}).get(GROUP_NAME, "")
        total = int(meta.get("annotations", {}).get(TOTAL_COUNT, "1"))
        if not name or groups.get(f"{meta['namespace']}/{name}", 0) == total:
            yield pod, "no Workload"


def not_let_go(world: World) -> Found:
    """An object is deleted, no pod of it runs or may be made, and a finalizer of ours keeps it."""
    for kind in ("workloads", "pods", "jobs", "jobsets", "localqueues", "clusterqueues"):
        for obj in world.objects[kind]:
            meta = obj["metadata"]
            ours = [each for each in meta.get("finalizers", ()) if "kueue" in each]
            kept = world.may_run(obj) if kind == "workloads" else kind == "pods" and world.is_kept(obj)
            if "deletionTimestamp" in meta and ours and not kept:
                yield obj, f"finalizers {ours}"


def finished_and_kept(world: World) -> Found:
    """A Workload is finished for longer than the retention policy keeps it."""
    for workload in world.workloads:
        ended = condition(workload, "Finished")
        if ended.get("status") == "True" and world.old(ended["lastTransitionTime"], seconds=RETENTION_SECONDS):
            yield workload, state_of(workload)


def deactivated_and_kept(world: World) -> Found:
    """A job that Turnstile has deactivated is kept for longer than the retention policy says. Without any job, the
    garbage collector is waited for: `orphaned`."""
    orphans = {each["metadata"]["uid"] for each in world.ownerless()}
    for workload in world.workloads:
        evicted = condition(workload, "Evicted")
        deactivated = evicted.get("reason", "").startswith("DeactivatedDueTo") and evicted["status"] == "True"
        if not workload["metadata"].get("annotations", {}).get(OWNER_KIND, "Kind=Pod").endswith("Kind=Pod"):
            continue  # the pods of a set stay, as it would create them again
        over = deactivated and world.old(evicted["lastTransitionTime"], seconds=RETENTION_SECONDS)
        inactive = not workload["spec"].get("active", True)
        if over and inactive and workload["metadata"]["uid"] not in orphans and not world.running_for(workload):
            yield workload, state_of(workload)


def not_finished(world: World) -> Found:
    """A job has ended, and its Workload is not finished."""
    for job, workload in world.jobs():
        if finished(job) and workload and not is_true(workload, "Finished"):
            yield job, state_of(workload)


def orphaned(world: World) -> Found:
    """No owner of a Workload exists any more, nor what an owner made, and Turnstile has not let the Workload go."""
    for workload in world.ownerless():
        ours = [each for each in workload["metadata"].get("finalizers", ()) if "kueue" in each]
        if (ours or not is_true(workload, "Finished")) and not world.left_by_owners(workload):
            yield workload, state_of(workload)


def not_collected(world: World) -> Found:
    """The garbage collector has not begun to delete what owners that are gone have left: a Workload, Jobs, a pod that
    may run."""
    for workload in world.ownerless():
        if "deletionTimestamp" not in workload["metadata"] or world.left_by_owners(workload):
            yield workload, state_of(workload)
    for pod in world.pods:
        if not has_ended(pod) and "deletionTimestamp" not in pod["metadata"] and world.left_behind(pod):
            yield pod, "its controller is gone"


def no_default_queue(world: World) -> Found:
    """A namespace has no LocalQueue `default`."""
    for namespace in world.objects["namespaces"]:
        if f"{namespace['metadata']['name']}/default" not in world.local_queues:
            yield namespace, "no LocalQueue default"


def state_of(workload: Json | None) -> str:
    """A Workload for people."""
    if workload is None:
        return "no Workload"
    status = workload.get("status", {})
    conditions = {
        each["type"]: f"{each['status']} {each['reason']} {each['lastTransitionTime']}"
        for each in status.get("conditions", ())
    }
    rest = {key: value for key, value in status.items() if key in ("requeueState", "admissionChecks")}
    return f"{workload['metadata']['name']}, active {workload['spec'].get('active', True)}, {conditions} {rest}"


Rule = Callable[[World], Found]

RULES: Final[Mapping[Rule, float]] = {
    admitted_but_suspended: 30.0,
    running_without_admission: 30.0,
    without_workload: 30.0,
    evicted_with_quota: 45.0,
    inactive_with_quota: 45.0,
    waits_beside_free_quota: 40.0,
    not_requeued: 30.0,
    not_admitted_though_ready: 30.0,
    rejected_and_kept: 30.0,
    gated_though_admitted: 30.0,
    gated_without_workload: 30.0,
    not_let_go: 45.0,
    finished_and_kept: 30.0,
    deactivated_and_kept: 40.0,
    not_finished: 30.0,
    orphaned: 40.0,
    not_collected: 120.0,
    no_default_queue: 30.0,
}
"""For how many seconds each state may last. The garbage collector looks for kinds that are gone every 30 s, and took
up to 38 s for what was owned by an object of such a kind. The controller of a stopped job is waited for 35 s."""


@dataclass
class Deadlines:
    """For how long each object has been in a forbidden state; `longest` is kept for each rule."""

    wrong: list[str] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)
    standing: dict[tuple[str, str], float] = field(default_factory=dict)

    def look(self, world: World, seconds: float) -> None:
        """See who is in which state; so many seconds have gone since the look before."""
        standing: dict[tuple[str, str], float] = {}
        for rule, deadline in RULES.items():
            name = rule.__name__
            for obj, told in rule(world):
                meta = obj["metadata"]
                key = (name, meta["uid"])
                before = self.standing.get(key)
                lasted = 0.0 if before is None else before + seconds
                standing[key] = lasted
                self.longest[name] = max(self.longest.get(name, 0.0), lasted)
                if lasted > deadline >= lasted - seconds:
                    who = f"{meta.get('namespace', '')}/{meta['name']}"
                    self.wrong.append(f"{name} for {lasted:.0f} s: {obj.get('kind', '')} {who}: {told}")
        self.standing = standing
