"""Jobs and their Workloads as plain objects, changed by actions under the API server's rules that matter here.

A pure function is tested by applying what it returns and asking again. The rules: a stale resourceVersion is refused,
`status` changes only through its subresource, a finalizer delays deletion, and the scheduling directives of a Job
change only while it is suspended, has no start time and no active pod.
"""

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonpatch

from turnstile.api.conditions import timestamp
from turnstile.api.core import Job, Namespace, Pod, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.patch import apply_merge_patch, merge_patch
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import frameworks, jobreconciler
from turnstile.controllers.runtime.actions import Create, Delete, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.workloads import unused
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import answers
from turnstile.kube.store import Store

Body = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TEMPLATE: Body = {
    "metadata": {"labels": {"app": "train"}},
    "spec": {
        "containers": [{"name": "c", "image": "trainer:1", "resources": {"requests": {"cpu": "1"}}}],
        "restartPolicy": "Never",
    },
}
JOB = "batch/job:team/train"
POD = "pod:team/train"
KINDS = (Job, Pod, Workload, Namespace, ResourceFlavor, PriorityClass, WorkloadPriorityClass)


class Refused(AssertionError):
    """The API server would refuse the write."""


class Cluster:
    """What is there, what was written, and what was told."""

    def __init__(self, *, options: JobOptions | None = None, registry: Registry | None = None) -> None:
        self.now = NOW
        self.job_controller = True
        """Whether the Job controller sees at once that a Job is suspended or resumed."""
        self.first_generation = 1
        """The generation of a new object: a recording of a client without a server begins at 0."""
        self.fails = False
        """Whether nothing can be decided about a job."""
        self.writes: list[str] = []
        self.read_again = 0
        """Objects that were read for a write that needs whole templates."""
        self.events: list[tuple[str, str]] = []
        self._bodies: dict[tuple[type[Kind], str], Body] = {}
        self._version = 0
        registry = registry or Registry()
        jobs_stores: dict[type[Kind], Store[Any]] = {each.kind: Store() for each in registry.followed}
        stores: dict[type[Kind], Store[Any]] = {**{kind: Store() for kind in KINDS}, **jobs_stores}
        self._stores = stores
        jobreconciler.index_jobs(stores[Workload], registry, jobs_stores)
        charges.index_pods(stores[Pod])
        self.world = ClusterView(
            clock=lambda: self.now,
            options=options or JobOptions(),
            registry=registry,
            workloads=stores[Workload],
            cluster_queues=Store(),
            local_queues=Store(),
            cohorts=Store(),
            flavors=stores[ResourceFlavor],
            admission_checks=Store(),
            topologies=Store(),
            namespaces=stores[Namespace],
            limit_ranges=Store(),
            runtime_classes=Store(),
            priority_classes=stores[PriorityClass],
            workload_priority_classes=stores[WorkloadPriorityClass],
            jobs=jobs_stores,
            pods=stores[Pod],
        )
        charges.follow_ends(self.world)
        unused.follow_idle(self.world)
        self.world.ends.begin(NOW - timedelta(hours=1))
        self.put(Namespace, {"metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}}})

    # --- what others do -----------------------------------------------------------------------------------------------

    def put(self, kind: type[Kind], body: Body) -> None:
        """Store an object; uid, resourceVersion and generation as the server gives them."""
        body = copy.deepcopy(body)
        meta = body.setdefault("metadata", {})
        self._version += 1
        old = self._bodies.get((kind, self._key(body)), {})
        before = old.get("metadata", {}).get("generation", self.first_generation - 1)
        meta["generation"] = before + (old.get("spec") != body.get("spec"))
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("uid", f"uid-{self._version}")
        if kind is Job and self.job_controller:
            _acknowledge(body, timestamp(self.now))
        key = self._key(body)
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self._bodies[kind, key]
            self._stores[kind].delete(key)
            return
        self._bodies[kind, key] = body
        self._stores[kind].observe(answers.decoder(kind)(json.dumps(body).encode()))

    @staticmethod
    def _key(body: Body) -> str:
        meta = body["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])

    def get(self, kind: type[Kind], key: str) -> Body | None:
        """An object as it is now."""
        body = self._bodies.get((kind, key))
        return copy.deepcopy(body) if body is not None else None

    def patch(self, kind: type[Kind], key: str, patch: Body) -> None:
        """Somebody else's change, to any part of an object."""
        body = self.get(kind, key)
        assert body is not None
        self.put(kind, apply_merge_patch(body, patch))

    def delete(self, kind: type[Kind], key: str, *, grace_seconds: int | None = None) -> None:
        """Somebody asks for deletion; the grace period of a pod that is terminating is only shortened."""
        body = self.get(kind, key)
        if body is None:
            return
        meta = body["metadata"]
        stated = (
            body.get("spec", {}).get("terminationGracePeriodSeconds", 30) if grace_seconds is None else grace_seconds
        )
        grace = stated if kind is Pod and body["spec"].get("nodeName") else 0
        if "deletionTimestamp" not in meta or grace < meta.get("deletionGracePeriodSeconds", 0):
            end = self.now + timedelta(seconds=grace)
            meta |= {"deletionTimestamp": timestamp(end), "deletionGracePeriodSeconds": grace}
        self.put(kind, body)

    def job(self, *, name: str = "train", suspend: bool = True, labels: Body | None = None, **spec: Any) -> None:
        """A Job in queue `main` unless its labels say otherwise."""
        labels = {"kueue.x-k8s.io/queue-name": "main"} if labels is None else labels
        annotations = spec.pop("annotations", {})
        template = spec.pop("template", TEMPLATE)
        metadata = {"name": name, "namespace": "team", "labels": labels, "annotations": annotations}
        body = {"metadata": metadata, "spec": {"suspend": suspend, "parallelism": 1, "template": template, **spec}}
        self.put(Job, body)

    def pod(self, *, gates: tuple[str, ...] = ("kueue.x-k8s.io/admission",), **metadata: Any) -> None:
        """A Pod as the webhook leaves it."""
        labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true", **metadata.pop("labels", {})}
        meta = {"name": "train", "namespace": "team", "labels": labels, "finalizers": ["kueue.x-k8s.io/managed"]}
        spec = {**TEMPLATE["spec"], "schedulingGates": [{"name": gate} for gate in gates]}
        self.put(Pod, {"metadata": {**meta, **metadata}, "spec": spec, "status": {"phase": "Pending"}})

    def flavor(self, name: str = "default", **spec: Any) -> None:
        """A ResourceFlavor."""
        self.put(ResourceFlavor, {"metadata": {"name": name}, "spec": spec})

    @property
    def workloads(self) -> list[Body]:
        """All Workloads, by key."""
        keys = sorted(key for kind, key in self._bodies if kind is Workload)
        return [copy.deepcopy(self._bodies[Workload, key]) for key in keys]

    @property
    def workload(self) -> Body:
        """The one Workload."""
        (only,) = self.workloads
        return only

    @property
    def workload_key(self) -> str:
        """Its key."""
        meta = self.workload["metadata"]
        return f"{meta['namespace']}/{meta['name']}"

    def condition(self, kind: str) -> tuple[str, str, str] | None:
        """Status, reason and message of a condition of the one Workload."""
        for each in self.workload.get("status", {}).get("conditions", []):
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return None

    def set_condition(self, kind: str, *, status: str = "True", reason: str = "ByTest", message: str = "") -> None:
        """What the scheduler or the Workload's reconciler writes."""
        others = [c for c in self.workload.get("status", {}).get("conditions", []) if c["type"] != kind]
        entry = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-02T03:04:00Z",
        }
        self.patch(Workload, self.workload_key, {"status": {"conditions": [*others, entry]}})

    def admit(self, *, flavor: str = "default", count: int | None = None) -> None:
        """The scheduler's write: quota reserved, admitted, back from any eviction."""
        pod_set = self.workload["spec"]["podSets"][0]
        assignment = {"name": pod_set["name"], "flavors": {"cpu": flavor}, "count": count or pod_set["count"]}
        self.patch(
            Workload,
            self.workload_key,
            {"status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}}},
        )
        for kind in ("QuotaReserved", "Admitted"):
            self.set_condition(kind)
        if self.condition("Evicted") is not None:
            self.set_condition("Evicted", status="False")

    def evict(self, reason: str = "Preempted", message: str = "Preempted to make room") -> None:
        """The preemptor's write."""
        self.set_condition("Evicted", reason=reason, message=message)

    def run_pods(self) -> None:
        """The Job controller starts the pods of an unsuspended Job."""
        self.patch(Job, "team/train", {"status": {"active": 1, "startTime": "2026-01-02T03:04:00Z"}})

    def later(self, **delta: float) -> None:
        """Time passes."""
        self.now += timedelta(**delta)

    # --- what is decided ----------------------------------------------------------------------------------------------

    def decide(self, key: str = JOB) -> ReconcileResult:
        """One look, nothing done. Raises what deciding has raised, unless a test expects that."""
        decision = frameworks.decide(key, self.world)
        if decision.failure is not None and not self.fails:
            raise decision.failure
        return decision

    def step(self, key: str = JOB, *, only: int | None = None) -> ReconcileResult:
        """One look, and its actions carried out; the first `only` of them if given, as when a process dies."""
        decision = self.decide(key)
        for action in decision.actions[:only]:
            self.act(action)
        return decision

    def settle(self, key: str = JOB, *, limit: int = 12) -> None:
        """Look again until there is nothing to write."""
        for _ in range(limit):
            if not any(isinstance(action, Create | Patch | Delete) for action in self.step(key).actions):
                return
        raise AssertionError(f"still writing after {limit} looks: {self.writes[-limit:]}")

    def act(self, action: object) -> None:
        """Carry out one action."""
        match action:
            case Emit():
                self.events.append((action.reason, action.note))
            case RequeueAfter():
                pass
            case Create():
                self.writes.append(f"create {action.kind.KIND}")
                if self.get(action.kind, f"{action.namespace}/{action.name}") is not None:
                    raise Refused(f"{action.name} is there already")
                self.put(action.kind, self._content(action))
            case Delete():
                self.writes.append(f"delete {action.kind.KIND}")
                self.delete(action.kind, f"{action.namespace}/{action.name}", grace_seconds=action.grace_seconds)
            case Patch():
                self.writes.append(f"patch {action.kind.KIND} {action.subresource}".rstrip())
                self._patch(action)

    def _content(self, action: Create | Patch) -> Any:
        if action.whole is None:
            return json.loads(action.body)
        seen = action.whole.seen
        stored = self.get(type(seen), seen.metadata.key)
        self.read_again += 1
        return json.loads(action.whole.body(answers.decoder(type(seen), whole=True)(json.dumps(stored).encode())))

    def _patch(self, action: Patch) -> None:
        key = f"{action.namespace}/{action.name}"
        body, old = self._content(action), self.get(action.kind, key)
        if old is None:
            return
        if action.type == "json":
            wanted = next((each["value"] for each in body if each["path"] == "/metadata/resourceVersion"), None)
            rest = [each for each in body if each["path"] != "/metadata/resourceVersion"]
            body = merge_patch(old, jsonpatch.apply_patch(old, rest))
        else:
            wanted = body.get("metadata", {}).pop("resourceVersion", None)
        if wanted is not None and wanted != old["metadata"]["resourceVersion"]:
            raise Refused(f"stale: {action}")
        if action.type == "strategic":
            known = old.get("status", {}).get("conditions", [])
            added = body["status"]["conditions"]
            types = {c["type"] for c in added}
            body["status"]["conditions"] = [*(c for c in known if c["type"] not in types), *added]
        new = apply_merge_patch(old, body)
        if action.subresource == "status":
            new = {**old, "status": new.get("status", {})}
        elif new.get("status") != old.get("status"):
            raise Refused(f"status changes through its subresource only: {action}")
        if new == old:
            raise Refused(f"nothing changes: {action}")
        if action.kind is Job and action.subresource == "":
            _check_job(old, new)
        self.put(action.kind, new)


def _acknowledge(job: Body, now: str) -> None:
    """The Job controller says whether it has suspended a Job, once no pod of it is active."""
    status = job.get("status") or {}
    suspended = bool(job["spec"].get("suspend"))
    told = next((each for each in status.get("conditions") or () if each["type"] == "Suspended"), None)
    if told is None and not suspended:
        return
    wanted = "True" if suspended and not status.get("active") else "False" if not suspended else ""
    if wanted and (told is None or told["status"] != wanted):
        others = [each for each in status.get("conditions") or () if each["type"] != "Suspended"]
        said = {"type": "Suspended", "status": wanted, "lastTransitionTime": now}
        job["status"] = {**status, "conditions": [*others, said]}


def _check_job(old: Body, new: Body) -> None:
    """batch/v1 validation of updates, the strictest of all versions."""
    status = old.get("status", {})
    mutable = old["spec"].get("suspend") and not status.get("startTime") and not status.get("active")
    if not mutable and new["spec"]["template"] != old["spec"]["template"]:
        raise Refused("spec.template: field is immutable")
