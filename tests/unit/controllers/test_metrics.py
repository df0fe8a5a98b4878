"""What is counted of the changes of Workloads."""

from datetime import timedelta
from typing import ClassVar

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.controllers.worlds import (
    ADMITTED,
    NOW,
    RESERVED,
    cluster_queue,
    condition,
    decode,
    local_queue,
    workload,
    world,
)
from tests.unit.engine import builders as b
from turnstile.api.core import Job, Pod, PriorityClass
from turnstile.api.meta import Kind, OwnerReference
from turnstile.api.workload import PriorityClassRef, SchedulingStats, Workload, WorkloadSchedulingStatsEviction
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.metrics.counters import WorkloadMetrics
from turnstile.controllers.metrics.labels import CustomLabel, MetricOptions
from turnstile.controllers.view.ledgerfeed import follow
from turnstile.engine import Options as EngineOptions
from turnstile.engine import State, cycle
from turnstile.engine.decisions import preempted_message
from turnstile.engine.options import Gates

EVICTED = condition("Evicted", "True", "Preempted", since="2026-01-02T03:04:00Z")
FINISHED = condition("Finished", "True", "Succeeded", since="2026-01-02T03:03:00Z")


class Counts:
    """The metrics, and what a scrape would find."""

    def __init__(self, measured: MetricOptions | None = None) -> None:
        self.registry = CollectorRegistry()
        self.metrics = WorkloadMetrics(self.registry, measured)

    @property
    def state(self) -> State | None:
        """The ledger of the term."""
        return self.metrics._state

    def value(self, metric: str, /, **labels: str) -> float | None:
        """One sample."""
        return self.registry.get_sample_value(f"kueue_{metric}", {**labels, "replica_role": "leader"})


@pytest.fixture
def counts() -> Counts:
    """Nothing counted yet."""
    return Counts()


class TestEvictionLatency:
    def test_it_lasts_until_the_quota_is_free(self, counts: Counts) -> None:
        """From the condition to the change that takes the reservation back."""
        held = workload(RESERVED, ADMITTED, EVICTED, admission=True)
        counts.metrics.changed(held, workload(EVICTED), NOW)
        labels = {"cluster_queue": "cq", "reason": "Preempted"}
        assert counts.value("workload_eviction_latency_seconds_sum", **labels) == 5.0

    def test_without_a_cluster_queue_there_is_nothing_to_count_it_for(self, counts: Counts) -> None:
        """An admission that names none is no label of a metric."""
        held = workload(RESERVED, ADMITTED, EVICTED, admission=True)
        assert held.status.admission is not None
        held.status.admission.cluster_queue = ""
        counts.metrics.changed(held, workload(EVICTED), NOW)
        labels = {"cluster_queue": "", "reason": "Preempted"}
        assert counts.value("workload_eviction_latency_seconds_count", **labels) is None

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (workload(RESERVED, admission=True), workload(RESERVED, EVICTED, admission=True)),
            (workload(RESERVED, admission=True), workload()),
            (workload(EVICTED), workload(EVICTED)),
            (None, workload(EVICTED)),
            (workload(RESERVED, EVICTED, admission=True), None),
        ],
        ids=["still held", "not evicted", "nothing held", "first seen", "deleted"],
    )
    def test_no_other_change_counts(self, counts: Counts, old: Workload | None, new: Workload | None) -> None:
        """Only the one from holding quota to waiting after an eviction."""
        counts.metrics.changed(old, new, NOW)
        labels = {"cluster_queue": "cq", "reason": "Preempted"}
        assert counts.value("workload_eviction_latency_seconds_count", **labels) is None


class TestExecutionTime:
    def test_it_adds_up_over_all_runs(self, counts: Counts) -> None:
        """The last run and what was added up before."""
        ran = {"accumulatedPastExecutionTimeSeconds": 20}
        ended = workload(RESERVED, ADMITTED, FINISHED, admission=True, more_status=ran)
        counts.metrics.changed(workload(RESERVED, ADMITTED, admission=True), ended, NOW)
        counts.metrics.changed(ended, ended, NOW + timedelta(seconds=1))
        labels = {"cluster_queue": "cq", "priority_class": ""}
        assert counts.value("execution_time_seconds_sum", **labels) == 200.0
        assert counts.value("execution_time_seconds_count", **labels) == 1.0

    def test_one_that_never_ran_has_none(self, counts: Counts) -> None:
        """It finished while it waited."""
        counts.metrics.changed(workload(), workload(FINISHED), NOW)
        assert counts.value("execution_time_seconds_count", cluster_queue="", priority_class="") is None


def evicted(*counts: tuple[str, str, int], preempted: str = "", uid: str = "u", held: bool = True) -> Workload:
    """A Workload that was evicted so often: reason, cause and count. `preempted` is the path of its preemptor."""
    message = preempted_message(Workload(), "InCohortReclamation", preempted, "/org/cq")
    conditions = [RESERVED, ADMITTED, condition("PodsReady", "True", "Started", since="2026-01-02T03:03:00Z")]
    if counts:
        conditions.append(condition("Evicted", "True", counts[-1][0], message, since="2026-01-02T03:04:00Z"))
    if preempted:
        conditions.append(condition("Preempted", "True", "InCohortReclamation", message))
    made = workload(*conditions, admission=held)
    made.metadata.uid = uid
    made.spec.priority_class_ref = PriorityClassRef(group="g", kind="k", name="high")
    made.status.scheduling_stats = SchedulingStats(
        evictions=[
            WorkloadSchedulingStatsEviction(reason=reason, underlying_cause=cause, count=count)
            for reason, cause, count in counts
        ]
    )
    return made


class TestEvictions:
    """Each is counted when the Workload tells of it, whoever wrote that and however often."""

    LABELS: ClassVar = {"reason": "PodsReadyTimeout", "underlying_cause": "WaitForStart", "priority_class": "high"}
    ONCE = ("PodsReadyTimeout", "WaitForStart", 1)
    TWICE = ("PodsReadyTimeout", "WaitForStart", 2)

    def test_by_both_queues_reason_cause_and_priority_class(self, counts: Counts) -> None:
        """One of each, and how long its pods had been ready."""
        counts.metrics.changed(evicted(), evicted(self.ONCE), NOW)
        assert counts.value("evicted_workloads_total", cluster_queue="cq", **self.LABELS) == 1.0
        assert counts.value("evicted_workloads_once_total", cluster_queue="cq", **self.LABELS) == 1.0
        in_line = {"name": "lq", "namespace": "ns", **self.LABELS}
        assert counts.value("local_queue_evicted_workloads_total", **in_line) == 1.0
        ready = {name: value for name, value in self.LABELS.items() if name != "priority_class"}
        assert counts.value("pods_ready_to_evicted_time_seconds_sum", cluster_queue="cq", **ready) == 60.0

    def test_the_second_for_the_same_cause_is_not_the_first(self, counts: Counts) -> None:
        """Another cause has a first of its own."""
        counts.metrics.changed(evicted(), evicted(self.ONCE), NOW)
        counts.metrics.changed(evicted(self.ONCE), evicted(self.TWICE), NOW)
        counts.metrics.changed(evicted(self.TWICE), evicted(self.TWICE, ("Preempted", "", 1)), NOW)
        assert counts.value("evicted_workloads_total", cluster_queue="cq", **self.LABELS) == 2.0
        assert counts.value("evicted_workloads_once_total", cluster_queue="cq", **self.LABELS) == 1.0
        other = {"reason": "Preempted", "underlying_cause": "", "priority_class": "high"}
        assert counts.value("evicted_workloads_once_total", cluster_queue="cq", **other) == 1.0

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (None, evicted(ONCE)),
            (evicted(ONCE), evicted(ONCE)),
            (evicted(ONCE, uid="of its namesake"), evicted(TWICE)),
            (evicted(held=False), evicted(ONCE, held=False)),
            (evicted(TWICE), evicted(ONCE)),
            (evicted(ONCE), None),
        ],
        ids=["stood there", "written again", "a namesake", "held nothing", "counts that shrink", "gone"],
    )
    def test_no_other_change_counts(self, counts: Counts, old: Workload | None, new: Workload | None) -> None:
        """Neither what a restart finds, nor what a repeated write changes."""
        counts.metrics.changed(old, new, NOW)
        for name in ("evicted_workloads_total", "evicted_workloads_once_total"):
            assert counts.value(name, cluster_queue="cq", **self.LABELS) is None

    def test_versions_that_were_missed_count_all_the_same(self, counts: Counts) -> None:
        """A watch that was interrupted tells of the last version alone, which may hold nothing any more."""
        counts.metrics.changed(evicted(), evicted(self.TWICE, held=False), NOW)
        assert counts.value("evicted_workloads_total", cluster_queue="cq", **self.LABELS) == 2.0
        assert counts.value("evicted_workloads_once_total", cluster_queue="cq", **self.LABELS) == 1.0

    def test_figures_of_a_local_queue_end_with_it(self, counts: Counts) -> None:
        """Those of its ClusterQueue stay."""
        counts.metrics.changed(evicted(), evicted(self.ONCE), NOW)
        counts.metrics.forget_local_queue("ns/lq")
        in_line = {"name": "lq", "namespace": "ns", **self.LABELS}
        assert counts.value("local_queue_evicted_workloads_total", **in_line) is None
        assert counts.value("evicted_workloads_total", cluster_queue="cq", **self.LABELS) == 1.0

    def test_local_queues_may_be_left_out(self) -> None:
        """As configured."""
        registry = CollectorRegistry()
        WorkloadMetrics(registry, MetricOptions(local_queues=False)).changed(evicted(), evicted(self.ONCE), NOW)
        names = {family.name for family in registry.collect()}
        assert "kueue_evicted_workloads" in names
        assert "kueue_local_queue_evicted_workloads" not in names


def at(second: int, *conditions: tuple[str, str], checks: bool = False) -> Workload:
    """A Workload with conditions that are true since second 0 to 59 of 03:03."""
    given = [condition(kind, "True", "x", since=f"2026-01-02T03:03:{since}Z") for kind, since in conditions]
    states = [{"name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-02T03:03:00Z"}]
    more = {"admissionChecks": states} if checks else {}
    held = any(kind == "QuotaReserved" for kind, _ in conditions)
    return workload(*given, admission=held, more_status=more, resourceVersion=str(second))


RESERVED_AT, ADMITTED_AT, READY_AT = ("QuotaReserved", "10"), ("Admitted", "20"), ("PodsReady", "25")


class TestWaits:
    """How long a Workload waited, by both queues and priority class. It was created at 03:00:00."""

    WHERE: ClassVar = {"cluster_queue": "cq", "priority_class": ""}
    IN_LINE: ClassVar = {"name": "lq", "namespace": "ns", "priority_class": ""}

    def test_until_the_reservation(self, counts: Counts) -> None:
        """Since its creation."""
        counts.metrics.changed(at(1), at(2, RESERVED_AT), NOW)
        assert counts.value("quota_reserved_workloads_total", **self.WHERE) == 1
        assert counts.value("quota_reserved_wait_time_seconds_sum", **self.WHERE) == 245
        assert counts.value("local_queue_quota_reserved_workloads_total", **self.IN_LINE) == 1
        assert counts.value("local_queue_quota_reserved_wait_time_seconds_sum", **self.IN_LINE) == 245
        assert counts.value("admitted_workloads_total", **self.WHERE) is None

    def test_of_a_variant_is_that_of_its_parent(self, counts: Counts) -> None:
        """The parent gets its admission in a moment: a job counts once."""
        owner = OwnerReference(api_version="v", kind="Workload", name="parent", uid="p", controller=True)
        before, after = at(1), at(2, RESERVED_AT)
        for each in (before, after):
            each.metadata.owner_references = [owner]
        counts.metrics.changed(before, after, NOW)
        assert counts.value("quota_reserved_workloads_total", **self.WHERE) is None

    def test_since_it_was_requeued(self, counts: Counts) -> None:
        """The wait before its last run does not count again."""
        requeued = ("Requeued", "55")
        counts.metrics.changed(at(1, requeued), at(2, requeued, RESERVED_AT, ADMITTED_AT), NOW)
        assert counts.value("admission_wait_time_seconds_sum", **self.WHERE) == 10
        assert counts.value("admitted_workloads_total", **self.WHERE) == 1
        assert counts.value("admission_checks_wait_time_seconds_count", **self.WHERE) is None

    def test_for_admission_checks(self, counts: Counts) -> None:
        """From the reservation on, and only of those that have any."""
        counts.metrics.changed(at(1, RESERVED_AT), at(2, RESERVED_AT, ADMITTED_AT, checks=True), NOW)
        assert counts.value("admission_checks_wait_time_seconds_sum", **self.WHERE) == 10
        assert counts.value("local_queue_admission_checks_wait_time_seconds_sum", **self.IN_LINE) == 10
        assert counts.value("quota_reserved_workloads_total", **self.WHERE) is None

    def test_until_the_pods_are_ready(self, counts: Counts) -> None:
        """Since its creation, and since its admission."""
        counts.metrics.changed(at(1, RESERVED_AT, ADMITTED_AT), at(2, RESERVED_AT, ADMITTED_AT, READY_AT), NOW)
        assert counts.value("ready_wait_time_seconds_sum", **self.WHERE) == 245
        assert counts.value("admitted_until_ready_wait_time_seconds_sum", **self.WHERE) == 5
        assert counts.value("local_queue_admitted_until_ready_wait_time_seconds_sum", **self.IN_LINE) == 5

    def test_until_its_end(self, counts: Counts) -> None:
        """It counts as finished, once."""
        ended = at(3, RESERVED_AT, ADMITTED_AT, ("Finished", "50"))
        counts.metrics.changed(at(2, RESERVED_AT, ADMITTED_AT), ended, NOW)
        counts.metrics.changed(ended, ended, NOW)
        assert counts.value("finished_workloads_total", **self.WHERE) == 1
        assert counts.value("local_queue_execution_time_seconds_sum", **self.IN_LINE) == 30

    def test_buckets_are_those_of_kueue(self, counts: Counts) -> None:
        """Admission may last longer by ClusterQueue than by LocalQueue."""
        counts.metrics.changed(at(1), at(2, RESERVED_AT, ADMITTED_AT), NOW)
        wide, narrow = {**self.WHERE, "le": "40960.0"}, {**self.IN_LINE, "le": "40960.0"}
        assert counts.value("admission_wait_time_seconds_bucket", **wide) == 1
        assert counts.value("local_queue_admission_wait_time_seconds_bucket", **narrow) is None
        assert counts.value("local_queue_admission_wait_time_seconds_bucket", **{**narrow, "le": "10240.0"}) == 1
        assert counts.value("admission_wait_time_seconds_bucket", **{**wide, "le": "160.0"}) == 0


class TestATerm:
    """What is counted while this process leads."""

    def leads(self, *objects: Kind, measured: MetricOptions | None = None) -> Counts:
        """Metrics of a process that leads a world of these objects."""
        counts = Counts(measured)
        cluster = world(*objects)
        state = State()
        follow(state, cluster, take=lambda change: change())
        counts.metrics.begin(cluster, state)
        return counts

    def test_admissions_below_a_cohort(self) -> None:
        """Of every Cohort above the ClusterQueue, until the Cohort is gone."""
        counts = self.leads(cluster_queue(cohortName="inner"), b.cohort("inner", parent="outer"), local_queue())
        counts.metrics.changed(at(1), at(2, RESERVED_AT, ADMITTED_AT), NOW)
        for name in ("inner", "outer"):
            labels = {"cohort": name, "priority_class": ""}
            assert counts.value("cohort_subtree_admitted_workloads_total", **labels) == 1
        assert counts.state is not None
        counts.state.drop_cohort("inner")
        counts.metrics.tree_changed(b.cohort("inner", parent="outer"), None, take=lambda change: change())
        assert counts.value("cohort_subtree_admitted_workloads_total", cohort="outer", priority_class="") is None

    def test_a_cohort_of_a_name_that_is_gone_begins_at_zero(self) -> None:
        """Whether the metrics were read meanwhile or not."""
        gone = cluster_queue(cohortName="inner")
        counts = self.leads(gone, local_queue())
        counts.metrics.changed(at(1), at(2, RESERVED_AT, ADMITTED_AT), NOW)
        labels = {"cohort": "inner", "priority_class": ""}
        assert counts.value("cohort_subtree_admitted_workloads_total", **labels) == 1
        assert counts.state is not None
        for queue in (cluster_queue(cohortName="other"), cluster_queue(cohortName="inner")):
            counts.state.put_cluster_queue(queue, 0.0)
            counts.metrics.tree_changed(gone, queue, take=lambda change: change())
            gone = queue
        assert counts.value("cohort_subtree_admitted_workloads_total", **labels) is None

    def test_queues_that_do_not_exist_have_no_series(self) -> None:
        """Else the names that tenants give would stay for the term."""
        counts = self.leads()
        counts.metrics.changed(at(1), at(2, RESERVED_AT, ADMITTED_AT), NOW)
        counts.metrics.changed(evicted(), evicted(("Preempted", "", 1), preempted="/gone"), NOW)
        assert not [sample for family in counts.registry.collect() for sample in family.samples]

    def test_a_priority_class_that_does_not_exist_counts_as_none(self) -> None:
        """A Workload may name one that was deleted, or that a tenant has made up."""
        counts = self.leads(cluster_queue(), local_queue())
        counts.metrics.changed(evicted(), evicted(("Preempted", "", 1)), NOW)
        labels = {"cluster_queue": "cq", "reason": "Preempted", "underlying_cause": ""}
        assert counts.value("evicted_workloads_total", **labels, priority_class="") == 1
        assert counts.value("evicted_workloads_total", **labels, priority_class="high") is None

    def test_the_figures_of_a_priority_class_end_with_it(self) -> None:
        """Once no class of either kind has the name; those of another class stay."""
        body = {"metadata": {"name": "high"}, "value": 1}
        counts = self.leads(
            cluster_queue(), local_queue(), decode(PriorityClass, body), decode(WorkloadPriorityClass, body)
        )
        cluster = counts.metrics._cluster
        assert cluster is not None
        counts.metrics.changed(at(1), at(2, RESERVED_AT, ADMITTED_AT), NOW)
        counts.metrics.changed(evicted(), evicted(("Preempted", "", 1)), NOW)
        labels = {"reason": "Preempted", "underlying_cause": "", "priority_class": "high"}
        cluster.workload_priority_classes.delete("high")
        counts.metrics.forget_priority_class("high")
        assert counts.value("evicted_workloads_total", cluster_queue="cq", **labels) == 1
        cluster.priority_classes.delete("high")
        counts.metrics.forget_priority_class("high")
        assert counts.value("evicted_workloads_total", cluster_queue="cq", **labels) is None
        assert counts.value("local_queue_evicted_workloads_total", name="lq", namespace="ns", **labels) is None
        assert counts.value("admitted_workloads_total", cluster_queue="cq", priority_class="") == 1

    def test_the_end_of_the_term_ends_the_series(self, counts: Counts) -> None:
        """The next leader counts from then on."""
        counts.metrics.changed(at(1), at(2, RESERVED_AT, ADMITTED_AT), NOW)
        counts.metrics.end()
        assert not [sample for family in counts.registry.collect() for sample in family.samples]

    def test_custom_labels(self) -> None:
        """Of the queues and of the Workload."""
        labels = (
            CustomLabel("team", "ClusterQueue", "team"),
            CustomLabel("env", "LocalQueue", "env"),
            CustomLabel("size", "Workload", "size", tracked=frozenset({"big"})),
        )
        queue, line = cluster_queue(), local_queue()
        queue.metadata.labels, line.metadata.labels = {"team": "a"}, {"env": "prod"}
        counts = self.leads(queue, line, measured=MetricOptions(custom=labels))
        after = at(2, RESERVED_AT, ADMITTED_AT)
        after.metadata.labels = {"size": "big"}
        counts.metrics.changed(at(1), after, NOW)
        of_queue = {"cluster_queue": "cq", "priority_class": "", "custom_team": "a"}
        assert counts.value("admitted_workloads_total", **of_queue) == 1
        of_line = {"name": "lq", "namespace": "ns", "priority_class": "", "custom_env": "prod"}
        assert counts.value("local_queue_admitted_workloads_total", **of_line, custom_size="big") == 1
        assert counts.value("local_queue_quota_reserved_workloads_total", **of_line) == 1
        counts.metrics.forget("cq")
        counts.metrics.forget_local_queue("ns/lq")
        assert counts.value("admitted_workloads_total", **of_queue) is None
        assert counts.value("local_queue_admitted_workloads_total", **of_line, custom_size="big") is None

    @pytest.mark.parametrize(("generation", "seconds"), [(1, 4.0), (2, None)], ids=["new", "changed before"])
    def test_how_long_a_job_waited_for_its_workload(self, generation: int, seconds: float | None) -> None:
        """Of a job as it was created."""
        meta = {"name": "job", "namespace": "ns", "uid": "job-uid", "generation": generation}
        job = decode(Job, {"metadata": {**meta, "creationTimestamp": "2026-01-02T02:59:56Z"}})
        counts = self.leads(job, cluster_queue(), local_queue())
        counts.metrics.changed(None, workload(), NOW)
        assert counts.value("workload_creation_latency_seconds_sum", job_kind="Job") == seconds

    def test_how_long_an_admitted_pod_kept_its_gate(self) -> None:
        """Until the version without it; another change of the pod does not count."""
        meta = {
            "name": "p",
            "namespace": "ns",
            "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "wl"},
            "annotations": {"kueue.x-k8s.io/workload": "wl"},
        }
        gate = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
        gated, free = decode(Pod, {"metadata": meta, "spec": gate}), decode(Pod, {"metadata": meta, "spec": {}})
        bound = decode(Pod, {"metadata": meta, "spec": {"nodeName": "n"}})
        counts = self.leads(cluster_queue(), local_queue(), at(2, RESERVED_AT, ("Admitted", "59")))
        for old, new in ((None, gated), (gated, free), (free, bound), (bound, None)):
            counts.metrics.pod_changed(old, new, NOW)
        labels = {"name": "kueue.x-k8s.io/admission", "cluster_queue": "cq", "is_group": "true"}
        assert counts.value("pod_scheduling_gate_removal_seconds_sum", **labels) == 6
        assert counts.value("pod_scheduling_gate_removal_seconds_count", **labels) == 1

    @pytest.mark.parametrize("gates", [("topology",), ("admission", "topology")], ids=["its place", "its admission"])
    def test_a_pod_that_waited_for_its_place(self, gates: tuple[str, ...]) -> None:
        """The topology gate counts by itself, of the pods of any job, and not where admission lifted both."""
        meta = {"name": "p", "namespace": "ns", "annotations": {"kueue.x-k8s.io/workload": "wl"}}
        spec = {"schedulingGates": [{"name": f"kueue.x-k8s.io/{each}"} for each in gates]}
        gated, free = decode(Pod, {"metadata": meta, "spec": spec}), decode(Pod, {"metadata": meta, "spec": {}})
        counts = self.leads(cluster_queue(), local_queue(), at(2, RESERVED_AT, ("Admitted", "59")))
        counts.metrics.pod_changed(gated, free, NOW)
        labels = {"name": "kueue.x-k8s.io/topology", "cluster_queue": "cq", "is_group": "false"}
        want = 6 if gates == ("topology",) else None
        assert counts.value("pod_scheduling_gate_removal_seconds_sum", **labels) == want


class TestPreemptions:
    """Victims are counted for the ClusterQueue that they had to make way for."""

    @pytest.mark.parametrize("path", ["/other", "/org/inner/other"])
    def test_by_the_preemptor_and_its_right(self, counts: Counts, path: str) -> None:
        """Wherever in a tree it is."""
        counts.metrics.changed(evicted(), evicted(("Preempted", "", 1), preempted=path), NOW)
        labels = {"preempting_cluster_queue": "other", "reason": "InCohortReclamation"}
        assert counts.value("preempted_workloads_total", **labels) == 1.0
        lost = {"cluster_queue": "cq", "reason": "InCohortReclamation"}
        assert counts.value("preempted_run_seconds_total", **lost) == 60.0
        counts.metrics.forget("other")
        assert counts.value("preempted_workloads_total", **labels) is None

    def test_another_eviction_is_none(self, counts: Counts) -> None:
        """However it was preempted before."""
        past, now = ("Preempted", "", 1), ("ClusterQueueStopped", "", 1)
        counts.metrics.changed(evicted(past, preempted="/other"), evicted(past, now, preempted="/other"), NOW)
        labels = {"preempting_cluster_queue": "other", "reason": "InCohortReclamation"}
        assert counts.value("preempted_workloads_total", **labels) is None


def test_the_figures_of_a_cluster_queue_end_with_it(counts: Counts) -> None:
    """Else they would stay for as long as the process runs."""
    counts.metrics.changed(workload(RESERVED, EVICTED, admission=True), workload(EVICTED), NOW)
    counts.metrics.forget("cq")
    labels = {"cluster_queue": "cq", "reason": "Preempted"}
    assert counts.value("workload_eviction_latency_seconds_count", **labels) is None


def test_cycles_are_counted_by_what_they_reached(counts: Counts) -> None:
    """A success admits a Workload; a cycle without a head is none."""
    state = b.world(b.queue("a"))
    state.put_workload(b.workload("fits", "a"), b.NOW)
    state.put_workload(b.workload("big", "a", cpu=50, second=1), b.NOW)
    for _ in range(3):
        counts.metrics.decided(cycle(state, b.NOW).decisions, 0.02)
    assert counts.value("admission_attempts_total", result="success") == 1
    assert counts.value("admission_attempts_total", result="inadmissible") == 1
    assert counts.value("admission_attempt_duration_seconds_bucket", result="success", le="0.025") == 1
    assert counts.value("admission_attempt_duration_seconds_bucket", result="success", le="0.01") == 0


class TestCycles:
    """What one cycle decided of those whose victims others took."""

    def state(self, *, gates: Gates | None = None, cpu: int = 1) -> State:
        """`a` and `b` reclaim what `taker` borrowed of them."""
        policy = {"reclaimWithinCohort": "Any"}
        queues = [b.queue(name, {"default": {"cpu": cpu}}, "x", preemption=policy) for name in ("a", "b")]
        taker = b.queue("taker", {"default": {"cpu": 0}}, "x")
        state = b.world(*queues, taker, options=EngineOptions(gates=gates or Gates()))
        state.put_workload(b.workload("one", "a", cpu=cpu, priority=1), b.NOW)
        state.put_workload(b.workload("two", "b", cpu=cpu), b.NOW)
        return state

    def recomputed(self, counts: Counts, result: str) -> float | None:
        """Of the second queue."""
        return counts.value("preemption_target_recomputations_total", cluster_queue="b", result=result)

    def test_one_that_will_fit_when_the_victim_of_another_is_gone(self, counts: Counts) -> None:
        """It lost nothing."""
        state = self.state()
        state.put_workload(b.held("all", "taker", {"cpu": "2"}), b.NOW)
        counts.metrics.decided(cycle(state, b.NOW).decisions)
        assert self.recomputed(counts, "deferred_fit") == 1.0
        assert counts.value("admission_cycle_preemption_skips", cluster_queue="b") is None

    def test_of_a_cluster_queue_that_is_gone_nothing_is_counted(self) -> None:
        """It was deleted during the cycle: its series would stay for the term."""
        state, counts = self.state(), Counts()
        state.put_workload(b.held("all", "taker", {"cpu": "2"}), b.NOW)
        counts.metrics.begin(world(), State())
        counts.metrics.decided(cycle(state, b.NOW).decisions)
        assert self.recomputed(counts, "deferred_fit") is None

    def test_one_that_finds_other_victims(self, counts: Counts) -> None:
        """The first took the one that both chose."""
        state = self.state(cpu=2)
        state.put_workload(b.held("low", "taker", {"cpu": "2"}, priority=-5), b.NOW)
        state.put_workload(b.held("high", "taker", {"cpu": "2"}, priority=5), b.NOW)
        counts.metrics.decided(cycle(state, b.NOW).decisions)
        assert self.recomputed(counts, "new_targets") == 1.0
        assert counts.value("preemption_target_recomputations_total", cluster_queue="a", result="new_targets") is None

    def test_one_that_lost_its_victims_counts_until_the_next_cycle(self, counts: Counts) -> None:
        """Without the gate nobody looks again; the gauge is of the last cycle alone."""
        gates = Gates(recompute_assignment_upon_preemption_targets_overlap=False)
        state = self.state(gates=gates)
        state.put_workload(b.held("all", "taker", {"cpu": "2"}), b.NOW)
        counts.metrics.decided(cycle(state, b.NOW).decisions)
        assert counts.value("admission_cycle_preemption_skips", cluster_queue="b") == 1.0
        counts.metrics.decided([])
        assert counts.value("admission_cycle_preemption_skips", cluster_queue="b") == 0.0
        counts.metrics.forget("b")
        assert counts.value("admission_cycle_preemption_skips", cluster_queue="b") is None


class TestOtherClusters:
    """Workloads that are sent to other clusters; the names have Kueue's prefix for that."""

    def elsewhere(self, counts: Counts, metric: str) -> float | None:
        """One sample."""
        labels = {"cluster_queue": "cq", "cluster": "east", "replica_role": "leader"}
        return counts.registry.get_sample_value(f"multikueue_workloads_{metric}_total", labels)

    def test_one_that_is_created_there(self, counts: Counts) -> None:
        """Each time."""
        for _ in range(2):
            counts.metrics.sent(workload(RESERVED, admission=True), "east")
        assert self.elsewhere(counts, "dispatched") == 2

    def test_one_that_runs_there(self, counts: Counts) -> None:
        """Once, when its cluster is written down."""
        before = workload(RESERVED, admission=True)
        after = workload(RESERVED, admission=True, more_status={"clusterName": "east"})
        counts.metrics.changed(before, after, NOW)
        counts.metrics.changed(after, after, NOW)
        assert self.elsewhere(counts, "admitted") == 1
