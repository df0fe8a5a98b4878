"""No time that is left exceeds the length of its span, however the clock is set."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controllers.job_cluster import NOW, Cluster
from tests.unit.controllers.test_children import SET
from tests.unit.controllers.test_ends import LateChildren
from turnstile.api.conditions import timestamp
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.runtime.actions import RequeueAfter
from turnstile.controllers.status import podsready, spans
from turnstile.controllers.status.spans import Spans
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ends import Ends
from turnstile.controllers.workloads import workload
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.options import JobOptions, PodsReadyOptions
from turnstile.kube import answers

HOUR = timedelta(hours=1)


class Clock:
    """Seconds that only grow."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """What it shows."""
        return self.seconds


def set_back(world: ClusterView) -> Clock:
    """Time is measured from now on; the wall clock is the test's own."""
    clock = Clock()
    world.spans, world.ends = Spans(clock), Ends()
    return clock


class TestASpan:
    """One that began at a time that is written in an object."""

    def test_is_compared_with_the_wall_clock(self) -> None:
        """While that says that it has begun."""
        clock = Clock()
        assert Spans(clock).left(NOW, 5.0, NOW + timedelta(seconds=2)) == 3.0
        assert Spans(clock).left(NOW, 5.0, NOW + HOUR) < 0

    def test_that_has_not_begun_by_the_wall_clock_is_measured(self) -> None:
        """From the first look at it; another clock wrote it, or this one was set back."""
        clock = Clock()
        made = Spans(clock)
        assert made.left(NOW, 5.0, NOW - HOUR) == 5.0
        clock.seconds = 2.0
        assert made.left(NOW, 5.0, NOW - HOUR) == 3.0
        clock.seconds = 6.0
        assert made.left(NOW, 5.0, NOW - HOUR) < 0
        assert made.left(NOW, 5.0, NOW + timedelta(seconds=1)) < 0

    @given(
        length=st.integers(0, 10**9),
        steps=st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 10**6)), min_size=1, max_size=20),
    )
    def test_never_has_more_left_than_its_length(self, length: int, steps: list[tuple[int, int]]) -> None:
        """Wherever the wall clock jumps to."""
        clock = Clock()
        made = Spans(clock)
        for wall, elapsed in steps:
            clock.seconds += elapsed
            assert made.left(NOW, length, NOW + timedelta(seconds=wall)) <= length

    def test_is_forgotten_among_very_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tenant can write any number of times."""
        monkeypatch.setattr(spans, "REMEMBERED", 3)
        made = Spans(Clock())
        for second in range(10):
            made.left(NOW + timedelta(seconds=second), 5.0, NOW - HOUR)
        assert len(made._ahead) == 3


def test_quota_of_a_deleted_job_is_kept_for_seconds_though_the_clock_is_set_back() -> None:
    """That pods may be on their way is this process's own span: it is measured, and never compared."""
    cluster = LateChildren()
    clock = set_back(cluster.world)
    cluster.delete(JobSet, "team/set")
    cluster.later(hours=-1)
    cluster.settle(SET)
    assert cluster.reserved
    assert [each.seconds for each in cluster.decide(SET).actions if isinstance(each, RequeueAfter)] == [5.0]
    clock.seconds = 6.0
    cluster.settle(SET)
    assert not cluster.reserved


def written(**status: Any) -> Workload:
    """A Workload of a Job with conditions of the present time."""
    body = {
        "metadata": {
            "name": "w",
            "namespace": "team",
            "uid": "w",
            "ownerReferences": [{"kind": "Job", "apiVersion": "batch/v1", "name": "j", "uid": "j", "controller": True}],
        },
        "spec": {"podSets": [], "maximumExecutionTimeSeconds": 100, "active": True},
        "status": {
            "conditions": [
                {"type": name, "status": "True", "reason": "R", "lastTransitionTime": timestamp(NOW)}
                for name in status.pop("conditions")
            ],
            **status,
        },
    }
    return answers.decoder(Workload)(json.dumps(body).encode())


HELD = written(conditions=["QuotaReserved", "Admitted"])
STOPPED = written(conditions=["QuotaReserved", "Admitted", "Evicted"])
WAITS = written(conditions=["Evicted"], requeueState={"requeueAt": timestamp(NOW + timedelta(seconds=60))})
ENDED = written(conditions=["Finished"])
READY = PodsReadyOptions(timeout=300.0)


def ready_left(world: ClusterView) -> float:
    """Seconds for pods to become ready."""
    waits = podsready.patience(HELD, READY, world.now, spans=world.spans)
    assert waits is not None
    return waits[1]


def requeued(decision: Any) -> float:
    """Seconds until a decision is made again; 0 if it is made now."""
    return next((each.seconds for each in decision.actions if isinstance(each, RequeueAfter)), 0.0)


@pytest.mark.parametrize(
    ("left", "length"),
    [
        (lambda world: charges.unseen_seconds(HELD, world), 5.0),
        (lambda world: charges.unread_seconds(STOPPED, world), 35.0),
        (ready_left, 300.0),
        (lambda world: spans.backoff_left(WAITS, world.spans, world.now), 60.0),
        (lambda world: (patience.allowed([STOPPED], world) or patience.SHORT).cut, 300.0),
        (lambda world: requeued(workload._overdue(HELD, world)), 100.0),
        (lambda world: requeued(workload._kept(ENDED, world)), 600.0),
    ],
    ids=["unseen pods", "unread stop", "pods ready", "back-off", "victim patience", "execution time", "retention"],
)
def test_a_clock_that_is_set_back_makes_no_wait_longer(left: Callable[[ClusterView], float], length: float) -> None:
    """Whatever waits since a time that is written in an object waits for the length of its span at most, and not again
    and again."""
    cluster = Cluster(options=JobOptions(keep_finished=600.0, victim_patience=300.0))
    clock = set_back(cluster.world)
    cluster.later(hours=-1)
    assert left(cluster.world) == length
    clock.seconds = length / 2
    assert left(cluster.world) == length / 2
    clock.seconds = length + 1
    assert left(cluster.world) in (0.0, 10.0)  # pods whose time is over have ten seconds to stop
