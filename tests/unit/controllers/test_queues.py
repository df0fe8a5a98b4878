"""What is written into the status of a queue, and when."""

import asyncio
from typing import TypeVar

import pytest

from tests.unit.controllers import worlds as w
from tests.unit.controllers.written import patches, status
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, to_plain
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.controllers.queues.statuses import (
    CountedShares,
    controllers,
    decide_cluster_queue,
    decide_cohort,
    decide_local_queue,
)
from turnstile.controllers.runtime.actions import ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.runner import Runner
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ledgerfeed import Change, follow
from turnstile.engine import Options, State
from turnstile.engine.options import AdmissionFairSharing, FairSharing
from turnstile.kube.workqueue import WorkQueue

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
    shares = CountedShares(state)
    unused = [{"name": "f", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]}]
    of_local = [{"name": "f", "resources": [{"name": "cpu", "total": "0"}]}]
    written = status(decide_cluster_queue("cq", world, state, shares))
    conditions = written.pop("conditions")
    assert written == {**FIGURES, "flavorsReservation": unused, "flavorsUsage": unused}
    written_of_local = status(decide_local_queue("ns/lq", world, state))
    of_local_conditions = written_of_local.pop("conditions")
    assert written_of_local == {**FIGURES, "flavorsReservation": of_local, "flavorsUsage": of_local}
    again = w.world(
        _with_status(cluster_queue, {**written, "conditions": conditions}),
        _with_status(local_queue, {**written_of_local, "conditions": of_local_conditions}),
    )
    assert decide_cluster_queue("cq", again, state, shares).actions == []
    assert decide_local_queue("ns/lq", again, state).actions == []


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
        written = status(decide_local_queue("ns/lq", w.world(found), state))
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
        world, shares = w.world(queue, cohort), CountedShares(state)
        assert "fairSharing" not in status(decide_cluster_queue("cq", world, state, shares))  # not counted yet
        assert decide_cohort("near", world, shares).actions == []
        shares.count(ClusterQueue, "cq")
        shares.count(Cohort, "near")
        assert status(decide_cluster_queue("cq", world, state, shares))["fairSharing"] == {"weightedShare": 200}
        assert status(decide_cohort("near", world, shares)) == {"fairSharing": {"weightedShare": 0}}

    def test_what_is_told_is_not_told_again(self, state: State) -> None:
        """Nor written when nothing else changed."""
        shares = CountedShares(state)
        shares.count(Cohort, "near")
        told = {"metadata": {"name": "near"}, "status": {"fairSharing": {"weightedShare": 0}}}
        assert decide_cohort("near", w.world(w.decode(Cohort, told)), shares).actions == []

    def test_it_goes_when_fair_sharing_is_switched_off(self) -> None:
        """As Kueue has it; of a queue that never had it nothing is said."""
        told = {"fairSharing": {"weightedShare": 3}}
        cohort = w.decode(Cohort, {"metadata": {"name": "near"}, "status": told})
        world, state = w.world(_with_status(w.cluster_queue(), told), cohort), State()
        shares = CountedShares(state)
        assert status(decide_cluster_queue("cq", world, state, shares))["fairSharing"] is None
        assert status(decide_cohort("near", world, shares)) == {"fairSharing": None}
        assert "fairSharing" not in status(decide_cluster_queue("cq", w.world(w.cluster_queue()), state, shares))


class TestConsumption:
    """`status.fairSharing.admissionFairSharingStatus` of a LocalQueue, under admission fair sharing."""

    INTERVAL = 300.0

    def world_of(self, told: dict[str, object] | None = None, *, half_life: float = 600.0) -> tuple[State, ClusterView]:
        """LocalQueue `ns/lq` with this in its status, known to the ledger."""
        queue = w.local_queue()
        if told is not None:
            queue = _with_status(queue, {"fairSharing": {"admissionFairSharingStatus": told}})
        sharing = AdmissionFairSharing(usage_half_life=half_life, usage_sampling_interval=self.INTERVAL)
        state = State(Options(admission_fair_sharing=sharing))
        state.put_cluster_queue(w.cluster_queue(resourceGroups=GROUPS), w.NOW.timestamp())
        state.put_local_queue(queue, w.NOW.timestamp())
        return state, w.world(queue, w.cluster_queue())

    def test_nothing_is_written_between_two_samples(self) -> None:
        """The last one stays until the next is due, which is when the LocalQueue is reconciled again."""
        recent = {"consumedResources": {"cpu": "8"}, "lastUpdate": "2026-01-02T03:03:05Z"}
        state, world = self.world_of(recent)
        state.sharing.set_consumed("ns/lq", {"cpu": "9"}, w.NOW.timestamp() - 30)
        decision = decide_local_queue("ns/lq", world, state)
        assert "fairSharing" not in status(decision)
        assert decision.actions[-1] == RequeueAfter(self.INTERVAL - 30)

    def test_a_sample_is_written_until_it_is_in_the_status(self) -> None:
        """Also if the first write of it failed."""
        state, world = self.world_of()
        for _ in range(2):
            written = status(decide_local_queue("ns/lq", world, state))
            assert written["fairSharing"]["admissionFairSharingStatus"]["lastUpdate"] == "2026-01-02T03:04:05Z"

    def test_what_is_not_consumed_any_more_is_taken_out(self) -> None:
        """A merge patch keeps what it does not name. Without a half-life nothing is remembered."""
        old = {"consumedResources": {"gpu": "8"}, "lastUpdate": "2026-01-02T02:00:00Z"}
        state, world = self.world_of(old, half_life=0.0)
        written = status(decide_local_queue("ns/lq", world, state))
        assert written["fairSharing"]["admissionFairSharingStatus"]["consumedResources"] == {"gpu": None}


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_status_is_decided_from_a_ledger_that_has_the_change() -> None:
    """A ClusterQueue is stopped, and goes, during a cycle, which the ledger must not notice before the end of it."""
    world, state, kept = w.world(w.cluster_queue(resourceGroups=GROUPS), w.local_queue()), State(), list[Change]()
    follow(state, world, take=kept.append)
    for change in kept:
        change()
    kept.clear()
    stopped = w.cluster_queue(resourceGroups=GROUPS, stopPolicy="Hold")
    stopped.metadata.resource_version, stopped.metadata.generation = "9", 2
    told: list[tuple[str, str]] = []

    class Executing:
        async def carry_out(self, kind: type[Kind], _: str, decision: ReconcileResult, __: WorkQueue) -> None:
            for patch in patches(decision):
                told.extend((kind.KIND, each["reason"]) for each in patch.get("status", {}).get("conditions", ()))

        def report(self, kind: type[Kind], key: str, error: Exception) -> None:
            raise AssertionError(f"{kind.KIND} {key}: {error}")

    runner = Runner(Executing(), controllers(world, state, CountedShares(state)), ledger_has=kept.append)
    with runner.subscribed():
        work = asyncio.ensure_future(runner.work())
        for change, seen in (
            (lambda: world.cluster_queues.observe(stopped), ("ClusterQueue", "Stopped")),
            (lambda: world.cluster_queues.delete("cq"), ("LocalQueue", "ClusterQueueDoesNotExist")),
        ):
            change()
            await asyncio.sleep(1)
            assert told == []
            for each in kept:
                each()
            kept.clear()
            await asyncio.sleep(1)
            assert seen in told
            told.clear()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _with_status(queue: Q, told: dict[str, object]) -> Q:
    return w.decode(type(queue), {**to_plain(queue), "status": told})
