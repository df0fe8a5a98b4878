"""The owner of those who wait knows LocalQueues and heaps, and no quota."""

from tests.unit.engine import builders as b
from turnstile.engine import Decision, Options
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.queues import Queues
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.surroundings import Surroundings

OPTIONS = Options()


def queues(*names: str) -> tuple[Queues, dict[str, ClusterQueue]]:
    """Queues over ClusterQueues of these names, each with a LocalQueue of its name that is open."""
    cluster_queues = {name: ClusterQueue(name) for name in names}
    made = Queues(cluster_queues, OPTIONS)
    for name in names:
        made.local(f"team/{name}").api = b.local(name, name)
    return made, cluster_queues


def info(name: str, queue: str) -> Info:
    """A Workload that waits."""
    return Info(b.workload(name, queue), Surroundings(OPTIONS))


def test_a_workload_that_waits_is_in_its_local_queue_and_in_the_heap() -> None:
    """While both queues are open."""
    made, cluster_queues = queues("a")
    made.wait(info("w", "a"), b.NOW)
    assert list(made.waiting) == list(made.local("team/a").items) == ["team/w"]
    assert cluster_queues["a"].pending.is_active("team/w")


def test_a_workload_of_a_missing_local_queue_waits_in_no_heap() -> None:
    """It becomes active when the LocalQueue opens."""
    made, cluster_queues = queues("a")
    made.wait(info("w", "late"), b.NOW)
    assert not len(cluster_queues["a"].pending)
    late = made.local("team/late")
    late.api = b.local("late", "a")
    made.open(late, b.NOW)
    assert cluster_queues["a"].pending.is_active("team/w")


def test_a_workload_that_moves_leaves_nothing_in_its_old_queue() -> None:
    """A newer version names another LocalQueue."""
    made, cluster_queues = queues("a", "b")
    made.wait(info("w", "a"), b.NOW)
    made.wait(info("w", "b"), b.NOW)
    assert not len(cluster_queues["a"].pending)
    assert not made.local("team/a").items
    assert cluster_queues["b"].pending.is_active("team/w")


def test_a_local_queue_without_object_and_workloads_is_forgotten() -> None:
    """The last Workload that leaves takes it along."""
    made, _ = queues("a")
    made.wait(info("w", "nowhere"), b.NOW)
    made.leave("team/w")
    assert "team/nowhere" not in made.local_queues


def test_what_a_cycle_decided_is_forgotten_with_the_place_in_the_queue() -> None:
    """It says nothing about the time after the Workload's return."""
    made, cluster_queues = queues("a")
    given = info("w", "a")
    made.wait(given, b.NOW)
    made.remember(_decision(given, cluster_queues["a"]))
    assert "team/w" in made.decisions
    made.close(made.local("team/a"), "a")
    assert not made.decisions
    assert "team/w" in made.waiting


def test_an_admission_is_not_remembered() -> None:
    """The Workload does not wait any more."""
    made, cluster_queues = queues("a")
    given = info("w", "a")
    decision = _decision(given, cluster_queues["a"])
    decision.outcome = "admit"
    made.remember(decision)
    assert not made.decisions


def _decision(given: Info, queue: ClusterQueue) -> Decision:
    return Decision(
        key=given.key,
        uid=given.uid,
        generation=given.generation,
        cluster_queue=queue.name,
        workload=given.workload,
        info=given,
        outcome="pending",
    )
