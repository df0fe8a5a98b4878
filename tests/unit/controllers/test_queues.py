"""What is written into the status of a queue, and when."""

from typing import TypeVar

import pytest

from app.api.clusterqueue import ClusterQueue
from app.api.cohort import Cohort
from app.api.localqueue import LocalQueue
from app.api.meta import to_plain
from app.api.resourceflavor import ResourceFlavor
from app.controllers.ledgerfeed import LedgerBooks
from app.controllers.queues import decide_cluster_queue, decide_cohort, decide_local_queue
from app.engine import Options, State
from app.engine.options import FairSharing
from tests.unit.controllers import worlds as w
from tests.unit.controllers.written import status
from tests.unit.engine import builders as b

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


def test_a_queue_whose_cluster_queue_is_missing_has_no_list_of_flavors() -> None:
    """No empty one either; what was told while it was there is taken back."""
    queue = w.local_queue()
    told = {
        **FIGURES,
        "reservingWorkloads": 1,
        "flavorsReservation": [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}],
        "conditions": [w.condition("Active", "True", "Ready")],
    }
    for before, expected in (({}, FIGURES), (told, {"reservingWorkloads": 0, "flavorsReservation": None})):
        found = _with_status(queue, before)
        state = State()
        state.put_local_queue(found, w.NOW.timestamp())
        written = status(decide_local_queue("ns/lq", w.world(found), LedgerBooks(state)))
        assert written.pop("conditions")[0]["reason"] == "ClusterQueueDoesNotExist"
        assert written == expected


class TestShares:
    """`status.fairSharing.weightedShare`, while fair sharing is on."""

    @pytest.fixture
    def state(self) -> State:
        """Queue `cq` borrows 2 of the 10 cores of its Cohort, whose parent has nothing to lend."""
        state = b.world(
            b.queue("cq", {"f": {"cpu": 5}}, "near"),
            b.queue("other", {"f": {"cpu": 5}}, "near"),
            options=Options(fair_sharing=FairSharing()),
            flavors=("f",),
        )
        state.put_cohort(b.cohort("near", parent="far"))
        state.put_workload(b.held("w", "cq", {"cpu": "7"}, flavor="f"), b.NOW)
        return state

    def test_of_a_cluster_queue_and_a_cohort(self, state: State) -> None:
        """Two of ten cores borrowed are 200 thousandths; the Cohort borrows nothing."""
        queue, cohort = w.cluster_queue(), w.decode(Cohort, {"metadata": {"name": "near"}})
        world, books = w.world(queue, cohort), LedgerBooks(state)
        assert "fairSharing" not in status(decide_cluster_queue("cq", world, books))  # not counted yet
        assert decide_cohort("near", world, books).actions == []
        books.count_share(ClusterQueue, "cq")
        books.count_share(Cohort, "near")
        assert status(decide_cluster_queue("cq", world, books))["fairSharing"] == {"weightedShare": 200}
        assert status(decide_cohort("near", world, books)) == {"fairSharing": {"weightedShare": 0}}

    def test_what_is_told_is_not_told_again(self, state: State) -> None:
        """Nor written when nothing else changed."""
        books = LedgerBooks(state)
        books.count_share(Cohort, "near")
        told = {"metadata": {"name": "near"}, "status": {"fairSharing": {"weightedShare": 0}}}
        assert decide_cohort("near", w.world(w.decode(Cohort, told)), books).actions == []

    def test_it_goes_when_fair_sharing_is_switched_off(self) -> None:
        """As Kueue has it; of a queue that never had it nothing is said."""
        told = {"fairSharing": {"weightedShare": 3}}
        cohort = w.decode(Cohort, {"metadata": {"name": "near"}, "status": told})
        world, books = w.world(_with_status(w.cluster_queue(), told), cohort), LedgerBooks(State())
        assert status(decide_cluster_queue("cq", world, books))["fairSharing"] is None
        assert status(decide_cohort("near", world, books)) == {"fairSharing": None}
        assert "fairSharing" not in status(decide_cluster_queue("cq", w.world(w.cluster_queue()), books))


def _with_status(queue: Q, told: dict[str, object]) -> Q:
    return w.decode(type(queue), {**to_plain(queue), "status": told})
