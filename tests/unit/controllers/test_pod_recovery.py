"""A pod that should have ended a minute ago on a node that is unreachable is ended, if its annotation allows it."""

from typing import Any

import msgspec
import pytest

from tests.unit.controllers.worlds import decode, world
from turnstile.api.core import Node, Pod
from turnstile.controllers.podrecovery import controller, decide, index_stuck
from turnstile.controllers.runtime.actions import Action, Delete, Emit, Patch, ReconcileResult, RequeueAfter

LONG_AGO = "2026-01-02T03:00:00Z"
AWAY = ("node.kubernetes.io/unreachable",)


def pod(*, since: str | None = LONG_AGO, safe: str | None = "true", phase: str = "Running", **meta: Any) -> Pod:
    """A pod on node n-1; `safe` is what its annotation says."""
    annotations = {"kueue.x-k8s.io/safe-to-forcefully-delete": safe} if safe is not None else {}
    told = {"name": "p", "namespace": "ns", "uid": "u", "deletionTimestamp": since, "annotations": annotations, **meta}
    return decode(Pod, {"metadata": told, "spec": {"nodeName": "n-1"}, "status": {"phase": phase}})


def node(*taints: str) -> Node:
    """Node n-1."""
    given = [{"key": each, "effect": "NoExecute"} for each in taints]
    return decode(Node, {"metadata": {"name": "n-1"}, "spec": {"taints": given}})


def decided(*objects: Pod | Node) -> ReconcileResult:
    """The decision about the pod, at 03:04:05."""
    return decide("ns/p", world(*objects))


def ended(*objects: Pod | Node) -> bool:
    """Whether the pod is ended."""
    return any(isinstance(each, Delete) for each in decided(*objects).actions)


def status_of(action: Action) -> dict[str, Any]:
    """The status that a patch writes."""
    assert isinstance(action, Patch)
    assert action.subresource == "status"
    found: dict[str, Any] = msgspec.json.decode(action.body)["status"]
    return found


def test_it_is_failed_and_deleted() -> None:
    """In this order, so that its job counts it as failed; and its owner is told why."""
    patch, delete, event = decided(pod(deletionGracePeriodSeconds=30), node(*AWAY)).actions
    assert status_of(patch)["phase"] == "Failed"
    assert delete == Delete(Pod, "ns", "p", uid="u", grace_seconds=0)
    assert isinstance(event, Emit)
    assert "after 1m30s grace period due to unreachable node `n-1`" in event.note


def test_an_outcome_stays() -> None:
    """A pod that had ended before its node went away keeps its phase."""
    assert "phase" not in status_of(decided(pod(phase="Succeeded"), node(*AWAY)).actions[0])


@pytest.mark.parametrize(
    ("given", "at"),
    [
        (pod(safe=None), node(*AWAY)),
        (pod(safe="false"), node(*AWAY)),
        (pod(since=None), node(*AWAY)),
        (pod(), node()),
        (pod(), node("node.kubernetes.io/not-ready")),
        (pod(phase="Failed", deletionGracePeriodSeconds=0), node(*AWAY)),
    ],
    ids=["no annotation", "annotation false", "not being deleted", "node reached", "node not ready", "ended already"],
)
def test_a_pod_that_is_left_alone(given: Pod, at: Node) -> None:
    """It may still run, or is over."""
    assert not ended(given, at)


def test_a_node_that_is_gone() -> None:
    """Kubernetes deletes its pods itself."""
    assert not ended(pod())


def test_the_kubelet_has_a_minute() -> None:
    """From the end of the grace period; the pod is looked at again then."""
    (later,) = decided(pod(since="2026-01-02T03:03:25Z"), node(*AWAY)).actions
    assert later == RequeueAfter(20.0)


class TestWhenItIsLookedAt:
    def keys(self, old: Node | None, new: Node) -> list[str]:
        """The pods that a change of the node has looked at."""
        cluster = world(pod())
        index_stuck(cluster.pods)
        watch = next(each for each in controller(cluster).watches if each.store is cluster.nodes)
        return list(watch.keys("n-1", old, new))

    def test_its_node_goes_away(self) -> None:
        """Also when the minute is over by then."""
        assert self.keys(node(), node(*AWAY)) == ["ns/p"]

    def test_other_changes_of_the_node(self) -> None:
        """A heartbeat of a node that is away, and its return."""
        assert self.keys(node(*AWAY), node(*AWAY)) == self.keys(node(*AWAY), node()) == []

    def test_a_new_leader(self) -> None:
        """It begins with the pods that are stuck on the nodes that it knows."""
        cluster = world(pod(), node(*AWAY))
        index_stuck(cluster.pods)
        assert list(controller(cluster).initial()) == ["ns/p"]
