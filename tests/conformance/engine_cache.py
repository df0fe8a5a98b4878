"""The scheduler's cache: recorded calls made on our state, what each returned, and what was in the cache afterwards.

Every call is dispatched by its name; a call or a dump that has no counterpart here is passed over.
"""

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case, pass_over
from tests.conformance.engine_dumps import Dumps, number
from tests.conformance.engine_tables import never_negative
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.quantity import to_int
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine.options import Options
from turnstile.engine.questions import FlavorUsage
from turnstile.engine.queue.clusterqueue import ClusterQueue as Queue
from turnstile.engine.quota import shares, tree
from turnstile.engine.quota.amounts import bounded
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.usage import Usage
from turnstile.engine.state import State

Json = Any

_CACHE = "cache/scheduler."


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Replay a recorded run; None if nothing in it has a counterpart here."""
    replay = Replay(case, run)
    for step in history(case, run):
        replay.call(step["op"], step.get("args") or {}, step.get("results") or [])
    for each in run.get("checks") or ():
        replay.dump(each)
    replay.end()
    return replay.found if replay.compared else None


def history(case: Case, run: dict[str, Json]) -> Iterator[Json]:
    """The calls of a run, after those of the test that it is a part of."""
    names = run.get("variants") or ()
    for other in case.body.get("runs") or ():
        above = other.get("variants") or ()
        if other is not run and any(name.startswith(f"{outer}/") for name in names for outer in above):
            yield from other.get("trace") or ()
    yield from run.get("trace") or ()


def _for_a_cycle(results: list[Json]) -> bool:
    """Whether a call ended with an error, and changed the cache all the same."""
    return any(isinstance(each, dict) and each.get("message") == "cohort has a cycle" for each in results)


def _refused(results: list[Json]) -> bool:
    """Whether a call ended with an error."""
    return any(isinstance(each, dict) and "$error" in each for each in results)


class Replay(Dumps):
    """A cache and the snapshots that were taken of it."""

    def __init__(self, case: Case, run: dict[str, Json]) -> None:
        body = case.body.get("case") or {}
        self.gates = world.gates(case.body.get("featureGates"), run.get("gates"), body.get("featureGates"))
        self.now = world.when((case.body.get("fixture") or {}).get("now") or "2026-01-02T03:04:05Z")
        super().__init__(State(Options(gates=self.gates)))
        self.single: Queue | None = None
        self.objects: dict[tuple[str, str], Json] = {}
        self.table = body
        self.checks = list(run.get("checks") or ())

    def call(self, op: str, args: dict[str, Json], results: list[Json]) -> None:
        """One recorded call."""
        if op in {"client.build", "client.create", "client.update"}:
            for item in args.get("objects") or [args.get("object")]:
                if item:
                    self.objects[item.get("kind", ""), world.key_of(item)] = item
        elif op == "client.delete" and args.get("object"):
            self.objects.pop((args["object"].get("kind", ""), world.key_of(args["object"])), None)
        elif op.startswith(_CACHE):
            name = world.snake(op.removeprefix(_CACHE).replace(".", "_"))
            handler: Callable[[Json, list[Json]], None] | None = getattr(self, f"_on_{name}", None)
            if handler is None:
                pass_over(op)
                return
            handler(args, results)
            self.state.ledger.settle()

    # Calls that change the cache

    def _on_new(self, args: Json, results: list[Json]) -> None:
        """A cache with its options."""
        sets: dict[str, Json] = {}
        for option in args.get("options") or ():
            sets |= option.get("sets") or {}
        self.state = State(world.options(sets, self.gates))
        self.frozen = None

    def _on_cache_add_or_update_resource_flavor(self, args: Json, results: list[Json]) -> None:
        self.state.put_flavor(world.load(ResourceFlavor, args["rf"]))

    def _on_cache_delete_resource_flavor(self, args: Json, results: list[Json]) -> None:
        self.state.drop_flavor(args["rf"]["metadata"]["name"])

    def _on_cache_add_or_update_topology(self, args: Json, results: list[Json]) -> None:
        world.put_topology(self.state, args["topology"])

    def _on_cache_delete_topology(self, args: Json, results: list[Json]) -> None:
        name = args.get("name") or args["topology"]["metadata"]["name"]
        self.state.drop_topology(name)

    def _on_cache_add_or_update_admission_check(self, args: Json, results: list[Json]) -> None:
        world.put_check(self.state, args["ac"])

    def _on_cache_delete_admission_check(self, args: Json, results: list[Json]) -> None:
        self.state.drop_admission_check(args["ac"]["metadata"]["name"])

    def _on_cache_add_or_update_cohort(self, args: Json, results: list[Json]) -> None:
        cohort = world.load(Cohort, args.get("apiCohort") or args.get("cohort"))
        self.state.put_cohort(cohort)
        ledger = self.state.ledger
        self.expect("refused for a cycle", _refused(results), ledger.cyclic(ledger.cohorts[cohort.metadata.name]))

    def _on_cache_delete_cohort(self, args: Json, results: list[Json]) -> None:
        self.state.drop_cohort(args["cohortName"])

    def _on_cache_add_cluster_queue(self, args: Json, results: list[Json]) -> None:
        """With it come its LocalQueues and reservations that the API has."""
        if _refused(results) and not _for_a_cycle(results):
            return
        self._on_cache_update_cluster_queue(args, results)
        name = args["cq"]["metadata"]["name"]
        for (kind, _), item in self.objects.items():
            status = item.get("status") or {}
            if kind == "LocalQueue" and (item.get("spec") or {}).get("clusterQueue") == name:
                self.state.put_local_queue(world.load(LocalQueue, item), self.now)
            if kind == "Workload" and (status.get("admission") or {}).get("clusterQueue") == name:
                self.state.put_workload(world.load(Workload, item), self.now)

    def _on_cache_update_cluster_queue(self, args: Json, results: list[Json]) -> None:
        if not _refused(results) or _for_a_cycle(results):
            self.state.put_cluster_queue(world.load(ClusterQueue, args["cq"]), self.now)

    def _on_cache_new_cluster_queue(self, args: Json, results: list[Json]) -> None:
        self._on_cache_update_cluster_queue(args, results)
        self.single = self.state.cluster_queues[args["cq"]["metadata"]["name"]]

    def _on_cache_delete_cluster_queue(self, args: Json, results: list[Json]) -> None:
        self.state.drop_cluster_queue(args["cq"]["metadata"]["name"])

    def _on_cache_terminate_cluster_queue(self, args: Json, results: list[Json]) -> None:
        queue = self.state.cluster_queues.get(args["name"])
        if queue is not None:
            api = copy.deepcopy(queue.api)
            api.metadata.deletion_timestamp = "2026-01-02T03:04:05Z"
            self.state.put_cluster_queue(api, self.now)

    def _on_cluster_queue_update_with_admission_checks(self, args: Json, results: list[Json]) -> None:
        for name, item in (args["checks"] or {}).items():
            active = bool(item.get("Active"))
            self.state.put_admission_check(name, active=active, controller=item.get("Controller", ""))

    def _on_cluster_queue_update_with_flavors(self, args: Json, results: list[Json]) -> None:
        for item in (args["flavors"] or {}).values():
            self.state.put_flavor(world.load(ResourceFlavor, item))

    def _on_cache_add_local_queue(self, args: Json, results: list[Json]) -> None:
        self.state.put_local_queue(world.load(LocalQueue, args.get("newQ") or args["q"]), self.now)

    _on_cache_update_local_queue = _on_cache_add_local_queue

    def _on_cache_delete_local_queue(self, args: Json, results: list[Json]) -> None:
        self.state.drop_local_queue(world.local_queue_key(args["q"]))

    def _on_cache_add_or_update_workload(self, args: Json, results: list[Json]) -> None:
        """Whether it counts."""
        workload = world.load(Workload, args.get("w") or args.get("wl") or args.get("newWl") or args.get("newWL"))
        self.state.put_workload(workload, self.now)
        if results and isinstance(results[0], bool):
            self.expect("counted", results[0], self.counted(workload.metadata.key))

    _on_cache_add_or_update_workload_without_lock = _on_cache_add_or_update_workload
    _on_cache_update_workload = _on_cache_add_or_update_workload
    _on_cache_assume_workload = _on_cache_add_or_update_workload

    def _on_cache_delete_workload(self, args: Json, results: list[Json]) -> None:
        key = args["wlKey"] if "wlKey" in args else world.key_of(args.get("w") or args.get("wl") or {})
        self.state.drop_workload(key.lstrip("/"))

    _on_cache_forget_workload = _on_cache_delete_workload

    def counted(self, key: str) -> bool:
        """Whether a workload holds quota in a ClusterQueue that exists."""
        return self.state.ledger.holders.get(key) in self.state.cluster_queues

    # Calls that ask

    def _on_cohort_get_resource_node(self, args: Json, results: list[Json]) -> None:
        """The quota of a cohort and of all below it. The recording numbers cohorts; the comparisons name them."""
        comparison = self.checks.pop(0)["of"] if self.checks else ""
        named = re.search(r'Cohort\("(.+)"\)', comparison)
        self.state.ledger.settle()
        node = self.state.ledger.cohorts[named[1] if named is not None else "cohort"]
        want = {key: int(amount) for key, amount in results[0]["SubtreeQuota"].items()}
        self.expect("subtree", want, {str(pair): amount for pair, amount in node.subtree.items()})

    def _on_calculate_lendable(self, args: Json, results: list[Json]) -> None:
        """Of the only cohort."""
        self.state.ledger.settle()
        (node,) = self.state.ledger.cohorts.values()
        self.expect("lendable", {name: int(amount) for name, amount in results[0].items()}, shares.lendable(node))

    def _on_cache_get_cache_local_queue(self, args: Json, results: list[Json]) -> None:
        """Whether a ClusterQueue has a LocalQueue."""
        local = self.state.queues.local_queues.get(args["lqKey"])
        name = args["cqName"]
        have = name in self.state.cluster_queues and local is not None and local.cluster_queue == name
        self.expect("found", not _refused(results), have)

    def _on_cache_cluster_queue_readiness(self, args: Json, results: list[Json]) -> None:
        active, reason, message = self.state.questions.active_reason(args["name"])
        self.expect("readiness", results, ["True" if active else "False", reason, message])

    def _on_cluster_queue_inactive_reason(self, args: Json, results: list[Json]) -> None:
        if self.single is not None:
            _, *told = self.state.questions.active_reason(self.single.name)
            self.expect("inactive", results, told)

    def _on_cache_cluster_queue_active(self, args: Json, results: list[Json]) -> None:
        queue = self.state.cluster_queues.get(args["name"])
        self.expect("active", results, [queue is not None and queue.active])

    def _on_cache_cluster_queue_terminating(self, args: Json, results: list[Json]) -> None:
        queue = self.state.cluster_queues.get(args["name"])
        self.expect("terminating", results, [queue is not None and queue.terminating])

    def _on_cache_is_added(self, args: Json, results: list[Json]) -> None:
        """Not to be scheduled again: the reservation is known. Queues that were put in by hand are in the case."""
        by_hand = self.table.get("clusterQueues")
        for name, item in by_hand.items() if isinstance(by_hand, dict) else ():
            self.state.put_cluster_queue(world.load(ClusterQueue, {"metadata": {"name": name}}), self.now)
            for held in (item.get("Workloads") or {}).values():
                given = {"clusterQueue": name, "podSetAssignments": []}
                status = {"admission": given, "conditions": [world.condition("QuotaReserved")]}
                self.state.put_workload(world.load(Workload, {**world.object_of(held), "status": status}), self.now)
        self.expect("added", results, [self.counted(world.key_of(world.object_of(args["w"])))])

    def _on_cache_pods_ready_for_all_admitted_workloads(self, args: Json, results: list[Json]) -> None:
        self.expect("pods ready", results, [not self.state.reservations.not_ready])

    def _on_cache_cluster_queues_using_flavor(self, args: Json, results: list[Json]) -> None:
        self.expect_queues(results, lambda queue: args["flavor"] in queue.flavors())

    def _on_cache_cluster_queues_using_admission_check(self, args: Json, results: list[Json]) -> None:
        self.expect_queues(results, lambda queue: any(check.name == args["ac"] for check in queue.checks))

    def _on_cache_cluster_queues_for_resources(self, args: Json, results: list[Json]) -> None:
        wanted = set(args["resourceNames"] or ())
        self.expect_queues(results, lambda queue: not wanted.isdisjoint(queue.group_of))

    def _on_cache_matching_cluster_queues(self, args: Json, results: list[Json]) -> None:
        labels = args.get("nsLabels") or {}
        self.expect_queues(results, lambda queue: queue.selects(labels))

    def _on_cache_cluster_queues_using_topology(self, args: Json, results: list[Json]) -> None:
        flavors = {
            name
            for name, flavor in self.state.activity.flavors.items()
            if flavor.spec.topology_name == args.get("topology")
        }
        self.expect_queues(results, lambda queue: not flavors.isdisjoint(queue.flavors()))

    def expect_queues(self, results: list[Json], chosen: Callable[[Queue], bool]) -> None:
        """Names of ClusterQueues in any order."""
        have = sorted(queue.name for queue in self.state.cluster_queues.values() if chosen(queue))
        self.expect("queues", sorted((results or [None])[0] or ()), have)

    def _on_cache_cluster_queue_ancestors(self, args: Json, results: list[Json]) -> None:
        self.expect_ancestors((args["cqObj"].get("spec") or {}).get("cohortName"), results, below_root=True)

    def _on_cache_ancestors(self, args: Json, results: list[Json]) -> None:
        self.expect_ancestors(args["cohortName"], results)

    def _on_cache_workload_ancestors(self, args: Json, results: list[Json]) -> None:
        workload = world.load(Workload, args["wl"])
        admission = workload.status.admission
        queue = self.state.cluster_queues.get(admission.cluster_queue) if admission is not None else None
        self.expect_ancestors(queue.api.spec.cohort_name if queue is not None else None, results)

    def expect_ancestors(self, cohort: str | None, results: list[Json], *, below_root: bool = False) -> None:
        """A cohort and those above it; a cycle has none."""
        node = self.state.ledger.cohorts.get(cohort or "")
        refused = _refused(results)
        if node is not None and self.state.ledger.cyclic(node):
            self.expect("ancestors of a cycle refused", refused, True)
            return
        names = [node.name, *(above.name for above in node.ancestors())] if node is not None else []
        self.expect("ancestors", (results or [None])[0] or [], names[:-1] if below_root else names)

    def _on_cache_usage(self, args: Json, results: list[Json]) -> None:
        stats = (results or [None])[0] or {}
        name = args["cqObj"]["metadata"]["name"]
        counts = self.state.questions.queue_counts(name)
        self.expect_stats(stats, counts, lambda only: self.state.questions.queue_usage(name, admitted_only=only))

    def _on_cache_local_queue_usage(self, args: Json, results: list[Json]) -> None:
        stats = (results or [None])[0] or {}
        key = world.local_queue_key(args["qObj"])
        counts = self.state.questions.local_queue_counts(key)
        self.expect_stats(stats, counts, lambda only: self.state.questions.local_queue_usage(key, admitted_only=only))

    def expect_stats(self, stats: Json, counts: Any, usage: Callable[[bool], list[FlavorUsage]]) -> None:
        """Usage statistics of a queue, as far as they were recorded."""
        for field, have in (("ReservingWorkloads", counts.reserving), ("AdmittedWorkloads", counts.admitted)):
            if field in stats:
                self.expect(field, stats[field], have)
        for field, only in (("ReservedResources", False), ("AdmittedResources", True)):
            if field in stats:
                want = {
                    (flavor["name"], item["name"]): to_int(item["name"], item.get("total", 0))
                    for flavor in stats[field] or ()
                    for item in flavor.get("resources") or ()
                }
                self.expect(field, want, {(row.flavor, row.resource): row.total for row in usage(only)})

    # Snapshots

    def _on_cache_snapshot(self, args: Json, results: list[Json]) -> None:
        self.state.ledger.settle()
        self.frozen = copy.deepcopy(self.state)

    def _on_snapshot_remove_workload(self, args: Json, results: list[Json]) -> None:
        queue, info = self.info(args["wl"])
        if queue is not None and info.key in queue.workloads:
            self.seen.ledger.release(info.key)

    def _on_snapshot_add_workload(self, args: Json, results: list[Json]) -> None:
        queue, info = self.info(args["wl"])
        if queue is not None:
            self.seen.ledger.hold(queue, info)

    def info(self, recorded: Json) -> tuple[Queue | None, Info]:
        """A recorded workload that holds quota, and its queue."""
        state = self.seen
        workload = world.load(Workload, world.object_of(recorded))
        info = Info(workload, state.surroundings, recorded.get("ClusterQueue", ""))
        return state.cluster_queues.get(info.cluster_queue), info

    def node(self, reference: Json) -> Node | None:
        """The node of a queue or a cohort by its recorded reference."""
        name = reference.get("name") or reference.get("Name") or ""
        queue = self.seen.cluster_queues.get(name)
        return queue.node if queue is not None else self.seen.ledger.cohorts.get(name)

    def change(self, args: Json, step: Callable[[Usage, Node], None]) -> None:
        """Add or take usage of a queue."""
        node = self.node(args["$recv"])
        if node is None:
            return
        pair = self.seen.surroundings.catalog.pair
        usage = ((args["usage"].get("Quota")) or {}).get("Assigned") or {}
        step(Usage({pair(*key.split("/", 1)): number(amount) for key, amount in usage.items()}), node)

    def _on_cluster_queue_snapshot_add_usage(self, args: Json, results: list[Json]) -> None:
        self.change(args, Usage.add_to)

    _on_cluster_queue_snapshot_simulate_usage_addition = _on_cluster_queue_snapshot_add_usage

    def _on_cluster_queue_snapshot_remove_usage(self, args: Json, results: list[Json]) -> None:
        self.change(args, Usage.remove_from)

    _on_cluster_queue_snapshot_simulate_usage_removal = _on_cluster_queue_snapshot_remove_usage

    def _on_cluster_queue_snapshot_available(self, args: Json, results: list[Json]) -> None:
        self.ask(args["$recv"], args["fr"], results, never_negative)

    def _on_cluster_queue_snapshot_borrowing_with(self, args: Json, results: list[Json]) -> None:
        queue = self.seen.cluster_queues.get(args["$recv"].get("name", ""))
        if queue is not None and "val" in args:
            pair = self.seen.surroundings.catalog.pair(args["fr"].get("Flavor", ""), args["fr"].get("Resource", ""))
            self.expect("borrowing", results[0], tree.borrowing_with(queue.node, pair, number(args["val"])))

    def _on_potential_available(self, args: Json, results: list[Json]) -> None:
        self.ask(args["node"], args["fr"], results, tree.potential)

    def ask(self, reference: Json, pair: Json, results: list[Json], question: Callable[[Node, Any], int]) -> None:
        """An amount of a node."""
        node = self.node(reference)
        if node is not None:
            key = self.seen.surroundings.catalog.pair(pair.get("Flavor", ""), pair.get("Resource", ""))
            self.expect("amount", number(results[0]), bounded(question(node, key)))

    def _on_cluster_queue_snapshot_rg_by_resource(self, args: Json, results: list[Json]) -> None:
        queue = self.seen.cluster_queues.get(args["$recv"].get("name", ""))
        if queue is None:
            return
        group = queue.group_of.get(args["resource"])
        want = (results or [None])[0]
        have = group and {"CoveredResources": sorted(group.covered), "Flavors": list(group.flavors)}
        self.expect("resource group", want, have)

    def _on_drs_precise_weighted_share_serialized(self, args: Json, results: list[Json]) -> None:
        """A share as people read it."""
        ratio, weight = float(args["$recv"].get("unweightedRatio", 0)), float(args["$recv"].get("fairWeight", 0))
        share = shares.weighted(ratio, weight)
        self.expect("share", results[0], "+Inf" if share.infinite else f"{share.value:.15g}")

    def end(self) -> None:
        """What a table wants of a ClusterQueue that no cache holds."""
        if self.single is not None and "wantStatus" in self.table:
            if "terminating" in {self.table.get("curStatus"), self.table.get("cqStatus")}:
                self._on_cache_terminate_cluster_queue({"name": self.single.name}, [])
            self.expect("status", self.table["wantStatus"], self.status(self.single))
