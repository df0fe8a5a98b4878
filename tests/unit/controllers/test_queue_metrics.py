"""What a scrape finds about queues and Cohorts: what the ledger and the queues hold at that moment."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from tests.unit.controllers import worlds
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Namespace
from turnstile.api.meta import Kind
from turnstile.api.selectors import LabelSelector
from turnstile.api.workload import Workload
from turnstile.controllers.metrics.labels import UNTRACKED, CustomLabel, MetricOptions
from turnstile.controllers.metrics.queues import QueueMetrics
from turnstile.controllers.metrics.tallies import Tallies
from turnstile.controllers.queues.statuses import CountedShares
from turnstile.controllers.view.ledgerfeed import follow
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import AdmissionFairSharing, FairSharing, Gates


class World(Collector):
    """Stores, the ledger that follows them, and the gauges of both."""

    def __init__(self, *objects: Kind, measured: MetricOptions | None = None, options: Options | None = None) -> None:
        team = worlds.decode(Namespace, {"metadata": {"name": "team"}})
        for number, each in enumerate(objects, 1):
            each.metadata.resource_version = str(number)
        self.cluster = worlds.world(team, b.flavor(), *objects)
        self.state = State(options)
        follow(self.state, self.cluster, take=lambda change: change())
        self.shares = CountedShares(self.state)
        self.metrics = QueueMetrics(
            self.cluster, self.state, self.shares, Tallies(self.cluster.workloads), measured or MetricOptions()
        )
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        """Nothing in advance."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The gauges."""
        return self.metrics.collect()

    def value(self, metric: str, /, **labels: str) -> float | None:
        """One sample."""
        return self.registry.get_sample_value(f"kueue_{metric}", {**labels, "replica_role": "leader"})

    def named(self, **labels: str) -> set[str]:
        """Metrics that have a series with these labels."""
        return {
            sample.name
            for family in self.registry.collect()
            for sample in family.samples
            if labels.items() <= sample.labels.items()
        }


def finished(name: str, queue: str = "a") -> Workload:
    """A Workload that is over."""
    return b.with_conditions(b.held(name, queue, {"cpu": "1"}), Finished=("True", "Succeeded"))


def team(*more: Kind, measured: MetricOptions | None = None, **options: Any) -> World:
    """ClusterQueues `a` and `b` of Cohort `inner` in `outer`, each with a LocalQueue of its name."""
    queues = [
        b.queue("a", {"default": {"cpu": (4, 2, None), "memory": 10}}, "inner"),
        b.queue("b", {"default": {"cpu": 6, "memory": 20}}, "inner"),
    ]
    lines = [b.local(name, name) for name in ("a", "b")]
    cohorts = [b.cohort("inner", {"default": {"cpu": 1}}, parent="outer")]
    return World(*cohorts, *queues, *lines, *more, measured=measured, options=Options(**options))


class TestClusterQueues:
    def test_who_waits(self) -> None:
        """Those in the queue are active, with their equals that were refused they are inadmissible."""
        world = team(*(b.workload(f"big-{each}", "a", cpu=50) for each in range(3)), b.workload("small", "a"))
        assert world.value("pending_workloads", cluster_queue="a", status="active") == 4
        assert world.value("local_queue_pending_workloads", name="a", namespace="team", status="active") == 4
        assert world.value("pending_scheduling_hashes", cluster_queue="a", status="active") == 2
        b.settle(world.state)
        assert world.value("pending_workloads", cluster_queue="a", status="active") == 0
        assert world.value("pending_workloads", cluster_queue="a", status="inadmissible") == 3
        assert world.value("local_queue_pending_workloads", name="a", namespace="team", status="inadmissible") == 3
        assert world.value("pending_scheduling_hashes", cluster_queue="a", status="inadmissible") == 1
        assert world.value("pending_workloads", cluster_queue="b", status="inadmissible") == 0

    def test_the_head_that_a_cycle_works_on_is_active(self) -> None:
        """Its queue is empty meanwhile."""
        world = team(b.workload("w", "a"))
        world.state.cluster_queues["a"].pending.pop()
        assert world.value("pending_workloads", cluster_queue="a", status="active") == 1

    def test_all_are_inadmissible_in_a_queue_that_admits_nothing(self) -> None:
        """As in Kueue."""
        world = World(b.queue("a", stopPolicy="Hold"), b.local("a", "a"), b.workload("w", "a"))
        assert world.value("pending_workloads", cluster_queue="a", status="active") == 0
        assert world.value("pending_workloads", cluster_queue="a", status="inadmissible") == 1
        status = {each: world.value("cluster_queue_status", cluster_queue="a", status=each) for each in
                  ("pending", "active", "terminating")}  # fmt: skip
        assert status == {"pending": 1, "active": 0, "terminating": 0}

    def test_who_holds_quota_and_who_is_over(self) -> None:
        """Finished Workloads count for as long as they exist."""
        world = team(b.held("w", "a", {"cpu": "1"}), finished("done"), finished("gone"))
        assert world.value("reserving_active_workloads", cluster_queue="a") == 1
        assert world.value("admitted_active_workloads", cluster_queue="a") == 1
        assert world.value("finished_workloads", cluster_queue="a") == 2
        world.cluster.workloads.delete("team/gone")
        assert world.value("finished_workloads", cluster_queue="a") == 1
        assert world.value("local_queue_finished_workloads", name="a", namespace="team") == 1

    def test_why_they_are_not_admitted(self) -> None:
        """By the reasons in their conditions."""
        seen = b.with_conditions(b.workload("seen", "a"), QuotaReserved=("False", "WaitingForQuota"))
        checked = b.with_conditions(b.held("checked", "a", {"cpu": "1"}), Admitted=("False", "UnsatisfiedChecks"))
        world = team(b.workload("new", "a"), seen, checked, b.held("runs", "a", {"cpu": "1"}))
        why = {"cluster_queue": "a", "reason": "NoReservation"}
        assert world.value("unadmitted_workloads", **why, underlying_cause="PendingEvaluation") == 1
        assert world.value("unadmitted_workloads", **why, underlying_cause="WaitingForQuota") == 1
        why["reason"] = "UnsatisfiedChecks"
        assert world.value("unadmitted_workloads", **why, underlying_cause="") == 1
        assert world.value("local_queue_unadmitted_workloads", name="a", namespace="team", **why,
                           underlying_cause="") == 1  # fmt: skip

    def test_the_wait_of_the_head(self) -> None:
        """Since it joined; the clock of these tests stands still."""
        world = team(b.workload("w", "a"))
        labels = {"cluster_queue": "a"}
        name = "turnstile_cluster_queue_head_wait_seconds"
        assert world.registry.get_sample_value(name, labels) == 5.0
        assert world.registry.get_sample_value(name, {"cluster_queue": "b"}) == 0.0


class TestResources:
    """Only with `enableClusterQueueResources`."""

    def test_are_left_out(self) -> None:
        """By default."""
        assert "kueue_cluster_queue_nominal_quota" not in team().named(cluster_queue="a")

    def test_of_a_cluster_queue(self) -> None:
        """Cores and bytes; what has no limit has an infinite one."""
        used = b.held("w", "a", {"cpu": "1500m", "memory": "3"})
        world = team(used, b.workload("w2", "b", cpu="2500m"), measured=MetricOptions(resources=True))
        where = {"cohort": "inner", "cluster_queue": "a", "flavor": "default", "resource": "cpu"}
        assert world.value("cluster_queue_nominal_quota", **where) == 4
        assert world.value("cluster_queue_borrowing_limit", **where) == 2
        assert world.value("cluster_queue_lending_limit", **where) == math.inf
        assert world.value("cluster_queue_resource_reservation", **where) == 1.5
        assert world.value("cluster_queue_resource_usage", **where) == 1.5
        assert world.value("cluster_queue_resource_usage", **{**where, "resource": "memory"}) == 3
        assert world.value("cluster_queue_resource_pending", cluster_queue="b", resource="cpu") == 2.5
        assert world.value("cluster_queue_resource_pending", cluster_queue="b", resource="memory") == 0

    def test_the_largest_amounts_are_unlimited(self) -> None:
        """As Kueue's."""
        largest = World(b.queue("a", {"default": {"cpu": 2**63 - 1}}), measured=MetricOptions(resources=True))
        where = {"cohort": "", "cluster_queue": "a", "flavor": "default", "resource": "cpu"}
        assert largest.value("cluster_queue_nominal_quota", **where) == math.inf

    def test_what_waits_requests_less_when_it_leaves(self) -> None:
        """Also in a part, and when its LocalQueue is stopped."""
        world = team(b.workload("w", "a", cpu=3), b.workload("v", "a", cpu=50), measured=MetricOptions(resources=True))
        pending = {"cluster_queue": "a", "resource": "cpu"}
        assert world.value("cluster_queue_resource_pending", **pending) == 53
        cycle(world.state, b.NOW)
        cycle(world.state, b.NOW)
        assert world.value("cluster_queue_resource_pending", **pending) == 50
        stopped = b.local("a", "a", stopPolicy="Hold")
        stopped.metadata.resource_version = "100"
        world.cluster.local_queues.observe(stopped)
        assert world.value("cluster_queue_resource_pending", **pending) == 0


class TestCohorts:
    def test_sums_of_what_is_below(self) -> None:
        """Quota, reservations and admitted Workloads."""
        world = team(b.held("w", "a", {"cpu": "2"}), b.held("v", "b", {"cpu": "3"}))
        for name, quota in (("inner", 11), ("outer", 11)):
            where = {"cohort": name, "flavor": "default", "resource": "cpu"}
            assert world.value("cohort_subtree_quota", **where) == quota
            assert world.value("cohort_subtree_resource_reservations", **where) == 5
            assert world.value("cohort_subtree_admitted_active_workloads", cohort=name) == 2
        assert world.value("cohort_info", cohort="inner", parent_cohort="outer", root_cohort="outer") == 1
        assert world.value("cohort_info", cohort="outer", parent_cohort="", root_cohort="outer") == 1
        assert world.value("cluster_queue_info", cluster_queue="a", parent_cohort="inner", root_cohort="outer") == 1

    def test_may_be_left_out(self) -> None:
        """By the gate MetricsForCohorts."""
        world = team(measured=MetricOptions(cohorts=False))
        assert not world.named(cohort="inner")
        assert "kueue_cluster_queue_info" not in world.named(cluster_queue="a")

    def test_a_cycle_of_cohorts_does_no_harm(self) -> None:
        """It has no root."""
        world = World(b.cohort("x", parent="y"), b.cohort("y", parent="x"), b.queue("a", None, "x"))
        assert world.value("cohort_info", cohort="x", parent_cohort="y", root_cohort="") == 1
        assert world.value("cluster_queue_info", cluster_queue="a", parent_cohort="x", root_cohort="") == 1

    def test_shares(self) -> None:
        """As they were last computed; of weight 0 that borrows no number."""
        queue = b.queue("z", {"default": {"cpu": 0}}, "inner", fairSharing={"weight": "0"})
        borrower = b.held("w", "z", {"cpu": "2"})
        world = team(queue, b.local("z", "z"), borrower, fair_sharing=FairSharing())
        where = {"cluster_queue": "z", "cohort": "inner"}
        assert world.value("cluster_queue_weighted_share", **where) is None
        world.shares.count(ClusterQueue, "z")
        world.shares.count(ClusterQueue, "a")
        world.shares.count(Cohort, "inner")
        assert math.isnan(world.value("cluster_queue_weighted_share", **where) or 0.0)
        assert world.value("cluster_queue_weighted_share", cluster_queue="a", cohort="inner") == 0
        assert world.value("cohort_weighted_share", cohort="inner") == 0


class TestLocalQueues:
    def test_what_they_use(self) -> None:
        """And whether they are active."""
        world = team(b.held("w", "a", {"cpu": "2"}))
        where = {"name": "a", "namespace": "team"}
        of_cpu = {**where, "flavor": "default", "resource": "cpu"}
        assert world.value("local_queue_resource_reservation", **of_cpu) == 2
        assert world.value("local_queue_resource_usage", **of_cpu) == 2
        assert world.value("local_queue_reserving_active_workloads", **where) == 1
        assert world.value("local_queue_admitted_active_workloads", **where) == 1
        assert [world.value("local_queue_status", **where, active=each) for each in ("True", "False", "Unknown")] == [
            1,
            0,
            0,
        ]

    def test_usage_that_orders_them(self) -> None:
        """With admission fair sharing."""
        spec = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
        line = b.local("a", "a", fairSharing={"weight": "2"})
        sharing = Options(
            admission_fair_sharing=AdmissionFairSharing(usage_half_life=600.0), gates=Gates(admission_fair_sharing=True)
        )
        world = World(b.queue("a", **spec), line, options=sharing)
        world.state.sharing.set_consumed("team/a", {"cpu": "4"}, b.NOW)
        usage = world.value("local_queue_admission_fair_sharing_usage", name="a", namespace="team", cluster_queue="a")
        assert usage == 2.0

    @pytest.mark.parametrize(
        ("measured", "shown"),
        [
            (MetricOptions(), True),
            (MetricOptions(local_queues=False), False),
            (MetricOptions(selector=LabelSelector(match_labels={"env": "prod"})), True),
            (MetricOptions(selector=LabelSelector(match_labels={"env": "test"})), False),
        ],
        ids=["all", "switched off", "selected", "not selected"],
    )
    def test_which_have_metrics(self, measured: MetricOptions, *, shown: bool) -> None:
        """As configured."""
        line = b.local("a", "a")
        line.metadata.labels = {"env": "prod"}
        world = World(b.queue("a"), line, b.workload("w", "a"), measured=measured)
        assert bool(world.named(name="a", namespace="team")) is shown


class TestCustomLabels:
    LABELS = (
        CustomLabel("team", "ClusterQueue", "org/team"),
        CustomLabel("env", "LocalQueue", "env", from_annotation=True),
        CustomLabel("site", "Cohort", "site"),
        CustomLabel("size", "Workload", "size", tracked=frozenset({"big"})),
    )

    def test_of_each_kind(self) -> None:
        """A value that is not tracked has one name for all."""
        queue, line, cohort = b.queue("a", None, "all"), b.local("a", "a"), b.cohort("all")
        queue.metadata.labels, line.metadata.annotations = {"org/team": "infra"}, {"env": "prod"}
        cohort.metadata.labels = {"site": "north"}
        waiting = [b.workload(f"w{each}", "a") for each in range(3)]
        waiting[0].metadata.labels, waiting[1].metadata.labels = {"size": "big"}, {"size": "tiny"}
        measured = MetricOptions(custom=self.LABELS)
        world = World(cohort, queue, line, *waiting, measured=measured)
        where = {"cluster_queue": "a", "custom_team": "infra"}
        for value in ("big", UNTRACKED, ""):
            assert world.value("pending_workloads", **where, status="active", custom_size=value) == 1
        assert world.value("reserving_active_workloads", **where) == 0
        assert world.value("local_queue_status", name="a", namespace="team", active="True", custom_env="prod") == 1
        root = {"cohort": "all", "parent_cohort": "", "root_cohort": "all"}
        assert world.value("cohort_info", **root, custom_site="north") == 1
        assert world.value("cohort_subtree_admitted_active_workloads", cohort="all", custom_team="infra") == 0

    def test_a_new_value_takes_the_place_of_the_old(self) -> None:
        """In the next scrape."""
        queue, other = b.queue("a"), b.queue("a")
        queue.metadata.labels, other.metadata.labels = {"org/team": "one"}, {"org/team": "two"}
        world = World(queue, measured=MetricOptions(custom=self.LABELS))
        other.metadata.resource_version = "100"
        world.cluster.cluster_queues.observe(other)
        assert not world.named(custom_team="one")
        assert world.value("reserving_active_workloads", cluster_queue="a", custom_team="two") == 0


class TestWhatIsGone:
    """Its series are not in the next scrape."""

    def test_a_cluster_queue(self) -> None:
        """With whatever waits or runs in it."""
        world = team(
            b.workload("w", "a"), b.held("v", "a", {"cpu": "1"}), finished("f"), measured=MetricOptions(resources=True)
        )
        assert len(world.named(cluster_queue="a")) > 12
        world.cluster.cluster_queues.delete("a")
        assert not {each for each in world.named(cluster_queue="a") if "local_queue" not in each}

    def test_a_local_queue(self) -> None:
        """Likewise."""
        world = team(b.workload("w", "a"), b.held("v", "a", {"cpu": "1"}), finished("f"))
        assert world.named(name="a")
        world.cluster.local_queues.delete("team/a")
        assert not world.named(name="a")

    def test_a_flavor_and_a_cohort(self) -> None:
        """When no queue names them any more."""
        world = team(measured=MetricOptions(resources=True))
        other = b.queue("a", {"other": {"cpu": 1}})
        for kind, value in ((ClusterQueue, other), (ClusterQueue, b.queue("b", {"other": {"cpu": 1}}))):
            assert isinstance(value, kind)
            value.metadata.resource_version = "100"
            world.cluster.cluster_queues.observe(value)
        world.cluster.cohorts.delete("inner")
        world.cluster.flavors.delete("default")
        assert not world.named(flavor="default")
        assert not world.named(cohort="inner")
        assert not world.named(cohort="outer")


def test_nothing_is_changed_by_reading() -> None:
    """Two scrapes find the same, and so does the next cycle."""
    world = team(b.workload("w", "a"), measured=MetricOptions(resources=True))
    first = [(sample.name, sample.labels, sample.value) for each in world.collect() for sample in each.samples]
    again = [(sample.name, sample.labels, sample.value) for each in world.collect() for sample in each.samples]
    assert first == again
    assert [each.outcome for each in cycle(world.state, b.NOW)] == ["admit"]
