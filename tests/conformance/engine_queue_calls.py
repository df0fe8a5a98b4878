"""Calls that were recorded on one ClusterQueue of Kueue's queue cache, made on ours."""

from collections import Counter
from itertools import groupby
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case, NotRead, pass_over
from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine.options import Options
from turnstile.engine.pace import Pace, finish
from turnstile.engine.queue.admissible import backoff_over
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.heaps import Pending
from turnstile.engine.queue.localqueue import LocalQueue as LineOf
from turnstile.engine.queue.requeueing import IMMEDIATE_FOR_BEST_EFFORT, push_or_update, requeue
from turnstile.engine.quota.info import Info
from turnstile.engine.state import State

Json = Any


class QueueCalls:
    """Queues by their recorded reference, and what was seen around them. Which ClusterQueue of a manager a reference
    stands for is not recorded; `names` is the order in which they are met."""

    def __init__(self, case: Case, run: dict[str, Json], names: tuple[str, ...] = ()) -> None:
        self.names = names
        self.guessed = False
        self.table = body = case.body.get("case") or {}
        self.found: list[str] = []
        self.compared = 0
        self.blind = False
        self.namespaces = False
        self.gates = world.gates(case.body.get("featureGates"), run.get("gates"), body.get("featureGates"))
        if "preserveProgress" in body:
            self.gates = world.gates(
                case.body.get("featureGates"),
                run.get("gates"),
                {"FlavorFungibilityPreserveScanProgress": body["preserveProgress"]},
            )
        clock = ((case.body.get("fixture") or {}).get("now")) or "2026-01-02T03:04:05Z"
        self.now = world.when(clock)
        self.queues: dict[str, ClusterQueue] = {}
        self.classes: dict[str, Pending] = {}
        self.state: State | None = None
        self.standalone = State(Options(gates=self.gates))
        self.ordering = "Eviction"
        self.objects: dict[str, Workload] = {}
        self.locals: dict[str, LocalQueue] = {}
        self.local_items: dict[str, dict[str, Info]] = {}
        self.made: dict[str, Info] = {}
        self.breakdown: tuple[int, int] | None = None
        if not makes(list(run.get("trace") or ())):
            self.from_fixture((case.body.get("fixture") or {}).get("manager"))

    def from_fixture(self, manager: Json) -> None:
        """A manager that stood before the case began, with its LocalQueues and what waits in them."""
        if not isinstance(manager, dict) or not isinstance(manager.get("localQueues"), dict):
            return
        self.state = State(Options(gates=self.gates))
        for item in ((manager.get("hm") or {}).get("clusterQueues") or {}).values():
            places = item.get("workloads") or {}
            if places.get("inadmissible") or places.get("inflight"):
                raise NotRead("the runner only knows workloads in line in a queue that stood before the case")
            spec = {"queueingStrategy": item.get("queueingStrategy", "BestEffortFIFO"), "namespaceSelector": {}}
            body = {"metadata": {"name": item["name"]}, "spec": spec}
            self.state.put_cluster_queue(world.load(ApiClusterQueue, body), self.now)
        for item in manager["localQueues"].values():
            namespace, _, name = item.get("Key", "").rpartition("/")
            spec = {"clusterQueue": item.get("ClusterQueue", "")}
            body = {"metadata": {"namespace": namespace, "name": name}, "spec": spec}
            self.state.put_local_queue(world.load(LocalQueue, body), self.now)
            for info in (item.get("items") or {}).values():
                self.state.put_workload(world.load(Workload, info["Obj"]), self.now)

    def info(self, recorded: Json) -> Info:
        """A recorded Info on our terms."""
        state = self.state or self.standalone
        info = Info(world.load(Workload, world.object_of(recorded)), state.surroundings)
        info._hash = world.known_hash(recorded.get("SchedulingHash", ""))
        last = recorded.get("LastAssignment")
        if last is not None:
            info.last_assignment = world.last_of(last)
        return info

    def queue(self, args: Json) -> ClusterQueue | None:
        """The queue that a call is made on, if it is known."""
        reference = (args.get("$recv") or {}).get("$ref", "")
        if reference not in self.queues:
            taken = {id(queue) for queue in self.queues.values()}
            known = self.state.cluster_queues if self.state is not None else {}
            order = [known[name] for name in self.names if name in known] or known.values()
            free = [queue for queue in order if id(queue) not in taken]
            if not free:
                return None
            self.guessed = self.guessed or len(free) > 1
            self.queues[reference] = free[0]
        return self.queues[reference]

    def expect(self, op: str, want: Json, have: Json) -> None:
        """Note a difference."""
        self.compared += 1
        if want != have:
            self.found.append(f"{op}: want {want!r}, have {have!r}")

    def cluster_queue(self, name: str, args: dict[str, Json], results: Json) -> None:
        """Calls on a ClusterQueue."""
        if name == "queueInadmissibleWorkloads":
            queue = self.queues.get(args["c"].get("$ref", ""))
            if queue is None or not self.namespaces:  # what the recorded client knew is not in the trace
                self.blind = True
                return
            before = len(queue.pending.active_infos())
            state = self.state or self.standalone
            finish(state.retries.carry_out_in(queue, self.now, state.log.shape, Pace()))
            self.expect(name, results[0], len(queue.pending.active_infos()) - before)
            return
        queue = self.queue(args)
        if queue is None:
            return
        pending = queue.pending
        match name:
            case "Update":
                queue.update(world.load(ApiClusterQueue, args["apiCQ"]))
                self.standalone.sharing.arrange(queue)
            case "PushOrUpdate":
                info = self.info(args["wInfo"])
                push_or_update(queue, info, backoff_over=backoff_over(info.workload, self.now))
            case "Pop":
                head = pending.pop()
                want = self.info(results[0]) if results and results[0] else None
                tied = (
                    want is not None
                    and head is not None
                    and want.key != head.key
                    and want.order[:3] == head.order[:3]
                    and not head.uid
                    and (pending.local_queue_usage is None or want.local_queue == head.local_queue)
                )
                if not tied:  # equals without UIDs come in any order
                    self.expect(name, want and want.key, head and head.key)
            case "RequeueIfNotPresent":
                info = self.info(args["wInfo"])
                if "LastEvaluatedGeneration" in args["wInfo"]:
                    pending.last_generation[info.key] = args["wInfo"]["LastEvaluatedGeneration"]
                before = self._places(queue, info.key)
                back = backoff_over(info.workload, self.now)
                requeue(queue, info, args["reason"], args["quotaReservedReason"], backoff_over=back)
                self.expect(name, results[0], self._places(queue, info.key) != before)
            case "requeueIfNotPresent":
                info = self.info(args["wInfo"])
                back = backoff_over(info.workload, self.now)
                reason = args["reason"]
                if args["immediate"]:
                    reason = "FailedAfterNomination"
                elif not queue.best_effort or reason in IMMEDIATE_FOR_BEST_EFFORT:
                    reason = "NamespaceMismatch"  # back at once for no reason of its own
                before = self._places(queue, info.key)
                requeue(queue, info, reason, args["quotaReservedReason"], backoff_over=back)
                if results and isinstance(results[0], bool):
                    self.expect(name, results[0], self._places(queue, info.key) != before)
            case "ClearInflight":
                if pending.inflight is not None and args.get("wlKey", "").lstrip("/") == pending.inflight.key:
                    pending.inflight = None
            case "PendingSchedulingHashes":
                self.expect(name, results, [len(hashes(pending, parked=each)) for each in (False, True)])
            case "pendingSchedulingHashesForInactiveClusterQueue":
                union = {each for parked in (False, True) for each in hashes(pending, parked=parked)}
                self.expect(name, results, [0, len(union)])
            case "PendingTotal":
                self.expect(name, results[0], len(pending))
            case "Pending":
                inflight = pending.inflight is not None
                have = [len(pending.active_infos()) + inflight, len(pending.inadmissible_infos())]
                self.expect(name, results, have)
            case "Dump" | "DumpInadmissible":
                infos = pending.active_infos() if name == "Dump" else pending.inadmissible_infos()
                keys = sorted(info.key for info in infos)
                self.expect(name, sorted(key.lstrip("/") for key in (results or [[]])[0] or []), keys)
            case "Delete":
                pending.remove(args["wlKey"].lstrip("/"))
            case "IsPreemptor":
                info = self.info(args["wInfo"])
                nominated = queue.pending.nominated(info.key, args["wInfo"].get("LastEvaluatedGeneration", 0))
                self.expect(name, results[0], nominated is not None)
            case "GetNoFitReason":
                info = next((each for each in pending.inadmissible_infos() if each.key == args["wl"]), None)
                reason = pending.bulk_moved.get(info.hash) if info is not None else None
                self.expect(name, results, [reason or "", reason is not None])
            case "backoffWaitingTimeExpired":
                self.expect(name, results[0], backoff_over(self.info(args["wInfo"]).workload, self.now))
            case "Info" | "trackedInfo":
                found = pending.find(args["key"].lstrip("/"))
                want = results[0] if results else None
                self.expect(name, want and world.key_of(world.object_of(want)), found and found.key)
            case "Snapshot":
                want = [world.key_of(world.object_of(item)) for item in (results or [None])[0] or ()]
                everyone = [*pending.active_infos(), *pending.inadmissible_infos()]
                self.expect(name, want, self._like(want, pending, pending.in_order(everyone)))
            case "DeleteFromLocalQueue":
                for key in self.local_items.get(args["q"]["$ref"], {}):
                    pending.remove(key)
            case "AddFromLocalQueue":
                before = set(pending.active)
                state = self.state if queue.name in (self.state.cluster_queues if self.state else {}) else None
                state = state or self.standalone
                line = LineOf("")
                line.api = LocalQueue()
                line.api.spec.cluster_queue = queue.name
                line.items = dict(self.local_items.get(args["q"]["$ref"]) or self.made)
                state.queues.open(line, self.now)
                self.expect(name, results[0], set(pending.active) != before)
            case "PendingBreakdown":
                inflight = pending.inflight is not None
                self.breakdown = len(pending.active_infos()) + inflight, len(pending.inadmissible_infos())
            case "handleInadmissibleHash":
                pending.make_class_inadmissible(args["hash"], args["reason"])
            case "PendingInLocalQueue":
                line = args["lqRef"]
                inflight = pending.inflight is not None and pending.inflight.local_queue == line
                active = sum(info.local_queue == line for info in pending.active_infos()) + inflight
                parked = sum(info.local_queue == line for info in pending.inadmissible_infos())
                self.expect(name, results, [active, parked])
            case _:
                pass_over(f"cache/queue.ClusterQueue.{name}")

    @staticmethod
    def _like(want: list[str], pending: Pending, infos: list[Info]) -> list[str]:
        """Keys in our order; equals without UIDs, which come in any order, in the recorded one."""
        places = {key: place for place, key in enumerate(want)}

        def rank(info: Info) -> tuple[Any, ...]:
            usage = pending.local_queue_usage(info.local_queue) if pending.local_queue_usage is not None else 0.0
            return (usage, info.key == pending.first, *info.order[:2], info.uid)

        return [
            info.key
            for (*_, uid), equals in groupby(infos, key=rank)
            for info in (equals if uid else sorted(equals, key=lambda info: places.get(info.key, len(places))))
        ]

    def class_counts(self, pending: Pending, name: str, args: Json, results: Json) -> None:
        """Classes of equals among those who wait, without a queue around them."""
        info = self.info(args["wInfo"]) if "wInfo" in args else None
        match name:
            case "addActive" if info is not None:
                pending.push(info)
            case "addInadmissible" if info is not None:
                pending.inadmissible[info.key] = info
            case "moveActiveToInflight" if info is not None:
                pending.inflight = pending.remove(info.key)
            case "removeActive" | "removeInadmissible" if info is not None:
                pending.remove(info.key)
            case "pendingLens":
                self.expect(name, results, [len(hashes(pending, parked=each)) for each in (False, True)])
            case "pendingUnionLen":
                union = {each for parked in (False, True) for each in hashes(pending, parked=parked)}
                self.expect(name, results, [len(union)])
            case _:
                pass

    @staticmethod
    def _places(queue: ClusterQueue, key: str) -> tuple[bool, bool]:
        pending = queue.pending
        info = pending.active.get(key) or pending.inadmissible.get(key)
        parked = info is not None and pending.is_inadmissible(info)
        return info is not None and not parked, parked


def tried(info: Info) -> Json:
    """How far its scan of flavors came."""
    return info.last_assignment and info.last_assignment.tried


def hashes(pending: Pending, *, parked: bool, inflight: bool = True) -> Counter[str]:
    """How many wait, by hash, in line (and inflight) or parked; who has none is like nobody."""
    infos = pending.inadmissible_infos() if parked else pending.active_infos()
    if not parked and inflight and pending.inflight is not None:
        infos = [*infos, pending.inflight]
    return Counter(info.hash for info in infos if info.hash)


def makes(trace: list[Json]) -> bool:
    """Whether the queues are made in the trace."""
    made = ("NewManager", "newClusterQueue", "newSchedulingHashCounts")
    return any(name in step["op"] for step in trace for name in made)
