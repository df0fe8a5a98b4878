"""Who keeps the finalizer `resource-in-use`, and until when."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.controllers import worlds as w
from tests.unit.controllers.written import patches
from tests.unit.engine import builders as b
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import Topology
from turnstile.controllers.queues import inuse
from turnstile.controllers.queues.statuses import CountedShares, decide_cluster_queue
from turnstile.controllers.runtime.actions import ReconcileResult, RequeueAfter
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import State, cycle_steps

IN_USE = "kueue.x-k8s.io/resource-in-use"
DELETED = {"deletionTimestamp": w.EARLIER}
Decide = Callable[[str, ClusterView], ReconcileResult]


def _cluster_queue(name: str, world: ClusterView) -> ReconcileResult:
    state = State()
    return decide_cluster_queue(name, world, state, CountedShares(state))


def _of(kind: type[Kind]) -> Decide:
    def decide(name: str, world: ClusterView) -> ReconcileResult:
        (controller,) = (each for each in inuse.controllers(world) if each.kind is kind)
        return controller.decide(name)

    return decide


FLAVOR = [{"coveredResources": ["cpu"], "flavors": [{"name": "x", "resources": []}]}]
HELD = w.workload(w.RESERVED, w.ADMITTED, admission=True)
HELD.status.admission.cluster_queue = "x"  # type: ignore[union-attr]
KINDS: dict[str, tuple[type[Kind], Decide, Kind]] = {
    "ClusterQueue": (ClusterQueue, _cluster_queue, HELD),
    "ResourceFlavor": (ResourceFlavor, _of(ResourceFlavor), w.cluster_queue(resourceGroups=FLAVOR)),
    "AdmissionCheck": (
        AdmissionCheck,
        _of(AdmissionCheck),
        w.cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "x"}]}),
    ),
    "Topology": (
        Topology,
        _of(Topology),
        w.decode(ResourceFlavor, {"metadata": {"name": "f"}, "spec": {"topologyName": "x"}}),
    ),
}


@pytest.fixture(params=KINDS)
def named(request: pytest.FixtureRequest) -> str:
    """Each kind that has the finalizer."""
    return str(request.param)


def finalizers(kind: str, metadata: dict[str, Any], *, used: bool) -> list[str] | None:
    """The finalizers that are written of object `x`; None if they stay as they are."""
    struct, decide, user = KINDS[kind]
    found = w.world(w.decode(struct, {"metadata": {"name": "x", **metadata}}), *([user] if used else []))
    written = [body["metadata"] for body in patches(decide("x", found)) if "metadata" in body]
    assert all(each["resourceVersion"] for each in written)
    return written[0]["finalizers"] if written else None


def test_a_new_object_gets_it(named: str) -> None:
    """Whether or not anybody uses it yet, and besides what others put there."""
    assert finalizers(named, {"finalizers": ["a/b"]}, used=False) == ["a/b", IN_USE]
    assert finalizers(named, {}, used=True) == [IN_USE]


def test_that_is_written_once(named: str) -> None:
    """Of one that has it nothing is written."""
    assert finalizers(named, {"finalizers": [IN_USE]}, used=False) is None


def test_a_deleted_object_keeps_it_while_it_is_used(named: str) -> None:
    """Nor is it put back on one that lost it."""
    assert finalizers(named, {**DELETED, "finalizers": [IN_USE]}, used=True) is None
    assert finalizers(named, {**DELETED, "finalizers": ["a/b"]}, used=True) is None


def test_a_deleted_object_that_nobody_uses_loses_it(named: str) -> None:
    """Only that one: other finalizers belong to others."""
    assert finalizers(named, {**DELETED, "finalizers": ["a/b", IN_USE]}, used=False) == ["a/b"]


def being_deleted(queue: ClusterQueue) -> ClusterQueue:
    """The ClusterQueue as the API server shows it after its deletion, while it has the finalizer."""
    body = msgspec.to_builtins(queue)
    body["metadata"] = {**body["metadata"], **DELETED, "finalizers": [IN_USE]}
    return msgspec.convert(body, ClusterQueue)


def let_go(queue: ClusterQueue, state: State) -> tuple[bool, bool]:
    """Whether the finalizer of a deleted ClusterQueue is removed, and if not, whether that is decided again soon."""
    result = decide_cluster_queue(queue.metadata.name, w.world(queue), state, CountedShares(state))
    written = [body["metadata"]["finalizers"] for body in patches(result) if "metadata" in body]
    return written == [[]], any(isinstance(action, RequeueAfter) for action in result.actions)


def test_a_cluster_queue_stays_while_an_admission_to_it_is_assumed() -> None:
    """The write of the admission is in flight: no Workload shows the reservation yet."""
    state = b.world(b.queue("x"))
    state.put_workload(b.workload("w"), b.NOW)
    b.settle(state)
    assert state.reservations.assumed
    deleted = being_deleted(b.queue("x"))
    state.put_cluster_queue(deleted, b.NOW)
    assert let_go(deleted, state) == (False, True)
    state.forget("team/w", b.NOW)
    assert let_go(deleted, state) == (True, False)


def test_a_cluster_queue_stays_until_no_cycle_admits_to_it_any_more() -> None:
    """A cycle that began before the deletion decides as if the ClusterQueue were not being deleted."""
    state = b.world(b.queue("x"))
    state.put_workload(b.workload("w"), b.NOW)
    steps = cycle_steps(state, b.NOW)
    next(steps)
    deleted = being_deleted(b.queue("x"))
    state.put_cluster_queue(deleted, b.NOW)
    assert let_go(deleted, state) == (False, True)
    for _ in steps:
        pass
    assert let_go(deleted, state) == (False, True)
    state.forget("team/w", b.NOW)
    assert let_go(deleted, state) == (True, False)
