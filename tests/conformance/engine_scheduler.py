"""Parts of the scheduler, call by call: who comes first, what still fits, who is put back where, what counts at once.

Every call is dispatched by its name; one that has no counterpart here is passed over.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.conformance import engine_cache, world
from tests.conformance.cases import Case, pass_over
from tests.conformance.engine_dumps import number
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine.cycle import tournament as order
from turnstile.engine.cycle.cycle import Cycle, _Run
from turnstile.engine.cycle.entries import Entry, to_reserve
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.pace import Pace, Sliced, finish
from turnstile.engine.preemption import fair
from turnstile.engine.preemption.candidates import WITHOUT_BORROWING, Candidate
from turnstile.engine.preemption.targets import Target, Targets
from turnstile.engine.queue.clusterqueue import ClusterQueue as Queue
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota import shares
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ordering import effective_priority
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.trial import Trial
from turnstile.engine.quota.usage import Usage
from turnstile.engine.state import State

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Replay a recorded run; None if nothing in it has a counterpart here."""
    replay = Replay(case, run)
    for step in engine_cache.history(case, run):
        replay.call(step["op"], step.get("args") or {}, step.get("results") or [])
    return replay.found if replay.compared else None


class Replay(engine_cache.Replay):
    """A scheduler with its cache and its queues."""

    def __init__(self, case: Case, run: dict[str, Json]) -> None:
        super().__init__(case, run)
        self.run: _Run | None = None
        self.heads: dict[str, Entry] = {}
        self.left: dict[str, str] = {}

    def call(self, op: str, args: dict[str, Json], results: list[Json]) -> None:
        """One recorded call."""
        super().call(op, args, results)
        scope, _, name = op.rpartition(".")
        part = scope.partition(".")[0]
        if op.startswith("cache/queue.Manager."):
            part = "queues"
        elif op.startswith("cache/queue/afs."):
            part = "usage"
        elif part.startswith("scheduler"):
            part = part.rpartition("/")[2]
        else:
            return
        handler: Callable[[Json, list[Json]], None] | None = getattr(self, f"_{part}_{world.snake(name)}", None)
        if handler is not None:
            handler(args, results)
        elif part in {"queues", "usage"}:  # others only ask, or are told by what went in
            pass_over(op)

    def entry(self, recorded: Json) -> Entry:
        """An entry that no cycle made."""
        head = recorded.get("Head") or {}
        info = Info(world.load(Workload, world.object_of(head.get("Info"))), self.state.surroundings)
        entry = Entry(info, Queue("q"))
        entry.nomination = Nomination(info.key) if head.get("IsPreemptor") else None
        return entry

    # Order

    def _scheduler_less(self, args: Json, results: list[Json]) -> None:
        """Which of two comes first in a tournament; their shares and what they borrow are given."""
        gates = self.gates
        tournament = order.Tournament(
            lambda _: {},
            Pace(),
            non_borrowing_first=gates.fair_sharing_prioritize_non_borrowing,
            priority_first=gates.priority_sorting_within_cohort,
            preemptors_first=gates.prioritize_preemptor_workloads,
        )
        values = {
            (item["key"].get("parentCohort", ""), item["key"].get("workloadKey", "")): item.get("value") or {}
            for item in self.table.get("drsValues") or ()
        }
        wanted = self.table.get("requestedFRs") or {}

        def rank(recorded: Json) -> order.Rank:
            entry = self.entry(recorded)
            share = values.get((args.get("parentCohort", ""), entry.info.key), {})
            asked = {key for key, amount in (wanted.get(entry.info.key) or {}).items() if number(amount) > 0}
            borrowed = {f"{each['Flavor']}/{each['Resource']}" for each in share.get("borrowedFRs") or ()}
            value = shares.weighted(float(share.get("unweightedRatio", 0)), float(share.get("fairWeight", 0)))
            return tournament.rank(entry, value, borrows=not asked.isdisjoint(borrowed), direct=False)

        self.expect("less", results, [rank(args["a"])[:5] < rank(args["b"])[:5]])

    # What counts

    def _scheduler_should_apply_entry_penalty(self, args: Json, results: list[Json]) -> None:
        """Whether an admission counts as usage of its LocalQueue before its usage shows."""
        sharing = world.usage_sharing(self.table.get("afsConfig"))
        state = State(replace(self.state.options, admission_fair_sharing=sharing))
        mode = self.table.get("admissionMode")
        spec = {"admissionScope": {"admissionMode": mode}} if mode else {}
        state.put_cluster_queue(world.load(ClusterQueue, {"metadata": {"name": "cq"}, "spec": spec}), self.now)
        recorded = (args["e"].get("Head") or {}).get("Info")
        info = Info(world.load(Workload, world.object_of(recorded)), state.surroundings)
        state.sharing.push_penalty(info, state.cluster_queues["cq"], self.now)
        self.expect("penalty", results, [any(line.penalties for line in state.sharing.usages.values())])

    def _usage_set_for_test(self, args: Json, results: list[Json]) -> None:
        """What a LocalQueue consumed before."""
        seen = world.when(args.get("lastUpdate"))
        self.state.sharing.set_consumed(args["lqKey"], args.get("resources") or {}, seen)

    def _usage_has_pending_penalty(self, args: Json, results: list[Json]) -> None:
        line = self.state.sharing.usages.get(args["lqKey"])
        self.expect("penalty", results, [line is not None and any(line.penalty.values())])

    def _scheduler_fits(self, args: Json, results: list[Json]) -> None:
        """Whether usage fits once victims are gone; that an entry wants the same victims is found out before."""
        queue = self.seen.cluster_queues[args["cq"]["name"]]
        run = _Run(self.seen, self.now, Pace(math.inf))
        victims = [(self.info(item), False) for item in (args.get("preemptedWorkloads") or {}).values()]
        victims += [(self.info(item.get("WorkloadInfo") or {}), True) for item in args.get("newTargets") or ()]
        entry, earlier = (Entry(Info(Workload(), self.seen.surroundings), queue) for _ in range(2))
        taken: dict[str, None] = {}
        found: dict[bool, list[Target]] = {False: [], True: []}
        for (holder, info), own in victims:
            if holder is not None and info.key not in taken:
                taken[info.key] = None
                found[own].append(Target(info, holder, ""))
        earlier.targets, entry.targets = Targets(found[False]), Targets(found[True])
        finish(run.claims.preempt(earlier, run.pace))
        entry.assignment = Assignment(LastAssignment([], 0, 0, ""))
        pair = self.seen.surroundings.catalog.pair
        usage = ((args["usage"].get("Quota")) or {}).get("Assigned") or {}
        entry.assignment.usage = Usage({pair(*key.split("/", 1)): number(amount) for key, amount in usage.items()})
        if not args["usage"].get("TAS"):
            self.expect("fits", results[0] in {0, "Ok"}, finish(run.claims.fits_then(entry, Pace())))

    def _preemption_merge_with_targets(self, args: Json, results: list[Json]) -> None:
        """Victims of earlier entries, and those of one more: each once."""
        run = _Run(self.seen, self.now, Pace(math.inf))
        infos = [*(args["$recv"] or {}).values(), *((each["WorkloadInfo"]) for each in args["targets"] or ())]
        for _, info in map(self.info, infos):
            entry = Entry(Info(Workload(), self.seen.surroundings), Queue("q"))
            entry.targets = Targets([Target(info, entry.queue, "")])
            finish(run.claims.preempt(entry, run.pace))
        self.expect("victims", sorted(results[0] or ()), sorted(run.claims.preempted))

    def _preemption_run_first_fs_strategy(self, args: Json, results: list[Json]) -> None:
        """Victims by the first strategy, which here says yes the n-th time that it is asked."""
        asked = itertools.count(1)
        last = self.table.get("passOnEvaluation")
        retry: list[Candidate] = []
        self.search(
            args, "candidates", results, lambda each, found: each._first(found, lambda *_: next(asked) == last, retry)
        )
        want = [world.key_of(world.object_of(item)) for item in (results[2] if len(results) > 2 else None) or ()]
        self.expect("left for the second", want, [candidate.info.key for candidate in retry])

    def _preemption_run_second_fs_strategy(self, args: Json, results: list[Json]) -> None:
        """Victims by the second strategy."""
        strategy = fair.STRATEGIES["LessThanInitialShare"]
        self.search(args, "retryCandidates", results, lambda each, found: each._second(found, strategy))

    def search(
        self,
        args: Json,
        given: str,
        results: list[Json],
        step: Callable[[fair.FairPreemption, list[Candidate]], Sliced[bool]],
    ) -> None:
        """A step of the search for victims under fair sharing; what the preemptor asks for is counted already."""
        context, state, pair = args["preemptionCtx"], self.seen, self.seen.surroundings.catalog.pair
        own = state.cluster_queues[context["preemptorCQ"]["name"]]
        asked = (context["workloadUsage"].get("Quota") or {}).get("Assigned") or {}
        ranking = state.preemptor(self.now)
        candidates = []
        for recorded in args[given] or ():
            queue, info = self.info(recorded)
            assert queue is not None
            candidates.append(Candidate(info, queue, ranking.collector.rank(info, queue, own), WITHOUT_BORROWING, None))
        with Trial() as trial:
            search = fair.FairPreemption(
                own,
                Usage({pair(*key.split("/", 1)): number(amount) for key, amount in asked.items()}),
                {pair(*key.split("/", 1)) for key in context["frsNeedPreemption"]},
                state.cluster_queues,
                within_nominal_gate=self.gates.fair_sharing_preempt_within_nominal,
                trial=trial,
                pace=Pace(math.inf),
            )
            fits = finish(step(search, candidates))
        want = [(world.key_of(world.object_of(item["WorkloadInfo"])), item["Reason"]) for item in results[1] or ()]
        have = [(candidate.info.key, reason) for candidate, reason in search.targets]
        self.expect("fits, and victims", (results[0], want), (fits, have))

    def _scheduler_mark_skipped(self, args: Json, results: list[Json]) -> None:
        """A skipped entry keeps how far its scan of flavors came, or does not."""
        run = _Run(self.state, self.now, Pace(math.inf))
        entry = Entry(Info(Workload(), self.state.surroundings), Queue("q"))
        entry.info.last_assignment = LastAssignment([{"cpu": 0}], 0, 0, "")
        run.processor.skip(entry, args.get("msg", ""))
        if "wantLastAssignmentNil" in self.table:
            self.expect("scan forgotten", self.table["wantLastAssignmentNil"], entry.info.last_assignment is None)

    def _flavorassigner_requires_borrowing(self, args: Json, results: list[Json]) -> None:
        """An assignment that borrows reserves what it asks for past the quota of its queue."""
        pair = self.state.surroundings.catalog.pair("default", "cpu")
        assignment = Assignment(LastAssignment([], 0, 0, ""))
        assignment.borrowing, assignment.usage = int(self.table.get("borrowing") or 0), Usage({pair: 1})
        self.expect("borrows", results, [to_reserve(Queue("q"), assignment).quota[pair] > 0])

    def _preemption_priority_info(self, args: Json, results: list[Json]) -> None:
        """Effective priority, its base and its boost."""
        workload = world.load(Workload, args.get("w") or args.get("wl"))
        effective, base = effective_priority(workload, boost=self.gates.priority_boost), workload.spec.priority or 0
        self.expect("priorities", results, [effective, base, effective - base])

    # Queues

    def _on_cache_delete_workload(self, args: Json, results: list[Json]) -> None:
        """The cache forgets a workload; that those who are parked are tried again is a call of its own."""
        key = str(args.get("wlKey", "")).lstrip("/")
        self.left[key] = self.state.ledger.holders.get(key, "")
        marked = dict(self.state.retries.cluster_queues)
        super()._on_cache_delete_workload(args, results)
        self.state.retries.cluster_queues = marked

    def _queues_queue_associated_inadmissible_workloads_after(self, args: Json, results: list[Json]) -> None:
        """What is parked in the tree that a workload left is tried again."""
        self.state.retries.mark(self.left.get(str(args.get("wlKey", "")).lstrip("/"), ""))

    def _queues_add_cluster_queue(self, args: Json, results: list[Json]) -> None:
        self._on_cache_add_cluster_queue(args, results)

    def _queues_add_local_queue(self, args: Json, results: list[Json]) -> None:
        """With it comes what waits in it."""
        key = world.local_queue_key(args["q"])
        for (kind, _), item in self.objects.items():
            if kind == "Workload":
                line = f"{item['metadata'].get('namespace', '')}/{(item.get('spec') or {}).get('queueName', '')}"
                if line == key:
                    self.state.put_workload(world.load(Workload, item), self.now)
            elif kind == "Namespace":
                self.state.put_namespace(item["metadata"]["name"], item["metadata"].get("labels") or {})
        self.state.put_local_queue(world.load(LocalQueue, args["q"]), self.now)

    def _queues_update_cluster_queue(self, args: Json, results: list[Json]) -> None:
        self._on_cache_update_cluster_queue(args, results)

    def _queues_update_local_queue(self, args: Json, results: list[Json]) -> None:
        self._on_cache_add_local_queue(args, results)

    def _queues_delete_local_queue(self, args: Json, results: list[Json]) -> None:
        self._on_cache_delete_local_queue(args, results)

    def _queues_add_or_update_workload(self, args: Json, results: list[Json]) -> None:
        self.state.put_workload(world.load(Workload, args.get("w") or args.get("wl")), self.now)

    def _queues_delete_workload(self, args: Json, results: list[Json]) -> None:
        self._on_cache_delete_workload(args, results)

    def _queues_queue_inadmissible_workloads(self, args: Json, results: list[Json]) -> None:
        """What is parked in the trees of these queues is tried again."""
        for name in args.get("cqNames") or ():
            self.state.retries.mark(name)

    def _queues_heads(self, args: Json, results: list[Json]) -> None:
        """The heads, which a cycle looks at now."""
        self.run = _Run(self.state, self.now, Pace(math.inf))
        self.heads = {entry.info.key: entry for entry in self.run._heads()}
        want = sorted(world.key_of(world.object_of(item.get("Info"))) for item in (results or [None])[0] or ())
        self.expect("heads", want, sorted(self.heads))

    def _scheduler_requeue_and_update(self, args: Json, results: list[Json]) -> None:
        """A head goes back, in line or parked, with the reason why it waits."""
        recorded = args["e"]
        entry = self.heads.pop(world.key_of(world.object_of((recorded.get("Head") or {}).get("Info"))), None)
        if entry is None or self.run is None:
            return
        entry.status, entry.message = recorded.get("status", ""), recorded.get("inadmissibleMsg", "")
        entry.quota_reason = recorded.get("quotaReservedReason", "")
        entry.requeue_reason = recorded.get("requeueReason", "")
        self.run.ordered = [entry]
        result = Cycle(1)
        for _ in self.run._end(result):
            pass
        want = {each["type"]: each for each in (self.table.get("wantStatus") or {}).get("conditions") or ()}
        if "QuotaReserved" in want and entry.quota_reason and self.gates.unadmitted_workloads_observability:
            told = result.decisions[0]
            have = [told.condition_reason, told.message]
            self.expect("reason", [want["QuotaReserved"]["reason"], want["QuotaReserved"]["message"]], have)

    def _queues_dump(self, args: Json, results: list[Json], place: str = "active_infos") -> None:
        have = {
            queue.name: sorted(keys)
            for queue in self.state.cluster_queues.values()
            if (keys := [info.key for info in getattr(queue.pending, place)()])
        }
        recorded = (results or [None])[0] or {}
        want = {queue: sorted(key.lstrip("/") for key in keys) for queue, keys in recorded.items()}
        self.expect(place, want, have)

    def _queues_dump_inadmissible(self, args: Json, results: list[Json]) -> None:
        self._queues_dump(args, results, "inadmissible_infos")
