"""Where quota is short, the rule is told that keeps a Workload from preempting those that hold it."""

from typing import Any

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from turnstile.engine import Options
from turnstile.insight.explain import explain
from turnstile.insight.snapshot import Snapshot

GPU = "nvidia.com/gpu"


def rules(cpu: str, **policy: Any) -> tuple[str, ...]:
    """The rules that are told of a Workload of one GPU and some cpus; its ClusterQueue has lent its GPUs, and has 4
    cpus."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, GPU: "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    snapshot = Snapshot()
    for each in (
        team(), b.flavor(), b.local("main", "main"), b.local("other", "other"),
        b.queue("main", {"default": {"cpu": 4, GPU: 2}}, "root", preemption=policy),
        b.queue("other", {"default": {"cpu": 8, GPU: 0}}, "root"),
        b.held("borrows", "other", {"cpu": "1", GPU: "2"}, priority=5),
        b.changed(b.workload("waits", priority=5, second=1), spec={"podSets": [pod_set]}),
    ):  # fmt: skip
        snapshot.put(each)
    return explain(snapshot, Options(), b.NOW, "team/waits", sees=lambda _: True).rules


def test_it_would_have_to_borrow_something_else() -> None:
    """Its own GPUs are lent, and are not reclaimed for a Workload that borrows cpu."""
    (rule,) = rules("6", reclaimWithinCohort="Any")
    assert rule == (
        "ClusterQueue main does not take back GPUs on default nodes that it has lent, because it would have to borrow"
        " CPUs: reclaimWithinCohort does not apply"
    )


def test_nothing_is_reclaimed() -> None:
    """The policy is Never."""
    (rule,) = rules("1")
    assert rule.endswith("that it has lent: reclaimWithinCohort is Never")


def test_the_holders_have_not_run_long_enough() -> None:
    """It is told until when the first of them is protected from preemption."""
    queue = b.queue("main", {"default": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"})
    queue.metadata.annotations["turnstile.dev/minimum-run-time"] = "10m"
    snapshot = Snapshot()
    for each in (
        team(), b.flavor(), queue, b.local("main", "main"),
        b.held("low", "main", {"cpu": "4"}), b.workload("high", cpu=2, priority=5, second=1),
    ):  # fmt: skip
        snapshot.put(each)
    answer = explain(snapshot, Options(), b.NOW, "team/high", sees=lambda _: True)
    (rule,) = answer.rules
    assert rule == (
        "Workloads that it could preempt are protected by their minimum run time: the first of them until"
        " 2026-01-02T03:14:00Z"
    )
    answer = explain(snapshot, Options(), b.NOW + 600, "team/high", sees=lambda _: True)
    assert not answer.rules


def test_quota_is_kept_for_one_that_has_waited_for_long() -> None:
    """It is told since when, and the Workload behind it why it is not tried."""
    queue = b.queue("main", {"default": {"cpu": 4}})
    queue.metadata.annotations["turnstile.dev/keep-quota-after"] = "10m"
    snapshot = Snapshot()
    for each in (
        team(), b.flavor(), queue, b.local("main", "main"),
        b.held("runs", "main", {"cpu": "2"}), b.workload("gang", count=4), b.workload("small", second=1),
    ):  # fmt: skip
        snapshot.put(each)
    gang, small = (
        explain(snapshot, Options(), b.NOW + 600, f"team/{name}", sees=lambda _: True) for name in ("gang", "small")
    )
    assert gang.kept == "ClusterQueue main keeps what comes free for it since 2026-01-02T03:14:00Z"
    assert gang.sentence.startswith("Waits for 2 more CPUs")
    assert small.sentence == (
        "ClusterQueue main keeps what comes free for a Workload that has waited for long, and comes before it."
    )


def test_lower_priorities_of_its_own_queue() -> None:
    """They keep their quota where withinClusterQueue is Never."""
    snapshot = Snapshot()
    for each in (
        team(), b.flavor(), b.queue("main", {"default": {"cpu": 4}}), b.local("main", "main"),
        b.held("low", "main", {"cpu": "4"}), b.workload("high", cpu=2, priority=5, second=1),
    ):  # fmt: skip
        snapshot.put(each)
    answer = explain(snapshot, Options(), b.NOW, "team/high", sees=lambda _: True)
    assert answer.rules == (
        "Workloads of lower priority in ClusterQueue main keep CPUs on default nodes: withinClusterQueue is Never",
    )
