"""Weighted shares as the status of ClusterQueues and Cohorts shows them."""

from typing import Any

import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.quantity import MAX_INT64
from turnstile.engine import Options, State, cycle_steps
from turnstile.engine.options import FairSharing


def world(*queues: ClusterQueue) -> State:
    """Queues under fair sharing."""
    return b.world(*queues, options=Options(fair_sharing=FairSharing()))


def status(state: State, name: str, *, cohort: bool) -> int | None:
    """A share as the status of its ClusterQueue or Cohort has it."""
    share = state.questions.weighted_share(name, cohort=cohort)
    return share.status if share is not None else None


@pytest.mark.parametrize(
    ("spec", "share"),
    [
        ({}, 200),
        ({"fairSharing": {"weight": "2"}}, 100),
        ({"fairSharing": {"weight": "3"}}, 67),
        ({"fairSharing": {"weight": "0"}}, MAX_INT64),
        ({"fairSharing": {"weight": "1e1000"}}, 1),
        ({"fairSharing": {"weight": "1e-1000"}}, 200_000_000_000),
    ],
)
def test_of_a_cluster_queue_that_borrows(spec: dict[str, Any], share: int) -> None:
    """Two of the ten cores that its cohort could lend, by weight, in thousandths and rounded up."""
    state = world(b.queue("a", {"default": {"cpu": 5}}, "all", **spec), b.queue("b", {"default": {"cpu": 5}}, "all"))
    state.put_workload(b.held("w", "a", {"cpu": "7"}), b.NOW)
    assert status(state, "a", cohort=False) == share
    assert status(state, "b", cohort=False) == 0


def test_of_a_cohort_that_borrows() -> None:
    """What its queues use past its own quota."""
    state = world(b.queue("a", {"default": {"cpu": 5}}, "near"), b.queue("b", {"default": {"cpu": 5}}, "far"))
    state.put_cohort(b.cohort("near", parent="far"))
    state.put_workload(b.held("w", "a", {"cpu": "7"}), b.NOW)
    assert status(state, "near", cohort=True) == 200
    assert status(state, "far", cohort=True) == 0
    assert state.questions.cohorts_above("a") == ["near", "far"]


def test_weight_0_is_endless_only_while_it_borrows() -> None:
    """Within its quota a queue's share is 0, whatever its weight."""
    state = world(b.queue("a", {"default": {"cpu": 5}}, "all", fairSharing={"weight": "0"}))
    assert status(state, "a", cohort=False) == 0


def test_without_a_cohort_or_a_name() -> None:
    """A queue on its own borrows nothing; of what does not exist there is no share."""
    state = world(b.queue("a", {"default": {"cpu": 5}}))
    state.put_workload(b.held("w", "a", {"cpu": "7"}), b.NOW)
    assert status(state, "a", cohort=False) == 0
    assert state.questions.cohorts_above("a") == []
    assert status(state, "gone", cohort=False) is None
    assert status(state, "gone", cohort=True) is None
    assert state.questions.cohorts_above("gone") == []


def test_a_cycle_of_cohorts_lends_nothing() -> None:
    """Its members have no share, and nobody looks for an end of the way up."""
    state = world(b.queue("a", {"default": {"cpu": 5}}, "x"))
    state.put_cohort(b.cohort("x", parent="y"))
    state.put_cohort(b.cohort("y", parent="x"))
    assert status(state, "a", cohort=False) == 0
    assert status(state, "x", cohort=True) == 0
    assert state.questions.cohorts_above("a") == []


def test_none_is_told_while_a_cycle_tries_usage() -> None:
    """Before and after it the share is known."""
    state = world(b.queue("a", {"default": {"cpu": 5}}, "all"), b.queue("b", {"default": {"cpu": 5}}, "all"))
    state.put_workload(b.workload("w", cpu=7), b.NOW)
    steps = cycle_steps(state, b.NOW, stretch=0)
    next(steps)
    assert status(state, "a", cohort=False) is None
    for _ in steps:
        pass
    assert status(state, "a", cohort=False) == 200
