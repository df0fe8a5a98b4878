"""Replays recorded looks of Kueue's workload reconciler: the world as the recording built it, one decision, its writes.

Compared are the Workload as it is afterwards (or that it is gone), the events, and when it is to be looked at again.
"""

import copy
from datetime import datetime
from typing import Any

import orjson

from tests.conformance import devices, world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.workload_calls import bare, gates_of, merged
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Namespace, Pod, PriorityClass, RuntimeClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.charging.charges import index_pods
from turnstile.controllers.runtime.actions import Delete, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.view.clusterview import ClusterView, index_stores
from turnstile.controllers.workloads.workload import decide
from turnstile.engine.options import DeviceMapping, Options
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.jobs.options import JobOptions, PodsReadyOptions
from turnstile.jobs.registry import Registry
from turnstile.kube.store import Store

Json = Any
_STORES: dict[str, tuple[str, type[Kind]]] = {
    kind.KIND: (name, kind)
    for name, kind in (
        ("workloads", Workload),
        ("cluster_queues", ClusterQueue),
        ("local_queues", LocalQueue),
        ("cohorts", Cohort),
        ("flavors", ResourceFlavor),
        ("admission_checks", AdmissionCheck),
        ("topologies", Topology),
        ("namespaces", Namespace),
        ("limit_ranges", LimitRange),
        ("runtime_classes", RuntimeClass),
        ("priority_classes", PriorityClass),
        ("workload_priority_classes", WorkloadPriorityClass),
    )
}


class Objects:
    """What is in the API at a time of the recording."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Json] = {}
        self.engine = Options()
        """How quota is counted."""

    def put(self, item: Json) -> None:
        """An object is created or changed."""
        self._found[item.get("kind", ""), world.key_of(item)] = item

    def drop(self, item: Json) -> None:
        """An object is deleted; one with finalizers stays for now."""
        key = item.get("kind", ""), world.key_of(item)
        old = self._found.get(key)
        if old is not None and (old.get("metadata") or {}).get("finalizers"):
            self._found[key] = merged(old, {"metadata": {"deletionTimestamp": world.NOW}})
        else:
            self._found.pop(key, None)

    def replace(self, key: str, workload: Json) -> None:
        """Put a Workload in the place of what is there; None takes it away."""
        self._found.pop(("Workload", key), None)
        if workload is not None:
            self.put(workload)

    def get(self, kind: str, key: str) -> Json:
        """An object, None if it is not there."""
        return self._found.get((kind, key))

    def all(self) -> list[tuple[tuple[str, str], Json]]:
        """All objects, by kind and key."""
        return sorted(self._found.items())

    def shown(self, item: Json) -> Json:
        """An object as reconcilers see it."""
        return _inactive(item) if item.get("kind") == "ClusterQueue" else item

    def seen(self, options: JobOptions, now: datetime) -> ClusterView:
        """The same as reconcilers see it."""
        stores: dict[str, Store[Any]] = {name: Store() for name, _ in _STORES.values()}
        for number, ((kind, _), item) in enumerate(sorted(self._found.items()), 1):
            if kind in _STORES:
                name, struct = _STORES[kind]
                obj = world.load(struct, self.shown(item))
                obj.metadata.resource_version = obj.metadata.resource_version or str(number)
                stores[name].observe(obj)
        pods: Store[Pod] = Store()
        index_pods(pods)
        made = ClusterView(clock=lambda: now, options=options, registry=Registry(), jobs={}, pods=pods, **stores)
        made.counting = Surroundings(self.engine)
        for (_, _), item in self.all():
            devices.put(made.counting.devices, item)
        index_stores(made.workloads, made.local_queues, made.cluster_queues, made.flavors)
        return made


def _inactive(item: Json) -> Json:
    """A ClusterQueue of which nobody has said yet whether it is active: for Kueue it is not. Turnstile goes by its spec
    until then, so that a Workload made together with its queue is not written to twice."""
    status = item.get("status") or {}
    if any(each["type"] == "Active" for each in status.get("conditions") or ()):
        return item
    said = world.condition("Active", "False")
    return item | {"status": status | {"conditions": [*(status.get("conditions") or ()), said]}}


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every look at a Workload in the recording. Where it was recorded with merge patches too, that run is ours."""
    gates = run.get("gates") or {}
    merging = {**gates, "WorkloadRequestUseMergePatch": True}
    if gates != merging and any(other.get("gates") == merging for other in case.body["runs"]):
        return None
    objects = Objects()
    objects.engine = _engine(case, run)
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        match step["op"]:
            case "client.build":
                for item in args.get("objects") or ():
                    objects.put(item)
            case "client.create" | "client.update" | "client.status.update":
                objects.put(args["object"])
            case "client.delete":
                objects.drop(args["object"])
            case "controller/core.WorkloadReconciler.Reconcile":
                results = step.get("results") or [{}]
                if any(isinstance(result, dict) and "$error" in result for result in results) and not _missing(results):
                    continue
                name = args["req"]["NamespacedName"]
                key = f"{name['Namespace']}/{name['Name']}"
                now = datetime.fromisoformat(world.NOW)
                options = _options(case, run)
                theirs = copy.deepcopy(objects)
                decision = decide(key, objects.seen(options, now))
                _carry_out(decision, objects, key)
                compared = True
                last = _settle(copy.deepcopy(objects), key, options, now)
                found += _requeued(results[0] or {}, decision, last) + _told(run, decision)
                theirs.replace(key, _want(run, key))
                if _differences(theirs, objects, key):
                    for each in (theirs, objects):
                        _settle(each, key, options, now)
                    found += _differences(theirs, objects, key)
    return found if compared else None


def _missing(results: list[Json]) -> bool:
    """Whether a look failed because a claim template does not exist, which Kueue looks for again and again."""
    return any("not found" in str((result or {}).get("message")) for result in results)


def _options(case: Case, run: dict[str, Json]) -> JobOptions:
    chosen: dict[str, Json] = {}
    for option in (case.body.get("case") or {}).get("reconcilerOpts") or ():
        chosen |= option.get("sets") or {}
    waiting = chosen.get("waitForPodsReady") or {}
    limits = PodsReadyOptions(
        timeout=world.seconds(waiting.get("timeout", "0s")),
        recovery_timeout=world.seconds(waiting["recoveryTimeout"]) if "recoveryTimeout" in waiting else None,
        backoff_base=waiting.get("requeuingBackoffBaseSeconds", 0),
        backoff_max=world.seconds(waiting.get("requeuingBackoffMaxDuration", "0s")),
        backoff_limit=waiting.get("requeuingBackoffLimitCount"),
    )
    gates = gates_of(case, run)
    kept = (chosen.get("workloadRetention") or {}).get("afterFinished")
    return JobOptions(
        pods_ready=limits if waiting else None,
        granular_reasons=gates.get("UnadmittedWorkloadsObservability", True),
        explicit_status=gates.get("UnadmittedWorkloadsExplicitStatus", False),
        keep_finished=world.seconds(kept) if kept is not None else None,
    )


def _engine(case: Case, run: dict[str, Json]) -> Options:
    """How devices count: a mapper is recorded by the classes that it knows."""
    known: dict[str, str] = {}
    for option in (case.body.get("case") or {}).get("reconcilerOpts") or ():
        known |= ((option.get("sets") or {}).get("draMapper") or {}).get("deviceClassToResource") or {}
    mapped = tuple(DeviceMapping(resource=resource, classes=(name,)) for name, resource in known.items())
    return Options(gates=world.gates(gates_of(case, run)), device_mappings=mapped)


def _carry_out(decision: ReconcileResult, objects: Objects, key: str) -> None:
    for action in decision.actions:
        if isinstance(action, Patch) and action.kind is Workload:
            body = orjson.loads(action.body)
            (body.get("metadata") or {}).pop("resourceVersion", None)
            after = merged(objects.get("Workload", key), body)
            objects.put(after)
            meta = after["metadata"]
            if meta.get("deletionTimestamp") and not meta.get("finalizers"):
                objects.drop(after)
        elif isinstance(action, Delete) and action.kind is Workload:
            objects.drop(objects.get("Workload", key))


def _settle(objects: Objects, key: str, options: JobOptions, now: datetime) -> ReconcileResult:
    """Look until nothing is written: what is one write here may be several looks there, and the other way round.
    Returns the last decision."""
    for _ in range(6):
        decision = decide(key, objects.seen(options, now))
        if not any(isinstance(action, Patch) for action in decision.actions):
            break
        _carry_out(decision, objects, key)
    return decision


def _want(run: dict[str, Json], key: str) -> Json:
    """The Workload after the recorded look; None if it is gone."""
    if f"Workload/{key}" in {str(item) for item in run.get("deletedObjects") or ()}:
        return None
    built = (
        item
        for step in run["trace"]
        if step["op"] == "client.build"
        for item in (step.get("args") or {}).get("objects") or ()
    )
    for item in (*(run.get("finalObjects") or ()), *built):
        if item.get("kind") == "Workload" and world.key_of(item) == key:
            return item
    return None


def _differences(theirs: Objects, ours: Objects, key: str) -> list[str]:
    """Compared by what decisions change: whether it is there, finalizers, `active` and the status."""
    want, have = theirs.get("Workload", key), ours.get("Workload", key)
    if want is None or have is None:
        return differs("gone", want is None, have is None)
    return [
        *differs("finalizers", want["metadata"].get("finalizers") or [], have["metadata"].get("finalizers") or []),
        *differs("active", want["spec"].get("active", True), have["spec"].get("active", True)),
        *differs("status", bare(want.get("status")), bare(have.get("status"))),
    ]


def _told(run: dict[str, Json], decision: ReconcileResult) -> list[str]:
    want = sorted((event["reason"], event["message"]) for event in run.get("recordedEvents") or ())
    have = sorted((action.reason, action.note) for action in decision.actions if isinstance(action, Emit))
    return differs("events", want, have)


def _requeued(result: Json, decision: ReconcileResult, last: ReconcileResult) -> list[str]:
    """When the Workload is looked at again. Here each write is followed by a look of its own, which may be the one that
    asks for it; Kueue goes on in the same look."""
    want = world.seconds(result.get("RequeueAfter", "0s"))
    wrote = any(isinstance(action, Patch) for action in decision.actions)
    have = _again(decision) or (_again(last) if want and wrote else 0.0)
    return differs("again in", want, have)


def _again(decision: ReconcileResult) -> float:
    return next((action.seconds for action in decision.actions if isinstance(action, RequeueAfter)), 0.0)
