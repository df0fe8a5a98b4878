"""Replays recorded calls of Kueue's controllers of ClusterQueues, LocalQueues, Cohorts, ResourceFlavors and
WorkloadPriorityClasses, and of what Kueue's Workload controller does when a Workload has changed.

The objects of the API are kept as the recording writes them; the ledger gets what the recording gives Kueue's caches.
Compared are the objects afterwards, when they are to be reconciled again, and what the recording then asks the caches.
A call, a field of the table or an option that this module does not know raises NotRead.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from tests.conformance import world
from tests.conformance.cases import Case, NotRead, pass_over
from tests.conformance.engine_tables import differs
from tests.conformance.workload_calls import bare, gates_of, merged
from tests.conformance.workload_reconcile import Objects
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.metrics.labels import MetricOptions
from turnstile.controllers.metrics.queues import QueueMetrics
from turnstile.controllers.metrics.tallies import Tallies
from turnstile.controllers.queues import inuse, statuses
from turnstile.controllers.queues.statuses import CountedShares
from turnstile.controllers.runtime.actions import Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.workloads import workloadpriorityclass
from turnstile.engine import Options, State
from turnstile.engine.questions import Activity, Questions
from turnstile.engine.queue import consumption as usage
from turnstile.jobs.options import JobOptions

Json = Any

_READ = frozenset(
    (
        # inputs, which the recorded calls have as well
        *("flavor", "clusterQueues", "skipStore", "cq", "oldCQ", "newCQ", "old", "new", "wpc", "workloads", "oldWl"),
        *("newWl", "workload", "localQueue", "clusterQueue", "deleteClusterQueue", "afsConfig", "runningWls"),
        *("initialConsumedResources", "pendingEntryPenalty", "cqStatus", "insertCqIntoCache", "insertCqIntoManager"),
        *("newConditionStatus", "newMessage", "newReason", "eventType", "oldRF", "newRF", "oldWPC", "newWPC"),
        "initialEntry",
        # outcomes, which the objects and the answers afterwards have as well
        *("wantFlavor", "wantDeleted", "wantError", "wantWorkloads", "wantPendingOn", "wantFolded", "wantPending"),
        *("wantActive", "wantReason", "wantReserving", "wantLocalQueue", "wantRequeueAfter", "wantConsumedResources"),
        *("wantCqStatus", "clientFuncs", "featureGates", "wantCPUMilli", "wantLastUpdate", "wantStatusAccounted"),
        # outcomes that are read from the table
        *("want", "wantEnqueued", "expectEvent", "wantBool", "wantOld", "wantNew"),
    )
)
"""Fields of the tables that are known."""

_COMPARED = ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Workload", "WorkloadPriorityClass", "Cohort")


class _Everything(Objects):
    """Objects, of which none is changed for the sake of the recording."""

    def shown(self, item: Json) -> Json:
        """As it was recorded."""
        return item


class _Questions(Questions):
    """Answers about ClusterQueues whose Active condition a recording may prescribe."""

    def __init__(self, state: State) -> None:
        super().__init__(state.queues, state.ledger, state.log, state.options)
        self.prescribed: Activity | None = None

    def active_reason(self, cluster_queue: str) -> Activity:
        """As prescribed, else as computed."""
        return self.prescribed or super().active_reason(cluster_queue)


class _Replay:
    """One recorded run."""

    def __init__(self, case: Case, run: dict[str, Json]) -> None:
        self.table: dict[str, Json] = case.body.get("case") or {}
        if strange := set(self.table) - _READ:
            raise NotRead(f"the runner does not know the fields {sorted(strange)}")
        self.trace: list[Json] = list(run.get("trace") or ())
        self.run = run
        self.checks = list(run.get("checks") or ())
        sharing = world.usage_sharing(next((each for each in self._sharing() if each), None))
        chosen = world.gates(gates_of(case, run))
        self.state = State(Options(gates=chosen, admission_fair_sharing=sharing))
        self.state.questions = self.questions = _Questions(self.state)
        self.objects = _Everything()
        self.now = datetime.fromisoformat(world.NOW)
        self.found: list[str] = []
        self.compared = False

    def _sharing(self) -> Iterator[Json]:
        """What was given to the constructors of Kueue for admission fair sharing."""
        for step in self.trace:
            if ".WithAdmissionFairSharing" in step["op"]:
                (value,) = (step.get("args") or {}).values()
                yield value

    @property
    def instant(self) -> float:
        """The time, as the ledger has it."""
        return self.now.timestamp()

    def expect(self, what: str, want: Json, have: Json) -> None:
        """Compare."""
        self.compared = True
        self.found += differs(what, want, have)

    def seen(self) -> ClusterView:
        """The objects as reconcilers see them."""
        return self.objects.seen(JobOptions(), self.now)

    # What happens to objects and caches

    def step(self, op: str, args: Json, results: list[Json]) -> None:
        """Replay a call."""
        package, _, name = op.rpartition("/")
        target, _, method = name.rpartition(".")
        match package, target:
            case "", "client" | "client.status":
                self._client(method, args)
            case "cache", "scheduler.Cache" | "queue.Manager":
                self._cache(f"{target}.{method}", args, results)
            case "cache/queue", "afs.AfsUsageLedger":
                self._usage(method, args, results)
            case "controller", _ if target.startswith("core.") and not method.startswith(("New", "With")):
                self._controller(op, target.removeprefix("core."), method, args, results)
            case "", "clock":
                self.now = datetime.fromisoformat(args["now"])
            case _, "scheduler" | "queue" | "core" | "workload" | "" if method.startswith(("New", "With")):
                if method.startswith("With") and method not in _OPTIONS and not method.startswith("WithAdmissionFair"):
                    raise NotRead(f"the runner does not know the option {op}")
            case _:
                pass_over(op)

    def _client(self, method: str, args: Json) -> None:
        match method:
            case "build":
                for item in args.get("objects") or ():
                    self.objects.put(item)
            case "create" | "update":
                self.objects.put(args["object"])
            case "delete":
                self.objects.drop(args["object"])
            case _:
                raise NotRead(f"the runner does not know client.{method}")

    def _cache(self, name: str, args: Json, results: list[Json]) -> None:
        match name.rpartition(".")[2]:
            case "AddClusterQueue" | "UpdateClusterQueue":
                self._add("ClusterQueue", args["cq"])
                self.state.put_cluster_queue(world.load(ClusterQueue, args["cq"]), self.instant)
            case "AddLocalQueue" | "UpdateLocalQueue":
                item = args.get("q") or args["newQ"]
                self._add("LocalQueue", item)
                self.state.put_local_queue(world.load(LocalQueue, item), self.instant)
                for (kind, _), each in self.objects.all():  # Kueue finds them in the API then
                    if kind == "Workload" and self._of(each, item):
                        self.state.put_workload(world.load(Workload, each), self.instant)
            case "AddOrUpdateWorkload":
                if results and results[0] is False:  # it holds no quota, so the cache of quotas does not take it
                    return
                self._add("Workload", args["w"])
                self.state.put_workload(world.load(Workload, args["w"]), self.instant)
            case "AddOrUpdateCohort":
                self.state.put_cohort(world.load(Cohort, args.get("apiCohort") or args["cohort"]))
            case "PendingWorkloadsInfo":
                want = [world.key_of(world.object_of(item)) for item in (results or [None])[0] or ()]
                self.expect(name, want, self.state.questions.pending(args["cqName"]))
            case "Heads":
                heads = [queue.pending.pop() for queue in self.state.cluster_queues.values()]
                want = [world.key_of(world.object_of(item.get("Info"))) for item in (results or [None])[0] or ()]
                self.expect(name, want, [head.key for head in heads if head is not None])
            case "Snapshot":
                self._compare_cohorts()
            case _:
                pass_over(f"cache/{name}")

    def _add(self, kind: str, item: Json) -> None:
        """What a cache is given is in the API too, unless there is another version of it."""
        if self.objects.get(kind, world.key_of(item)) is None:
            self.objects.put(item)

    @staticmethod
    def _of(workload: Json, queue: Json) -> bool:
        ours = (workload["metadata"].get("namespace"), workload["spec"].get("queueName"))
        return ours == (queue["metadata"].get("namespace"), queue["metadata"]["name"])

    # Admission fair sharing

    def _usage(self, method: str, args: Json, results: list[Json]) -> None:
        key = args["lqKey"]
        match method:
            case "Update":
                self._set_entry(key, results[0])
            case "SetForTest":
                entry = {"Resources": args["resources"], "LastUpdate": args["lastUpdate"], "StatusAccounted": True}
                self._set_entry(key, entry)
            case "PushPenalty":
                self._know_before(args["wlKey"])
                penalty = usage.from_quantities(args.get("penalty") or {})
                self.state.sharing.of(key).push(args["wlKey"], penalty, world.when(args["now"]))
            case "HasPendingPenalty":
                line = self.state.sharing.usages.get(key)
                self.expect(f"{method} of {key}", results[0], line is not None and any(line.penalty.values()))
            case "Get":
                entry, line = results[0], self.state.sharing.usages.get(key)
                records = {
                    name: usage.from_quantities(each) for name, each in (entry.get("penaltyRecords") or {}).items()
                }
                want = [results[1], usage.from_quantities(entry.get("Resources") or {}), records]
                have = [line is not None, line.consumed if line else {}, line.penalties if line else {}]
                self.expect(f"usage of {key}", want, have)
                if line is not None and entry.get("LastUpdate"):
                    self.expect(f"time of the usage of {key}", world.when(entry["LastUpdate"]), line.last_update)
            case _:
                raise NotRead(f"the runner does not know {method} of the usage")

    def _know_before(self, key: str) -> None:
        """The ledger knows a Workload before there is a penalty for it: the version from which it will change."""
        for step in self.trace:
            event = (step.get("args") or {}).get("e") or {}
            old = event.get("ObjectOld") or event.get("Object") or {}
            if old.get("kind") == "Workload" and world.key_of(old) == key:
                self.state.put_workload(world.load(Workload, old), self.instant)

    def _set_entry(self, key: str, entry: Json) -> None:
        if strange := set(entry) - {"LastUpdate", "Resources", "StatusAccounted", "penaltyRecords", "pendingPenalty"}:
            raise NotRead(f"the runner does not know {sorted(strange)} of the usage")
        line = self.state.sharing.of(key)
        own = usage.from_quantities(entry.get("Resources") or {})
        if not entry.get("StatusAccounted") and line.seeded:  # here the status is read before anything is counted
            own = usage.added(line.consumed, own)
        line.consumed, line.inherited = own, False
        line.last_update = world.when(entry["LastUpdate"]) if entry.get("LastUpdate") else None
        records = entry.get("penaltyRecords") or {}
        line.penalties = {name: usage.from_quantities(each) for name, each in records.items()}
        line.seeded = True

    # What controllers do

    def _controller(self, op: str, target: str, method: str, args: Json, results: list[Json]) -> None:
        match f"{target}.{method}":
            case "LocalQueueReconciler.Reconcile":
                key = f"{args['req']['NamespacedName']['Namespace']}/{args['req']['NamespacedName']['Name']}"
                self._follow_cluster_queues()
                self.questions.prescribed = self._activity_above(key)
                decision = statuses.decide_local_queue(key, self.seen(), self.state)
                self._carry_out(decision, results)
                self._compare_requeue(decision, results)
            case "ClusterQueueReconciler.Reconcile":
                self._follow_cluster_queues()
                name = args["req"]["NamespacedName"]["Name"]
                self.questions.prescribed = None
                decision = statuses.decide_cluster_queue(name, self.seen(), self.state, CountedShares(self.state))
                self._carry_out(decision, results)
            case "ClusterQueueReconciler.updateCqStatusIfChanged":
                active = args["conditionStatus"] == "True"
                self.questions.prescribed = Activity(active=active, reason=args["reason"], message=args["msg"])
                name = args["cq"]["metadata"]["name"]
                decision = statuses.decide_cluster_queue(name, self.seen(), self.state, CountedShares(self.state))
                self._carry_out(decision, results, subresource="status")
            case "ResourceFlavorReconciler.Reconcile":
                decision = self._flavors().decide(args["req"]["NamespacedName"]["Name"])
                self._carry_out(decision, results)
            case "WorkloadPriorityClassReconciler.Reconcile":
                decision = workloadpriorityclass.decide(args["req"]["NamespacedName"]["Name"], self.seen())
                self._carry_out(decision, results)
            case "CohortReconciler.Reconcile":
                self._cohort(args["req"]["NamespacedName"]["Name"], results)
            case "CohortReconciler.Update":
                self.state.put_cohort(world.load(Cohort, args["e"]["ObjectOld"]))
                before = self.state.log.epoch
                self.state.put_cohort(world.load(Cohort, args["e"]["ObjectNew"]))
                self.expect("changes a decision", results[0], self.state.log.epoch != before)
            case "WorkloadReconciler.Update":
                self.now = self._settled_at()
                for version in ("ObjectOld", "ObjectNew"):
                    self.state.put_workload(world.load(Workload, args["e"][version]), self.instant)
            case "WorkloadReconciler.Delete":
                self.state.drop_workload(world.key_of(args["e"]["Object"]))
            case "WorkloadReconciler.updateAfsConsumedUsage":
                self.state.put_workload(world.load(Workload, args["wl"]), self.instant)
            case "ResourceFlavorReconciler.NotifyClusterQueueUpdate":
                self._woken("a flavor", self._flavors_of(args.get("oldCQ"), args.get("newCQ")))
            case "cqHandler.Generic":
                woken = self._flavors_of(args["e"]["Object"], None)
                want = self.table["wantEnqueued"] or []
                self.expect("flavors that are reconciled", [], [name for name in want if name not in woken])
            case (
                "ResourceFlavorReconciler.Create"
                | "ResourceFlavorReconciler.Update"
                | "ResourceFlavorReconciler.Delete"
            ):
                event = args["e"]
                changed = event.get("Object") or event["ObjectNew"]
                self._wakes(results, self._flavors(), ResourceFlavor, event.get("ObjectOld"), changed)
            case (
                "WorkloadPriorityClassReconciler.Create"
                | "WorkloadPriorityClassReconciler.Update"
                | "WorkloadPriorityClassReconciler.Delete"
            ):
                event = args["e"]
                changed = event.get("Object") or event["ObjectNew"]
                classes = workloadpriorityclass.controller(self.seen())
                self._wakes(results, classes, WorkloadPriorityClass, event.get("ObjectOld"), changed)
            case _:
                pass_over(op)

    def _settled_at(self) -> datetime:
        """The time of a change of a Workload: some recordings have the real clock, and tell in an entry what it was."""
        entries = (step["results"][0] for step in self.trace if step["op"].endswith("AfsUsageLedger.Get"))
        told = (datetime.fromisoformat(entry["LastUpdate"]) for entry in entries if entry.get("LastUpdate"))
        return max(self.now, *(time.astimezone(UTC) for time in told), self.now)

    def _follow_cluster_queues(self) -> None:
        """The ledger follows the API, so it knows of a ClusterQueue that is deleted or being deleted."""
        for name in list(self.state.cluster_queues):
            item = self.objects.get("ClusterQueue", name)
            if item is None:
                self.state.drop_cluster_queue(name)
            else:
                self.state.put_cluster_queue(world.load(ClusterQueue, item), self.instant)

    def _activity_above(self, key: str) -> Activity:
        """What the status of the ClusterQueue of a LocalQueue says. Kueue reads it there; here both are decided from
        the ledger."""
        queue = self.objects.get("LocalQueue", key) or {}
        above = self.objects.get("ClusterQueue", (queue.get("spec") or {}).get("clusterQueue", "")) or {}
        conditions = (above.get("status") or {}).get("conditions") or ()
        active = any(each["type"] == "Active" and each["status"] == "True" for each in conditions)
        return Activity(active=active, reason="", message="")

    def _flavors(self) -> Controller:
        return next(each for each in inuse.controllers(self.seen()) if each.kind is ResourceFlavor)

    def _flavors_of(self, old: Json, new: Json) -> list[str]:
        """The ResourceFlavors that are reconciled when a ClusterQueue changes. The API server counts its versions."""
        versions = [
            world.load(ClusterQueue, merged(item, {"metadata": {"generation": number}})) if item else None
            for number, item in ((1, old), (1 if old == new else 2, new))
        ]
        (watch,) = self._flavors().watches[1:]
        return list(watch.keys((new or old)["metadata"].get("name", ""), *versions))

    def _woken(self, what: str, woken: list[str]) -> None:
        """Whether Turnstile reconciles where Kueue does. It may also where Kueue need not: nothing is written then."""
        if self.table["expectEvent"]:
            self.expect(f"{what} is reconciled", True, bool(woken))

    def _wakes(self, results: list[Json], controller: Controller, kind: type[Kind], old: Json, new: Json) -> None:
        if results[0]:
            name = new["metadata"]["name"]
            versions = [world.load(kind, item) if item else None for item in (old, new)]
            self.expect("is reconciled", [name], list(controller.watches[0].keys(name, *versions)))

    def _cohort(self, name: str, results: list[Json]) -> None:
        item = self.objects.get("Cohort", name)
        if item is None:
            self.state.drop_cohort(name)
        else:
            self.state.put_cohort(world.load(Cohort, item))
        node = self.state.ledger.cohorts.get(name)
        cyclic = node is not None and self.state.ledger.cyclic(node)
        failed = any(isinstance(result, dict) and "$error" in result for result in results)
        self.expect(f"{name} is in a cycle", failed, cyclic)

    def _compare_cohorts(self) -> None:
        """The comparisons that the recorded test made after it had looked at the cache."""
        self.state.ledger.settle()
        while self.checks:
            of, got = self.checks[0].get("of"), self.checks[0].get("got")
            if of == "cohortSnap.ResourceNode.SubtreeQuota":
                (node,) = self.state.ledger.cohorts.values()
                have = {str(pair): amount for pair, amount in node.subtree.items()}
                self.expect(of, {key: int(amount) for key, amount in got.items()}, have)
            elif of == "got":
                want = [(_without_role(each["Labels"]), float(each["Value"])) for each in got]
                self.expect("cohort_subtree_quota", want, list(self._quotas_of_cohorts()))
                self.checks.pop(0)
                return
            else:
                raise NotRead(f"the runner does not know the comparison of {of}")
            self.checks.pop(0)

    def _quotas_of_cohorts(self) -> Iterator[tuple[dict[str, str], float]]:
        cluster = self.seen()
        chosen = MetricOptions(resources=True)
        metrics = QueueMetrics(cluster, self.state, CountedShares(self.state), Tallies(cluster.workloads), chosen)
        for family in metrics.collect():
            if family.name == "kueue_cohort_subtree_quota":
                for sample in family.samples:
                    yield _without_role(sample.labels), sample.value

    # What came of it

    def _carry_out(self, decision: ReconcileResult, results: list[Json], *, subresource: str | None = None) -> None:
        """Write to the objects; of the patches only those of the subresource, if one is named."""
        self.compared = True
        if any(isinstance(result, dict) and "$error" in result for result in results):
            raise NotRead("a write was made to fail, which the runner cannot do")
        for action in decision.actions:
            match action:
                case Patch() if subresource not in (None, action.subresource):
                    pass
                case Patch():
                    key = "/".join(part for part in (action.namespace, action.name) if part)
                    body = orjson.loads(action.body)
                    (body.get("metadata") or {}).pop("resourceVersion", None)
                    after = merged(self.objects.get(action.kind.KIND, key), body)
                    self.objects.put(after)
                    if after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers"):
                        self.objects.drop(after)
                case RequeueAfter() | Emit():
                    pass
                case _:
                    raise NotRead(f"the runner does not know the action {action}")

    def _compare_requeue(self, decision: ReconcileResult, results: list[Json]) -> None:
        want = world.seconds((results[0] or {}).get("RequeueAfter", "0s"))
        have = next((action.seconds for action in decision.actions if isinstance(action, RequeueAfter)), 0.0)
        self.expect("again in", want, have)

    def compare_objects(self, before: Objects) -> None:
        """Metadata, spec and status of every object, as it was left."""
        gone = {str(item) for item in self.run.get("deletedObjects") or ()}
        left = {(item["kind"], world.key_of(item)): item for item in self.run.get("finalObjects") or ()}
        for (kind, key), item in before.all():
            if kind not in _COMPARED:
                continue
            want = left.get((kind, key), item)
            have = self.objects.get(kind, key)
            name = key if "/" in key else f"/{key}"
            self.expect(f"{kind} {key} is gone", f"{kind}/{name}" in gone, have is None)
            if have is not None:
                self.found += _differences(f"{kind} {key}", want, have)


def _without_role(labels: dict[str, str]) -> dict[str, str]:
    """Labels without the role of the process."""
    return {name: value for name, value in labels.items() if name != "replica_role"}


def _differences(what: str, want: Json, have: Json) -> list[str]:
    finalizers, ours = (item["metadata"].get("finalizers") or [] for item in (want, have))
    for condition in (have.get("status") or {}).get("conditions") or ():
        if condition.get("observedGeneration") == 0:  # recorded objects may have no generation, and Go leaves zeros out
            del condition["observedGeneration"]
    return [
        *differs(f"finalizers of {what}", finalizers, ours),
        *differs(f"spec of {what}", want.get("spec"), have.get("spec")),
        *differs(f"status of {what}", bare(want.get("status")), bare(have.get("status"))),
    ]


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a controller in the recording, and the objects afterwards."""
    replay = _Replay(case, run)
    before = _Everything()
    for step in replay.trace:
        args, results = step.get("args") or {}, step.get("results") or []
        replay.step(step["op"], args, results)
        if step["op"].startswith("client."):
            for item in args.get("objects") or [args["object"]]:
                before.put(item)
    if replay.compared:
        replay.compare_objects(before)
    return replay.found if replay.compared else None


_OPTIONS = frozenset(("WithClock", "WithPreemptionExpectations"))
"""Options of Kueue's constructors that change nothing here."""
