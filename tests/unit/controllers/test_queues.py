"""What is written into the status of a queue, and when."""

from typing import TypeVar

from app.api.clusterqueue import ClusterQueue
from app.api.localqueue import LocalQueue
from app.api.meta import to_plain
from app.api.resourceflavor import ResourceFlavor
from app.controllers.ledger import LedgerBooks
from app.controllers.queues import decide_cluster_queue, decide_local_queue
from app.engine import State
from tests.unit.controllers import worlds as w
from tests.unit.controllers.written import status

Q = TypeVar("Q", ClusterQueue, LocalQueue)
FIGURES = {"pendingWorkloads": 0, "reservingWorkloads": 0, "admittedWorkloads": 0}
GROUPS = [
    {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
    }
]


def test_of_a_new_queue_zeros_are_told_once() -> None:
    """Whoever reads a figure of an empty queue sees 0, not a blank; after that only what changes is written."""
    cluster_queue, local_queue = w.cluster_queue(resourceGroups=GROUPS), w.local_queue()
    world = w.world(cluster_queue, local_queue)
    state = State()
    state.put_flavor(w.decode(ResourceFlavor, {"metadata": {"name": "f"}}))
    state.put_cluster_queue(cluster_queue, w.NOW.timestamp())
    state.put_local_queue(local_queue, w.NOW.timestamp())
    books = LedgerBooks(state)
    unused = [{"name": "f", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]}]
    of_local = [{"name": "f", "resources": [{"name": "cpu", "total": "0"}]}]
    written = status(decide_cluster_queue("cq", world, books))
    conditions = written.pop("conditions")
    assert written == {**FIGURES, "flavorsReservation": unused, "flavorsUsage": unused}
    written_of_local = status(decide_local_queue("ns/lq", world, books))
    of_local_conditions = written_of_local.pop("conditions")
    assert written_of_local == {**FIGURES, "flavorsReservation": of_local, "flavorsUsage": of_local}
    again = w.world(
        _with_status(cluster_queue, {**written, "conditions": conditions}),
        _with_status(local_queue, {**written_of_local, "conditions": of_local_conditions}),
    )
    assert decide_cluster_queue("cq", again, books).actions == []
    assert decide_local_queue("ns/lq", again, books).actions == []


def _with_status(queue: Q, told: dict[str, object]) -> Q:
    return w.decode(type(queue), {**to_plain(queue), "status": told})
