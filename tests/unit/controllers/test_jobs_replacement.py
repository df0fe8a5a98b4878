"""A pod that is being deleted is replaced when it has ended, whichever way its Job came to be queued."""

import pytest

from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.test_children import Nursery
from turnstile.api.core import Job

EARLY, LATE = "TerminatingOrFailed", "Failed"


def policy(cluster: Cluster, name: str = "train") -> str | None:
    """The `podReplacementPolicy` of a Job."""
    found = cluster.get(Job, f"team/{name}")
    assert found is not None
    text: str | None = found["spec"].get("podReplacementPolicy")
    return text


def admitted(replacement: str | None) -> Cluster:
    """A Job with this policy that was admitted and started."""
    cluster = Cluster()
    cluster.flavor()
    cluster.job(**({"podReplacementPolicy": replacement} if replacement else {}))
    cluster.settle()
    cluster.admit()
    cluster.settle()
    return cluster


@pytest.mark.parametrize(("asked", "found"), [(EARLY, LATE), (LATE, LATE), (None, None)])
def test_a_start_sets_it_in_the_same_patch(asked: str | None, found: str | None) -> None:
    """An API server that does not know the field gets none."""
    cluster = admitted(asked)
    assert policy(cluster) == found
    assert cluster.writes.count("patch Job") == 1


def test_a_stop_leaves_it() -> None:
    """The next start would set it again; what the user wrote cannot be told from the API server's default."""
    cluster = admitted(EARLY)
    cluster.evict()
    cluster.settle()
    assert policy(cluster) == LATE


def test_a_running_job_that_was_changed_gets_it_again() -> None:
    """Or one that was started by an earlier version of Turnstile."""
    cluster = admitted(EARLY)
    cluster.run_pods()
    cluster.patch(Job, "team/train", {"spec": {"podReplacementPolicy": EARLY}})
    cluster.settle()
    assert policy(cluster) == LATE


def test_a_child_that_is_charged_for_gets_it() -> None:
    """Its owner's controller does not copy the field, and does not look at it."""
    cluster = Nursery()
    cluster.child()
    cluster.patch(Job, "team/child", {"spec": {"podReplacementPolicy": EARLY}})
    cluster.look()
    assert policy(cluster, "child") == LATE
    assert cluster.writes == ["patch Job"]


def test_a_child_gets_it_while_it_waits() -> None:
    """A webhook with an old cache may have left it; after the admission its owner's controller may resume it first."""
    cluster = Nursery(admitted=False)
    cluster.child(suspend=True)
    cluster.patch(Job, "team/child", {"spec": {"podReplacementPolicy": EARLY}})
    cluster.look()
    assert policy(cluster, "child") == LATE
    assert cluster.writes == ["patch Job"]
