"""Queues: recorded calls into Kueue's queue cache, made on our queues, and what each returned."""

from itertools import permutations
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case, pass_over
from tests.conformance.engine_queue_calls import QueueCalls, hashes, makes, tried
from tests.unit.engine.builders import retried
from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine.options import Options
from turnstile.engine.queue import consumption as usage
from turnstile.engine.queue.admissible import backoff_over, is_admissible
from turnstile.engine.queue.heaps import Pending
from turnstile.engine.queue.requeueing import requeue
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import PENDING_EVALUATION
from turnstile.engine.state import State

Json = Any


class Replay(QueueCalls):
    """Queues and managers by their recorded reference."""

    def call(self, op: str, args: dict[str, Json], results: Json) -> None:
        """One recorded call. After one whose input was not taken down nothing can be compared any more."""
        if self.blind:
            return
        scope, _, name = op.rpartition(".")
        if scope.endswith(("Manager", "testInadmissibleWorkloadRequeuer")) or name.startswith("NewManagerForUnitTests"):
            self.manager(name, args, results)
        elif name in {"newClusterQueue", "newClusterQueueImpl"}:
            self.make(args, results)
        elif name == "newSchedulingHashCounts":
            self.classes[results[0]["$ref"]] = Pending()
        elif scope.endswith("schedulingHashCounts"):
            self.class_counts(self.classes[args["$recv"]["$ref"]], name, args, results)
        elif scope.endswith("queue.ClusterQueue") or name == "queueInadmissibleWorkloads":
            self.cluster_queue(name, args, results)
        elif op == "clock.set":
            self.now = world.when(args["now"])
        elif op in {"client.create", "client.update", "client.build"}:
            for item in args.get("objects") or [args.get("object")]:
                self.see(item or {})
        elif op == "client.delete":
            self.objects.pop(world.key_of(args.get("object") or {}), None)
        elif op == "workload.NewInfo" and results and isinstance(results[0], dict) and "Obj" in results[0]:
            info = self.info(results[0])
            self.made[info.key] = info
        elif name == "SetForTest":
            seen = world.when(args["lastUpdate"]) if args.get("lastUpdate") else self.now
            (self.state or self.standalone).sharing.set_consumed(args["lqKey"], args["resources"] or {}, seen)
        elif name == "PushPenalty":
            line = (self.state or self.standalone).sharing.of(args["lqKey"])
            line.push(args["wlKey"], usage.from_quantities(args["penalty"] or {}), self.now)
        elif scope.endswith("queue.LocalQueue") and name == "AddOrUpdate":
            info = self.info(args["info"])
            self.local_items.setdefault(args["$recv"]["$ref"], {})[info.key] = info
        elif not self.queues:
            return
        elif name == "stickyMatches":
            queue = next(iter(self.queues.values()))
            key = args["workload"].lstrip("/")
            self.expect(op, results[0], queue.pending.first == key)
        elif name == "InsertInadmissible":
            info = self.info(args["wInfo"])
            next(iter(self.queues.values())).pending.inadmissible[info.key] = info
        elif name == "GetInadmissible":
            parked = next(iter(self.queues.values())).pending.inadmissible_infos()
            have = next((info for info in parked if info.key == args["key"].lstrip("/")), None)
            want = self.info(results[0]) if results and results[0] else None
            self.expect(op, want and (want.key, tried(want)), have and (have.key, tried(have)))
        elif op.endswith("inadmissibleWorkloads.len"):
            self.expect(op, results[0], len(next(iter(self.queues.values())).pending.inadmissible_infos()))
        elif op.endswith("inadmissibleWorkloads.delete"):
            next(iter(self.queues.values())).pending.remove(args["key"])
        elif name == "hasKey":
            queue = next(iter(self.queues.values()))
            self.expect(
                op, results[0], args["key"].lstrip("/") in {info.key for info in queue.pending.inadmissible_infos()}
            )

    def see(self, item: Json) -> None:
        """An object of the API."""
        kind = item.get("kind")
        if kind == "Workload":
            loaded = world.load(Workload, item)
            self.objects[loaded.metadata.key] = loaded
        elif kind == "Namespace":
            self.namespaces = True
            for state in (self.standalone, self.state):
                if state is not None:
                    state.put_namespace(item["metadata"]["name"], item["metadata"].get("labels") or {})
        elif kind == "LocalQueue":
            local = world.load(LocalQueue, item)
            self.locals[world.key_of(item)] = local
            self.standalone.put_local_queue(local, self.now)

    def make(self, args: dict[str, Json], results: Json) -> None:
        """A queue that no manager holds."""
        options = Options(
            gates=self.gates,
            admission_fair_sharing=world.usage_sharing(args.get("afsConfig")),
            wait_for_pods_ready=world.pods_ready(args.get("wo")),
        )
        before, self.standalone = self.standalone, State(options)
        self.standalone.queues.namespaces.update(before.queues.namespaces)
        self.standalone.queues.local_queues.update(before.queues.local_queues)
        self.standalone.sharing.usages = before.sharing.usages
        # one that no object of the API made gets its selector by hand, which is not recorded: it selects everything
        api = world.load(ApiClusterQueue, args.get("cq") or {"spec": {"namespaceSelector": {}}})
        queue = self.standalone.ledger.put_cluster_queue(api)
        self.standalone.sharing.arrange(queue)
        for each in self.table.get("inadmissibleHashes") or ():
            queue.pending.make_class_inadmissible(each, PENDING_EVALUATION)
        self.queues[results[0]["$ref"]] = queue

    def add_local_queue(self, local: LocalQueue) -> None:
        """A LocalQueue comes with the workloads of the API that name it."""
        assert self.state is not None
        for item in self.objects.values():
            if item.metadata.namespace == local.metadata.namespace and item.spec.queue_name == local.metadata.name:
                self.state.put_workload(item, self.now)
        self.state.put_local_queue(local, self.now)

    def _in_line(self) -> int:
        """How many stand in line, in all queues."""
        assert self.state is not None
        return sum(len(queue.pending.active_infos()) for queue in self.state.cluster_queues.values())

    def queue_of(self, key: str) -> str | None:
        """The ClusterQueue of a waiting workload."""
        assert self.state is not None
        info = self.state.queues.waiting.get(key)
        return self.line_of(info.local_queue) if info is not None else None

    def line_of(self, key: str) -> str | None:
        """The ClusterQueue of a LocalQueue."""
        assert self.state is not None
        local = self.state.queues.local_queues.get(key)
        return local.cluster_queue if local is not None and local.api is not None else None

    def manager(self, name: str, args: dict[str, Json], results: Json) -> None:
        """Calls on the manager of all queues."""
        if name.startswith("NewManagerForUnitTests"):
            sharing = next(
                (
                    option["sets"]["admissionFairSharingConfig"]
                    for option in args.get("options") or ()
                    if "admissionFairSharingConfig" in option.get("sets", {})
                ),
                None,
            )
            self.state = State(Options(gates=self.gates, admission_fair_sharing=world.usage_sharing(sharing)))
            self.state.queues.namespaces = dict(self.standalone.queues.namespaces)
            return
        state = self.state
        if state is None:
            return
        match name:
            case "AddClusterQueue" | "UpdateClusterQueue":
                state.put_cluster_queue(world.load(ApiClusterQueue, args["cq"]), self.now)
                for local in self.locals.values() if name == "AddClusterQueue" else ():
                    if local.spec.cluster_queue == args["cq"]["metadata"]["name"]:
                        self.add_local_queue(local)
            case "DeleteClusterQueue":
                state.drop_cluster_queue(args["cq"]["metadata"]["name"])
            case "AddOrUpdateCohort":
                state.put_cohort(world.load(Cohort, args["cohort"]))
            case "DeleteCohort":
                state.drop_cohort(args.get("cohortName") or args["cohort"]["metadata"]["name"])
            case "AddLocalQueue" | "UpdateLocalQueue":
                local = world.load(LocalQueue, args.get("q") or args.get("newQ"))
                if name == "AddLocalQueue":
                    self.add_local_queue(local)
                else:
                    state.put_local_queue(local, self.now)
            case "DeleteLocalQueue":
                state.drop_local_queue(world.local_queue_key(args["q"]))
            case "AddOrUpdateWorkload" | "UpdateWorkload":
                loaded = world.load(Workload, args.get("w") or args.get("newWl") or args.get("wl"))
                state.put_workload(loaded, self.now)
                error = bool(results and isinstance(results[0], dict) and "$error" in results[0])
                if error:
                    found = any(queue.pending.find(loaded.metadata.key) for queue in state.cluster_queues.values())
                    self.expect(name, "not in line", "in line" if found else "not in line")
            case "DeleteWorkload" | "DeleteAndForgetWorkload":
                state.drop_workload(args["wlKey"].lstrip("/"))
            case "getClusterQueue":
                if args["cqName"] in state.cluster_queues:
                    self.queues[results[0]["$ref"]] = state.cluster_queues[args["cqName"]]
            case "Heads":
                want = {
                    world.key_of(world.object_of(item.get("Info"))): (item.get("Info") or {}).get("ClusterQueue", "")
                    for item in (results or [None])[0] or ()
                }
                have = {}
                for queue in state.cluster_queues.values():
                    if queue.name.startswith("pending-"):  # what the recorded status checker refuses
                        continue
                    head = queue.pending.pop()
                    if head is not None:
                        have[head.key] = queue.name
                self.expect(name, want, have)
            case "RequeueWorkload":
                key = world.key_of(world.object_of(args.get("info")))
                latest = self.objects.get(key)
                done = False
                if latest is not None and is_admissible(latest, state.options):
                    info = Info(latest, state.surroundings)
                    line = state.queues.local_queues.get(info.local_queue)
                    queue_of = state.cluster_queues.get(line.cluster_queue) if line is not None else None
                    if queue_of is not None:
                        before = self._places(queue_of, key)
                        back = backoff_over(latest, self.now)
                        requeue(queue_of, info, args["reason"], args["quotaReservedReason"], backoff_over=back)
                        done = self._places(queue_of, key) != before
                self.expect(name, results[0], done)
            case "ProcessRequeues":
                before = self._in_line()
                retried(state, self.now)
                if results and isinstance(results[0], int):
                    self.expect(name, results[0], self._in_line() - before)
            case "PendingWorkloads":
                have = state.questions.local_queue_counts(world.local_queue_key(args["q"])).pending
                self.expect(name, results[0], have)
            case "ClusterQueueForWorkload":
                found = self.queue_of(world.key_of(args.get("wl") or args.get("w")))
                self.expect(name, results, [found or "", found in state.cluster_queues])
            case "ClusterQueueFromLocalQueue":
                found = self.line_of(args["localQueueKey"])
                self.expect(name, results, [found or "", found is not None])
            case "QueueForWorkloadExists":
                item = world.load(Workload, args.get("wl") or args.get("w"))
                line = f"{item.metadata.namespace}/{item.spec.queue_name}"
                self.expect(name, results[0], self.line_of(line) is not None)
            case "Pending":
                cq = args.get("cq") or args.get("clusterQueue") or {}
                key = cq["metadata"]["name"] if isinstance(cq, dict) else cq
                self.expect(name, results[0], state.questions.queue_counts(key).pending)
            case "PendingWorkloadsInfo":
                want = [world.key_of(world.object_of(item)) for item in (results or [None])[0] or ()]
                self.expect(name, want, state.questions.pending(args["cqName"]))
            case "Dump" | "DumpInadmissible":
                have = {}
                for queue in state.cluster_queues.values():
                    infos = queue.pending.active_infos() if name == "Dump" else queue.pending.inadmissible_infos()
                    if infos:
                        have[queue.name] = sorted(info.key for info in infos)
                recorded = (results or [{}])[0] or {}
                want = {queue: sorted(key.lstrip("/") for key in keys) for queue, keys in recorded.items()}
                self.expect(name, want, have)
            case _:
                pass_over(f"cache/queue.Manager.{name}")

    def compare(self, recorded: dict[str, Json]) -> None:
        """A comparison of the recorded test that no call answers, told by what it is made of."""
        got, of = recorded.get("got"), str(recorded.get("of"))
        if of in {"gotPending", "gotInadmissible"} and self.breakdown is not None:
            rows = got if isinstance(got, list) else []
            have = self.breakdown[of == "gotInadmissible"]
            self.expect(of, sum(row["value"] for row in rows if "value" in row), have)
        if of.startswith("cq.workloads.schedulingHashes.") and self.queues:
            got = got or {}
            pending = next(iter(self.queues.values())).pending
            have = hashes(pending, parked=of.endswith("inadmissible"), inflight=False)
            self.expect(of, got, dict(have))
        if self.state is None:
            return
        items = {
            local.key: {f"/{key}" if "/" not in key else key for key in local.items}
            for local in self.state.queues.local_queues.values()
            if local.api is not None
        }
        if of.endswith(("workloadAssignedQueues", "assignedWorkloads")) and isinstance(got, dict):
            mine = {f"/{key}" if "/" not in key else key: line for line, keys in items.items() for key in keys}
            self.expect(of, {key: got.get(key) for key in mine}, mine)
        elif of == "workloadNames" and isinstance(got, list):
            self.expect(of, sorted(got), sorted(key for keys in items.values() for key in keys))
        elif of == "queueMembers" and isinstance(got, dict):
            self.expect(of, {line: sorted(keys or ()) for line, keys in got.items()}, _sorted(items))


def _sorted(sets: dict[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(keys) for name, keys in sets.items()}


def _stands(case: Case) -> bool:
    return bool((case.body.get("fixture") or {}).get("manager"))


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Replay a recorded run; None if nothing in it has a counterpart here."""
    trace = list(run.get("trace") or ())
    if not makes(trace) and not _stands(case):  # a part of the test before it made the queues
        earlier = [step for other in case.body["runs"] if other is not run for step in other.get("trace") or ()]
        trace = [*earlier, *trace] if makes(earlier) else []
    replay = _replayed(case, run, trace)
    if replay.found and replay.guessed and replay.state is not None:
        others = (_replayed(case, run, trace, names) for names in permutations(replay.state.cluster_queues))
        replay = next((other for other in others if not other.found), replay)
    return replay.found if replay.compared else None


def _replayed(case: Case, run: dict[str, Json], trace: list[Json], names: tuple[str, ...] = ()) -> Replay:
    replay = Replay(case, run, names)
    for step in trace:
        replay.call(step["op"], step.get("args") or {}, step.get("results") or [])
    last = {each.get("of"): each for each in run.get("checks") or ()}  # the earlier ones were made on the way
    for each in last.values() if not replay.blind else ():
        replay.compare(each)
    return replay
