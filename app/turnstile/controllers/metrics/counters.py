"""Counters and histograms about Workloads and scheduling: what happened since this process leads.

Names, labels and buckets of metrics are Kueue's, so that its dashboards go on working. Only the leader counts, from the
versions of a Workload that its watch receives, whatever client wrote them. So a write that is refused, repeated or
answered late counts once, and events from before the leader's term do not count again. Label values are names of
queues, Cohorts and priority classes, a fixed set of reasons, and what `metrics.customLabels` adds. The series of a
deleted queue, Cohort or priority class end with it, all others with the term. Must never decide anything.
"""

from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.meta import Kind, ObjectMeta, find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.metrics.labels import MetricOptions
from turnstile.controllers.metrics.series import Count, Times, exponential, labelled
from turnstile.controllers.metrics.workloadtimes import (
    Eviction,
    admitted_until_ready,
    became_ready,
    checks_seconds,
    eviction_latency,
    evictions,
    execution_seconds,
    queued_since,
    seconds_ready,
    seconds_run,
)
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import State
from turnstile.engine.decisions import Decision, preempting_queue
from turnstile.engine.queue.admissible import is_variant
from turnstile.engine.reasons import Mode
from turnstile.http.exposition import Lazy, Steps
from turnstile.jobs.pods import gates as gates_of

_LATENCY: Final = exponential(14)
_LONG: Final = exponential(16)
_DEFAULT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CREATION: Final = tuple(0.01 * 2**i for i in range(11))

_GATES: Final = (names.ADMISSION_GATE, names.TOPOLOGY_GATE)
_CAUSES: Final = ("reason", "underlying_cause", "priority_class")
_TIMES: Final = (
    ("quota_reserved_wait_time_seconds", "Time from the creation or requeuing of a Workload until it reserved quota."),
    ("admission_wait_time_seconds", "Time from the creation or requeuing of a Workload until its admission."),
    ("admission_checks_wait_time_seconds", "Time from the reservation until the admission, with admission checks."),
    ("ready_wait_time_seconds", "Time from the creation or requeuing of a Workload until its pods were ready."),
    ("admitted_until_ready_wait_time_seconds", "Time from the admission until all pods were ready."),
    ("execution_time_seconds", "Time that a finished Workload was admitted over all its runs."),
)  # fmt: skip
_COUNTS: Final = (
    ("quota_reserved_workloads_total", "Workloads that reserved quota."),
    ("admitted_workloads_total", "Workloads that were admitted."),
    ("finished_workloads_total", "Workloads that finished."),
)


class _PerQueue:
    """The series that exist by ClusterQueue and by LocalQueue: counters, waits and evictions."""

    def __init__(self, prefix: str, queue: Sequence[str], custom: Sequence[str], of_workload: Sequence[str]) -> None:
        own = (*queue, "priority_class", *custom)
        wide = (*own, *of_workload)

        def of(name: str) -> tuple[str, ...]:
            """A few metrics of LocalQueues have labels of Workloads too."""
            return wide if prefix and name.startswith(("admitted_workloads", "admission_wait")) else own

        def buckets(name: str) -> Sequence[float]:
            longer = name.startswith("execution") or (name.startswith("admission_wait") and not prefix)
            return _LONG if longer else _LATENCY

        self.counts = {name: Count(f"{prefix}{name.removesuffix('_total')}", text, of(name)) for name, text in _COUNTS}
        self.times = {name: Times(f"{prefix}{name}", text, of(name), buckets(name)) for name, text in _TIMES}
        text = "Evictions of Workloads that held quota."
        self.evicted = Count(f"{prefix}evicted_workloads", text, (*queue, *_CAUSES, *custom))

    @property
    def all(self) -> Iterator[Count | Times]:
        """All of them."""
        return chain(self.counts.values(), self.times.values(), (self.evicted,))


_Placed = ClusterQueue | Cohort


class WorkloadMetrics(Collector):
    """The metrics of one process, which shows them while it leads: between `begin` and `end`."""

    def __init__(self, registry: CollectorRegistry, options: MetricOptions | None = None) -> None:
        self.options = options or MetricOptions()
        self._cluster: ClusterView | None = None
        self._state: State | None = None
        of_queue, of_local_queue = self.options.names("ClusterQueue"), self.options.names("LocalQueue")
        self._of_workload = self.options.names("Workload")
        self._queues = _PerQueue("", ("cluster_queue",), of_queue, ())
        self._local_queues = _PerQueue("local_queue_", ("name", "namespace"), of_local_queue, self._of_workload)
        eviction = ("cluster_queue", *_CAUSES, *of_queue)
        self._evicted_once = Count(
            "evicted_workloads_once",
            "Workloads that were evicted for a reason and cause for the first time.",
            eviction,
        )
        self._preempted = Count(
            "preempted_workloads",
            "Workloads that were preempted, by the ClusterQueue of the preemptor and the reason.",
            ("preempting_cluster_queue", "reason", *of_queue),
        )
        self._lost = Count(
            "preempted_run_seconds",
            "Seconds for which Workloads had run when they were preempted, by the ClusterQueue of the victim.",
            ("cluster_queue", "reason", *of_queue),
        )
        self._recomputed = Count(
            "preemption_target_recomputations",
            "Workloads whose victims another preemptor took in the same cycle, by the result of the new search.",
            ("cluster_queue", "result", *of_queue),
        )
        self._ready = Times(
            "pods_ready_to_evicted_time_seconds",
            "Time from all pods being ready until the eviction.",
            ("cluster_queue", "reason", "underlying_cause", *of_queue),
            _LATENCY,
        )
        self._latency = Times(
            "workload_eviction_latency_seconds",
            "Time from an eviction until the quota was free.",
            ("cluster_queue", "reason", *of_queue),
            _LATENCY,
        )
        self._ungated = Times(
            "pod_scheduling_gate_removal_seconds",
            "Time from the admission of a Workload until a pod of it lost its scheduling gate.",
            ("name", "cluster_queue", "is_group", *of_queue),
            _DEFAULT,
        )
        self._attempts = Count("admission_attempts", "Scheduling cycles; a success admits a Workload.", ("result",))
        self._attempt = Times("admission_attempt_duration_seconds", "Scheduling cycles.", ("result",), _DEFAULT)
        self._created = Times(
            "workload_creation_latency_seconds",
            "Time from the creation of a job until the creation of its Workload.",
            ("job_kind", *of_local_queue),
            _CREATION,
        )
        self._below = Count(
            "cohort_subtree_admitted_workloads",
            "Workloads that were admitted by the ClusterQueues below a Cohort.",
            ("cohort", "priority_class", *self.options.names("Cohort")),
        )
        self._sent = Count(
            "multikueue_workloads_dispatched",
            "Workloads that were created on another cluster, once more if they were sent there again.",
            ("cluster_queue", "cluster"),
        )
        self._won = Count(
            "multikueue_workloads_admitted",
            "Workloads that another cluster has admitted, and that run there from then on.",
            ("cluster_queue", "cluster"),
        )
        self._skipped: Counted[str] = Counted()
        registry.register(self)

    # --- a term -------------------------------------------------------------------------------------------------------

    def begin(self, cluster: ClusterView, state: State) -> None:
        """This process leads: count from zero."""
        self.end()
        self._cluster, self._state = cluster, state

    def end(self) -> None:
        """This process leads no more: forget everything."""
        for series in self.series:
            series.forget()
        self._skipped.clear()
        self._cluster = self._state = None

    @property
    def series(self) -> Iterator[Count | Times]:
        """All counters and histograms that are shown."""
        of_victims = (self._evicted_once, self._preempted, self._lost, self._ready, self._latency)
        of_queues = (*of_victims, self._recomputed, self._ungated)
        others: tuple[Count | Times, ...] = (self._attempts, self._attempt, self._sent, self._won)
        if self.options.creation_latency:
            others = (*others, self._created)
        if self.options.cohorts:
            others = (*others, self._below)
        return chain(self._queues.all, of_queues, others, self._local_queues.all if self.options.local_queues else ())

    def describe(self) -> Iterable[Metric]:
        """The names; else the registry would read all series when this is registered."""
        for series in self.series:
            yield CounterMetricFamily(series.name, series.text)

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are when each is read."""
        for series in self.series:
            yield series.family()
        yield Lazy(
            "kueue_admission_cycle_preemption_skips",
            "Workloads that had victims in the last cycle and lost to other ClusterQueues.",
            "gauge",
            self._skips,
        )

    def _skips(self) -> Steps:
        labels = ("cluster_queue", *self.options.names("ClusterQueue"))
        for queue, skipped in list(self._skipped.items()):
            values = labelled(labels, (queue, *self._custom(queue)))
            yield Sample("kueue_admission_cycle_preemption_skips", values, skipped)

    # --- counting -----------------------------------------------------------------------------------------------------

    def changed(self, old: Workload | None, new: Workload | None, now: datetime) -> None:
        """Count what happened to a Workload in one change. A variant is not counted beside its parent."""
        if new is None or is_variant(new):
            return
        if old is None or old.metadata.uid != new.metadata.uid:
            if old is None and self.options.creation_latency:
                self._count_creation(new)
            return
        if new.quota_reserved and not old.quota_reserved:
            self._happened(new, "quota_reserved_workloads_total")
            self._lasted(new, "quota_reserved_wait_time_seconds", _waited(old, now))
        if new.admitted and not old.admitted:
            self._happened(new, "admitted_workloads_total")
            self._lasted(new, "admission_wait_time_seconds", _waited(old, now))
            self._lasted(new, "admission_checks_wait_time_seconds", checks_seconds(new))
            self._count_below(new)
        if (cluster := new.status.cluster_name) and cluster != old.status.cluster_name:
            self._count_elsewhere(self._won, new, cluster)
        if became_ready(old, new):
            self._lasted(new, "ready_wait_time_seconds", _waited(new, now))
            self._lasted(new, "admitted_until_ready_wait_time_seconds", admitted_until_ready(new))
        for eviction in evictions(old, new):
            self._count_eviction(eviction, old, new)
        if (latency := eviction_latency(old, new, now)) is not None:
            queue, reason, seconds = latency
            if self._known(queue):
                self._latency.add((queue, reason, *self._custom(queue)), seconds)
        if new.finished and not old.finished:
            self._happened(new, "finished_workloads_total")
            self._lasted(new, "execution_time_seconds", execution_seconds(new))

    def pod_changed(self, old: Pod | None, new: Pod | None, now: datetime) -> None:
        """Observe how long an admitted pod kept its scheduling gate, if it lost the gate in this change. A pod that has
        no place in a topology loses the topology gate with that of admission, which alone counts then."""
        if old is None or new is None or self._cluster is None or names.WORKLOAD not in new.metadata.annotations:
            return
        if old.spec == new.spec:
            return
        held, holding = gates_of(old), gates_of(new)
        gate = next((each for each in _GATES if each in held and each not in holding), "")
        meta = new.metadata
        if not gate or (gate == names.ADMISSION_GATE and names.MANAGED_LABEL not in meta.labels):
            return
        workload = self._cluster.workloads.get(f"{meta.namespace}/{meta.annotations.get(names.WORKLOAD, '')}")
        admitted = find_condition(workload.status.conditions, wl.ADMITTED) if workload is not None else None
        if workload is None or admitted is None or admitted.status != "True":
            return
        since, queue = instant(admitted.last_transition_time), _cluster_queue(workload)
        if since is not None and self._known(queue):
            group = "true" if names.POD_GROUP_NAME in meta.labels else "false"
            self._ungated.add((gate, queue, group, *self._custom(queue)), (now - since).total_seconds())

    def sent(self, workload: Workload, cluster: str) -> None:
        """Count a Workload that was created on another cluster."""
        self._count_elsewhere(self._sent, workload, cluster)

    def _count_elsewhere(self, count: Count, workload: Workload, cluster: str) -> None:
        queue = self._queue_of(workload)
        if self._known(queue):
            count.add((queue, cluster))

    def decided(self, decisions: Sequence[Decision], seconds: float = 0.0) -> None:
        """Count one cycle: its result, and its decisions about Workloads that need to preempt."""
        if decisions:
            admits = any(decision.outcome in ("admit", "place") for decision in decisions)
            result = ("success" if admits else "inadmissible",)
            self._attempts.add(result)
            self._attempt.add(result, seconds)
        skipped: Counted[str] = Counted()
        for decision in decisions:
            queue = decision.cluster_queue
            if not self._known(queue):
                continue  # it was deleted during the cycle
            if decision.recomputed:
                self._recomputed.add((queue, _recomputation(decision), *self._custom(queue)))
            if decision.outcome == "skipped" and decision.mode is Mode.PREEMPT:
                skipped[queue] += 1
        for queue in self._skipped:
            self._skipped[queue] = 0
        self._skipped.update(skipped)

    def _happened(self, workload: Workload, name: str) -> None:
        queue, priority = self._queue_of(workload), self._priority_class(workload)
        if self._known(queue):
            self._queues.counts[name].add((queue, priority, *self._custom(queue)))
        if (labels := self._local_queue(workload)) is not None:
            wide = self._of_workload_values(workload) if name == "admitted_workloads_total" else ()
            self._local_queues.counts[name].add((*labels[:2], priority, *labels[2:], *wide))

    def _lasted(self, workload: Workload, name: str, seconds: float | None) -> None:
        if seconds is None:
            return
        queue, priority = self._queue_of(workload), self._priority_class(workload)
        if self._known(queue):
            self._queues.times[name].add((queue, priority, *self._custom(queue)), seconds)
        if (labels := self._local_queue(workload)) is not None:
            wide = self._of_workload_values(workload) if name == "admission_wait_time_seconds" else ()
            self._local_queues.times[name].add((*labels[:2], priority, *labels[2:], *wide), seconds)

    def _count_eviction(self, eviction: Eviction, old: Workload, new: Workload) -> None:
        queue, reason, cause, times, first = eviction
        causes = reason, cause, self._priority_class(new)
        if (labels := self._local_queue(new)) is not None:
            self._local_queues.evicted.add((*labels[:2], *causes, *labels[2:]), times)
        if not self._known(queue):
            return
        custom = self._custom(queue)
        self._queues.evicted.add((queue, *causes, *custom), times)
        if first:
            self._evicted_once.add((queue, *causes, *custom))
        if (ready := seconds_ready(old, new)) is not None:
            self._ready.add((queue, reason, cause, *custom), ready)
        preempted = find_condition(new.status.conditions, wl.PREEMPTED) if reason == "Preempted" else None
        if preempted is not None and (ran := seconds_run(new)) is not None:
            self._lost.add((queue, preempted.reason, *custom), ran)
        preemptor = preempting_queue(preempted.message) if preempted is not None else None
        if preempted is not None and preemptor is not None and self._known(preemptor):
            self._preempted.add((preemptor, preempted.reason, *self._custom(preemptor)), times)

    def _count_below(self, workload: Workload) -> None:
        if self._state is None or self._cluster is None or not self.options.cohorts:
            return
        priority = self._priority_class(workload)
        for cohort in self._state.questions.cohorts_above(_cluster_queue(workload)):
            custom = self.options.values("Cohort", _meta(self._cluster.cohorts.get(cohort)))
            self._below.add((cohort, priority, *custom))

    def _count_creation(self, workload: Workload) -> None:
        """A job that was changed before its Workload was created was perhaps not to be queued at first."""
        owner, cluster = workload.metadata.controller, self._cluster
        if cluster is None or owner is None:
            return
        key = f"{workload.metadata.namespace}/{owner.name}"
        for kind, store in cluster.jobs.items():
            if owner.kind != kind.KIND or (job := store.get(key)) is None or job.metadata.uid != owner.uid:
                continue
            begin, end = instant(job.metadata.creation_timestamp), instant(workload.metadata.creation_timestamp)
            if job.metadata.generation == 1 and begin is not None and end is not None:
                labels = self._local_queue(workload)
                custom = labels[2:] if labels is not None else ("",) * len(self.options.names("LocalQueue"))
                self._created.add((owner.kind, *custom), (end - begin).total_seconds())

    # --- labels -------------------------------------------------------------------------------------------------------

    def _queue_of(self, workload: Workload) -> str:
        """The ClusterQueue that a Workload held quota of, else that of its LocalQueue."""
        if workload.status.admission is not None or self._cluster is None:
            return _cluster_queue(workload)
        local = self._cluster.local_queue_of(workload)
        return (local.spec.cluster_queue or "") if local is not None else ""

    def _known(self, cluster_queue: str) -> bool:
        """Whether a ClusterQueue exists, so that its series end with it; any does outside a term."""
        return self._cluster is None or cluster_queue in self._cluster.cluster_queues

    def _priority_class(self, workload: Workload) -> str:
        """The class that the Workload names; empty if there is none of that name, which a tenant may have made up."""
        ref = workload.spec.priority_class_ref
        return ref.name if ref is not None and self._has_class(ref.name) else ""

    def _has_class(self, name: str) -> bool:
        cluster = self._cluster
        return cluster is None or name in cluster.workload_priority_classes or name in cluster.priority_classes

    def _custom(self, cluster_queue: str) -> tuple[str, ...]:
        if "ClusterQueue" not in self.options.by_source:
            return ()
        queue = self._cluster.cluster_queues.get(cluster_queue) if self._cluster is not None else None
        return self.options.values("ClusterQueue", _meta(queue))

    def _local_queue(self, workload: Workload) -> tuple[str, ...] | None:
        """Name, namespace and custom labels of the LocalQueue, None if it has no metrics or does not exist."""
        options = self.options
        meta = _meta(self._cluster.local_queue_of(workload)) if self._cluster is not None else None
        if not options.shows(meta) or (meta is None and self._cluster is not None):
            return None
        return workload.spec.queue_name or "", workload.metadata.namespace, *options.values("LocalQueue", meta)

    def _of_workload_values(self, workload: Workload) -> tuple[str, ...]:
        return self.options.values("Workload", workload.metadata)

    # --- forgetting ---------------------------------------------------------------------------------------------------

    def forget(self, cluster_queue: str) -> None:
        """Remove the metrics of a deleted ClusterQueue."""
        for series in self.series:
            if "cluster_queue" in series.labels:
                series.forget(cluster_queue=cluster_queue)
        self._preempted.forget(preempting_cluster_queue=cluster_queue)
        self._skipped.pop(cluster_queue, None)

    def forget_local_queue(self, key: str) -> None:
        """Remove the metrics of a deleted LocalQueue (`namespace/name`)."""
        namespace, _, name = key.partition("/")
        for series in self._local_queues.all:
            series.forget(name=name, namespace=namespace)

    def forget_priority_class(self, name: str) -> None:
        """Remove the metrics of a deleted WorkloadPriorityClass or PriorityClass, unless there is one of the other kind
        with that name."""
        for series in self.series if not self._has_class(name) else ():
            series.forget(priority_class=name)

    def tree_changed(
        self, old: _Placed | None, new: _Placed | None, *, take: Callable[[Callable[[], None]], object]
    ) -> None:
        """Forget the Cohorts that a change of a ClusterQueue or Cohort leaves without an object and without members:
        at once, so that a new Cohort of the name inherits no counts. `take` calls when the ledger has the change."""
        if new is None or _parent(old) != _parent(new):
            take(self._forget_cohorts)

    def _forget_cohorts(self) -> None:
        """Remove the metrics of Cohorts that have neither an object nor members any more."""
        known = self._state.ledger.cohorts if self._state is not None else {}
        for cohort in {values[0] for values in self._below.held if values[0] not in known}:
            self._below.forget(cohort=cohort)


def _parent(placed: _Placed | None) -> str | None:
    if placed is None:
        return None
    return placed.spec.cohort_name if isinstance(placed, ClusterQueue) else placed.spec.parent_name


def _waited(workload: Workload, now: datetime) -> float | None:
    queued = queued_since(workload)
    return (now - queued).total_seconds() if queued is not None else None


def _recomputation(decision: Decision) -> str:
    """The result for a preemptor whose victims were computed again."""
    if decision.mode is Mode.DEFERRED_FIT:
        return "deferred_fit"
    return "new_targets" if decision.outcome == "preempting" else "skipped"


def _meta(value: Kind | None) -> ObjectMeta | None:
    return value.metadata if value is not None else None


def _cluster_queue(workload: Workload) -> str:
    admission = workload.status.admission
    return admission.cluster_queue if admission is not None else ""
