"""The state of the engine: what exists, who waits, who holds quota. Fed with API objects, read by cycles and people.

It is composed of owners, each of which keeps one thing and knows none of those above it: `ledger` and `reservations`
(who holds quota), `queues` (who waits), `activity` (whether a ClusterQueue admits), `node_table` (where pods of
flavors with a Topology may be placed), `second_passes` (who holds quota and needs places), `retries`, `deadlines`,
`recounts`, `nominations`, `protections`, `sharing`, `log` (which events wait for the end of a cycle), and `questions`.
An event concerns several of them, in an order: that is what this module knows.

An admission that a cycle decided is *assumed*: its quota counts until the write is seen (`put_workload` with the
reservation) or `forget` says that it failed. Events that come while a cycle is under way are kept and applied when it
ends, so a cycle sees one instant. Must never do I/O or read a clock: `now` is an argument, in Unix seconds.
"""

from collections.abc import Mapping

from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Node, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.effectivequota import with_effective_quota
from turnstile.api.localqueue import LocalQueue as ApiLocalQueue
from turnstile.api.resourceclaim import ResourceClaimSpec
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.devices.charges import UNSETTLED
from turnstile.engine.events import event
from turnstile.engine.instants import Instant
from turnstile.engine.log import Listener, Log
from turnstile.engine.options import Options
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.preemption.search import Preemptor
from turnstile.engine.questions import Questions
from turnstile.engine.queue.activity import ActivityJudge, Check
from turnstile.engine.queue.changes import by_preemption, could_help, same_to_others
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.deadlines import Deadlines
from turnstile.engine.queue.nodetable import NodeTable
from turnstile.engine.queue.nominations import Nominations
from turnstile.engine.queue.protections import Protections
from turnstile.engine.queue.queues import Queues
from turnstile.engine.queue.recounts import Recounts
from turnstile.engine.queue.retries import Retries
from turnstile.engine.queue.secondpasses import SecondPasses
from turnstile.engine.queue.sharing import UsageSharing
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ledger import Ledger, weight_of
from turnstile.engine.quota.ordering import birth
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.engine.reservations import Reservations


class State:
    """Everything the engine knows.

    `put_*` takes an object as it is now, `drop_*` says that it is gone; both may be repeated and come in any order. A
    change that lets inadmissible Workloads be tried again is marked at once and carried out at the start of the next
    cycle. `listener` is told of all that happens.
    """

    __slots__ = (
        "activity",
        "deadlines",
        "ledger",
        "log",
        "node_table",
        "nominations",
        "options",
        "protections",
        "questions",
        "queues",
        "recounts",
        "reservations",
        "retries",
        "second_passes",
        "sharing",
        "surroundings",
        "workloads",
    )

    def __init__(self, options: Options | None = None, listener: Listener | None = None) -> None:
        self.options = options = options or Options()
        self.surroundings = Surroundings(options)
        self.log = Log(listener)
        self.ledger = ledger = Ledger(self.surroundings.catalog, ClusterQueue)
        self.workloads: dict[str, Info] = {}
        """The latest version of each Workload that exists."""
        self.queues = queues = Queues(ledger.cluster_queues, options)
        self.retries = retries = Retries(ledger, queues)
        self.recounts = Recounts(self.surroundings, queues, retries)
        self.activity = ActivityJudge(ledger, retries, topologies=options.gates.topology_aware_scheduling)
        self.node_table = NodeTable(self.surroundings.nodes, self.activity, ledger, retries, options)
        self.nominations = Nominations(ledger, retries)
        self.deadlines = Deadlines()
        self.protections = Protections(options.longest_minimum_run_time)
        self.reservations = Reservations(ledger, self.nominations, retries, options, self.node_table)
        self.sharing = UsageSharing(ledger.cluster_queues, queues.local_queues, options)
        self.second_passes = SecondPasses(pods_stay=options.gates.skip_reassignment_for_pod_owned_workloads)
        self.questions = Questions(queues, ledger, self.log, options)

    @property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        """ClusterQueues by name."""
        return self.ledger.cluster_queues

    # What quota is made of

    @event
    def put_flavor(self, flavor: ResourceFlavor) -> bool | None:
        """A ResourceFlavor exists or changed."""
        if not self.activity.put_flavor(flavor):
            return False
        self.node_table.follow_flavor(flavor.metadata.name)
        return True

    @event
    def drop_flavor(self, name: str) -> None:
        """A ResourceFlavor is gone."""
        self.activity.drop_flavor(name)
        self.node_table.follow_flavor(name)

    @event
    def put_topology(self, name: str, levels: tuple[str, ...] = ()) -> bool | None:
        """A Topology exists; the node labels of its levels, the widest first."""
        if not self.activity.put_topology(name, levels):
            return False
        self.node_table.follow_topology(name)
        return True

    @event
    def drop_topology(self, name: str) -> None:
        """A Topology is gone."""
        self.activity.drop_topology(name)
        self.node_table.follow_topology(name)

    @event
    def put_node(self, node: Node) -> bool:
        """A Node exists or changed."""
        return self.node_table.put_node(node)

    @event
    def drop_node(self, name: str) -> bool:
        """A Node is gone."""
        return self.node_table.drop_node(name)

    @event
    def put_pod(self, key: str, node: str, requests: Mapping[str, int], workload: str = "") -> bool:
        """A pod is bound and may run, or asks for another amount. It names the Workload (`namespace/name`), if any."""
        return self.node_table.put_pod(key, node, requests, workload)

    @event
    def drop_pod(self, key: str) -> bool:
        """A pod is gone, or has ended."""
        return self.node_table.drop_pod(key)

    @event
    def put_admission_check(self, name: str, *, active: bool, controller: str = "") -> bool | None:
        """An AdmissionCheck exists; whether it is ready, and who answers it."""
        return self.activity.put_check(name, Check(active, controller))

    @event
    def drop_admission_check(self, name: str) -> None:
        """An AdmissionCheck is gone."""
        self.activity.drop_check(name)

    @event
    def put_device_class(self, name: str, given: DeviceClass | None, now: Instant) -> bool:
        """A DeviceClass exists or changed, or is gone if it is None."""
        return self.recounts.put_device_class(name, given, now)

    @event
    def put_claim(self, kind: str, key: str, given: ResourceClaimSpec | None, now: Instant) -> bool:
        """A ResourceClaim or ResourceClaimTemplate (`namespace/name`) exists or changed, or is gone if it is None."""
        return self.recounts.put_claim(kind, key, given, now)

    @event
    def put_resource_slice(self, name: str, given: ResourceSlice | None, now: Instant) -> bool:
        """A ResourceSlice exists or changed, or is gone if it is None."""
        return self.recounts.put_resource_slice(name, given, now)

    @event
    def put_cluster_queue(self, api: ApiClusterQueue, now: Instant) -> bool | None:
        """A ClusterQueue exists or changed. Raises InvalidValue for a malformed quantity, and changes nothing."""
        if self.options.gates.dynamic_quota_orchestration:
            api = with_effective_quota(api)
        known = self.cluster_queues.get(api.metadata.name)
        if known is not None and known.says_the_same(api):
            known.api = api
            return False
        old_root = known.node.root.name if known is not None and not self.ledger.cyclic(known.node) else None
        queue = self.ledger.put_cluster_queue(api)
        self.activity.put(queue)
        self.node_table.follow_queue(queue)
        self.sharing.arrange(queue)
        if known is None:
            for info in queue.workloads.values():
                self.sharing.recall_penalty(info, now)
            self.reservations.carry_all(queue)
            self.queues.open_all(queue, now)
        self.retries.mark(queue.name)
        if old_root is not None:
            self.retries.mark_cohort(old_root)
        return None

    @event
    def drop_cluster_queue(self, name: str) -> None:
        """A ClusterQueue is gone; its workloads wait for it to come back."""
        queue = self.cluster_queues.get(name)
        if queue is None:
            return
        if not self.ledger.cyclic(queue.node):
            self.retries.mark_cohort(queue.node.root.name)
        self.ledger.drop_cluster_queue(name)
        self.activity.drop(name)
        self.node_table.drop_queue(name)

    @event
    def put_cohort(self, api: Cohort) -> bool | None:
        """A Cohort exists or changed. Raises InvalidValue for a malformed quantity."""
        if self.options.gates.dynamic_quota_orchestration:
            api = with_effective_quota(api)
        known = self.ledger.declared.get(api.metadata.name)
        if known is not None and known.spec == api.spec:
            return False
        old_root = self.ledger.root_of_cohort(api.metadata.name)
        node = self.ledger.put_cohort(api)
        self.retries.mark_cohort(old_root)
        self.retries.mark_cohort(node.name)
        return None

    @event
    def drop_cohort(self, name: str) -> None:
        """A Cohort object is gone."""
        self.retries.mark_cohort(self.ledger.root_of_cohort(name))
        self.retries.mark_cohort(name)
        self.ledger.drop_cohort(name)

    @event
    def put_workload_priority_class(self, given: WorkloadPriorityClass) -> bool:
        """A WorkloadPriorityClass exists or changed; its priority is in the Workloads."""
        return self.protections.put_class(given) and self._search_anew()

    @event
    def drop_workload_priority_class(self, name: str) -> bool:
        """A WorkloadPriorityClass is gone."""
        return self.protections.drop_class(name) and self._search_anew()

    def _search_anew(self) -> bool:
        """Let all waiting Workloads look for victims again: others may be preempted than before."""
        self.retries.mark_all(dict.fromkeys(self.cluster_queues))
        return True

    # Who waits

    @event
    def put_namespace(self, name: str, labels: Mapping[str, str]) -> bool | None:
        """A namespace exists or its labels changed."""
        concerned = self.queues.put_namespace(name, labels)
        if concerned is None:
            return False
        self.retries.mark_all(concerned)
        return None

    @event
    def drop_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self.queues.namespaces.pop(name, None)

    @event
    def put_local_queue(self, api: ApiLocalQueue, now: Instant) -> bool | None:
        """A LocalQueue exists or changed."""
        local = self.queues.local(f"{api.metadata.namespace}/{api.metadata.name}")
        if local.api is not None and local.api.metadata.uid != api.metadata.uid:
            self.sharing.forget(local.key)  # of another object: a deletion between two looks of the watch
        before, was_open = local.cluster_queue, local.open
        created = local.api is None
        same = local.api is not None and local.api.spec == api.spec
        weight = weight_of(api.spec.fair_sharing)
        local.api, local.weight = api, weight
        seen = api.status.fair_sharing.admission_fair_sharing_status if api.status.fair_sharing is not None else None
        if seen is not None and self.sharing.seed(local.key, seen):
            same = False
        if was_open and (before != local.cluster_queue or not local.open):
            self.queues.close(local, before)
        if local.open and (created or not was_open or before != local.cluster_queue):
            self.queues.open(local, now)
        return False if same else None

    @event
    def drop_local_queue(self, key: str) -> None:
        """A LocalQueue is gone; its workloads wait in no ClusterQueue until it comes back."""
        local = self.queues.local_queues.get(key)
        if local is not None:
            self.queues.drop_local(local)
            self.sharing.forget(key)

    @event
    def put_limit_range(self, limit_range: LimitRange, now: Instant) -> bool | None:
        """A LimitRange exists or changed: the requests of Workloads that wait in its namespace are counted anew."""
        return self.recounts.put_limit_range(limit_range, now)

    @event
    def drop_limit_range(self, key: str, now: Instant) -> None:
        """A LimitRange (`namespace/name`) is gone."""
        self.recounts.drop_limit_range(key, now)

    @event
    def put_runtime_class(self, runtime_class: RuntimeClass, now: Instant) -> bool | None:
        """A RuntimeClass exists or changed."""
        return self.recounts.put_runtime_class(runtime_class.metadata.name, runtime_class, now)

    @event
    def drop_runtime_class(self, name: str, now: Instant) -> bool | None:
        """A RuntimeClass is gone."""
        return self.recounts.put_runtime_class(name, None, now)

    # Workloads

    @event
    def put_workload(self, workload: Workload, now: Instant) -> bool | None:
        """A Workload exists or changed. Raises InvalidValue for a malformed quantity, and changes nothing.

        Whoever calls this has compared versions: the store does, and its history may go back, to that of a backup.
        """
        queues, reservations = self.queues, self.reservations
        key = workload.metadata.key
        before = self.workloads.get(key)
        same = before is not None and before.uid == workload.metadata.uid
        info = Info(
            workload, self.surroundings, born=before.order[2] if before is not None and same else birth(workload)
        )
        if before is not None and not by_preemption(before, info):
            self.nominations.repeats.forget(self._queue_of(before))
        self.workloads[key] = info
        queues.held.pop(key, None)
        if queues.counts_variants_of(info):
            self._withdraw(key)
            reservations.release(key)
            return None
        if reservations.awaits_places(info):
            return False
        self.second_passes.follow(info, now)
        if info.finished or (info.evicted and (info.reserved or key not in reservations.assumed)):
            # One that is assumed may still show why it was evicted the time before.
            reservations.forget_eviction(key)
        if before is not None and (
            info.finished or before.local_queue != info.local_queue or not (info.active or info.reserved)
        ):
            self.sharing.drop_penalty(before)
        if info.finished:
            self._withdraw(key)
            self.nominations.end(key)
            reservations.release(key)
        elif info.reserved and (admission := workload.status.admission) is not None:
            queues.leave(key)
            reservations.hold(info, admission)
            # One that is deactivated as it is admitted keeps its penalty until it is decided what becomes of it.
            if info.admitted and info.active and not (before is not None and before.admitted):
                self.sharing.settle_penalty(info, now)
            if before is None:
                self.sharing.recall_penalty(info, now)
            return not (before is not None and before.reserved and same_to_others(before, info))
        elif key in reservations.assumed:
            return False  # the write is on its way: what is seen may be older
        else:
            if self.ledger.holder(key) is not None:
                reservations.release(key)
            if queues.admits(info):
                waiting = queues.waiting.get(key)
                if before is not None:
                    queues.carry_progress(before, info)
                queues.wait(info, now)
                return waiting is None or waiting.order != info.order or could_help(waiting, info)
            if info.problem is UNSETTLED:
                self.recounts.devices_changed[key] = now
            if info.active:
                queues.leave(key)
            else:
                self._withdraw(key)
        return None

    @event
    def drop_workload(self, key: str) -> None:
        """A Workload is gone."""
        if (gone := self.workloads.get(key)) is not None:
            self.nominations.repeats.forget(self._queue_of(gone))
            self.sharing.drop_penalty(gone)
        self._withdraw(key)
        self.nominations.end(key)
        self.reservations.release(key)
        self.workloads.pop(key, None)
        self.queues.held.pop(key, None)
        self.second_passes.drop(key)

    def _queue_of(self, info: Info) -> ClusterQueue | None:
        """The ClusterQueue a Workload holds quota or waits in."""
        if info.key in self.ledger.holders:
            return self.reservations.queue_of(info.key)
        return self.queues.of(info)

    def _withdraw(self, key: str) -> None:
        """A Workload waits no more because it is deleted, finished or deactivated: Workloads that are inadmissible in
        the tree are tried again, as in Kueue. A head counts as using quota in its cycle, and so does a preemptor."""
        if (info := self.queues.waiting.get(key)) is None:
            return
        queue = self._queue_of(info)
        self.queues.leave(key)
        if queue is not None:
            self.retries.mark(queue.name)

    @event
    def note_overdue(self, now: Instant) -> bool:
        """Victims that were evicted `Options.victim_patience` ago and still hold quota are waited for no more."""
        return self.reservations.note_overdue(self.workloads, now)

    @event
    def pass_deadlines(self, now: Instant) -> bool:
        """Time alone changes what is decided about some Workloads that wait: these are tried again."""
        over = self.deadlines.over(now)
        for key in over:
            if (info := self.queues.waiting.get(key)) is not None and (queue := self._queue_of(info)) is not None:
                self.retries.mark(queue.name)
        return bool(over)

    def sample_usage(self, local_queue: str, now: Instant) -> float | None:
        """Let time work on a LocalQueue's usage; seconds until it is due again, None if its usage is not counted. To be
        called for every LocalQueue, and its status written from `UsageSharing.consumed` if that is older than
        `last_sample`. Nothing is counted before the end of a cycle."""
        queue = self.sharing.counted(local_queue)
        if queue is None:
            return None
        if self.log.cycling:
            self.log.defer(lambda: self.sample_usage(local_queue, now))
            return 0.0
        due, changed = self.sharing.sample(local_queue, queue, now)
        self.log.took("sample_usage", (local_queue, now), {}, changed=changed, shape=False)
        return due

    # Outcome of writes

    @event
    def confirm(self, key: str, resource_version: str = "") -> bool:
        """The write of an assumed admission came back. The assumption counts until that version is put."""
        return False

    @event
    def forget(self, key: str, now: Instant) -> None:
        """The write of an assumed admission failed: the workload returns to its place in the queue."""
        self.take_back(key, now)

    @event
    def forget_eviction(self, key: str) -> None:
        """The write of an eviction failed: the victim may be chosen again."""
        self.reservations.forget_eviction(key)
        self.nominations.repeats.forget(self.reservations.queue_of(key))

    # Cycles

    @property
    def has_work(self) -> bool:
        """Whether another cycle could decide something new."""
        if self.log.quiet:
            return False
        if self.behind or self.retries.marked or self.nominations.passed_over or self.nominations.crowded:
            return True
        return any(queue.pending.waits and queue.active for queue in self.cluster_queues.values())

    @property
    def behind(self) -> bool:
        """Whether events left work for `catching_up`."""
        return self.activity.due or self.recounts.due

    def catching_up(self, pace: Pace) -> Sliced[None]:
        """Do the work that events left for later: count requests anew, and judge ClusterQueues. The first thing that a
        cycle does; for whoever runs none, to be done after events."""
        yield from self.recounts.carry_out(pace)
        yield from self.activity.judging(pace)

    def preemptor(self, now: Instant, pace: Pace | None = None) -> Preemptor:
        """Searches this state for victims, as long as it does not change."""
        ledger, reservations, repeats = self.ledger, self.reservations, self.nominations.repeats
        pace = pace or Pace()
        return Preemptor(ledger, reservations, repeats, self.sharing, self.protections, self.options, now, pace)

    def assume(self, info: Info, waiting: Info, queue: ClusterQueue, now: Instant, *, counted: bool) -> None:
        """Hold quota for an admission that was decided, which may be counted already; the workload no longer waits."""
        if queue.usage_based:
            self.sharing.push_penalty(waiting, queue, now)
        self.queues.leave_local(info.key)
        queue.pending.last_generation.pop(info.key, None)
        self.reservations.assume(info, waiting, queue, counted=counted)

    def take_back(self, key: str, now: Instant) -> None:
        """Undo an assumed admission."""
        assumed = self.reservations.assumed.get(key)
        if assumed is None:
            return
        latest = self.workloads.get(key)
        if assumed.waiting.reserved and latest is not None and latest.workload.status.admission is not None:
            self.reservations.hold(latest, latest.workload.status.admission)
            self.second_passes.follow(latest, now)
            return
        self.reservations.release(key)
        self.sharing.drop_penalty(assumed.waiting)
        if latest is None or not self.queues.admits(latest):
            return
        latest.last_assignment = None  # the flavor was right: look at all of them again
        self.queues.wait(latest, now, after="FailedAfterNomination")
