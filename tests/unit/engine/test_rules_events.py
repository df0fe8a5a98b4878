"""Rules of what happens around the queues: what moves a workload, what wakes the parked, what an inactive queue is."""

import pytest

from tests.unit.engine import builders as b
from turnstile.engine import State, cycle


def places(state: State, name: str) -> list[str]:
    """Names of what waits in a queue."""
    return [key.partition("/")[2] for key in state.questions.pending(name)]


def refused() -> State:
    """Queue `a` without room in cohort `x`, in which `w` is parked; `runs` holds 4 cores of queue `z`."""
    state = b.world(b.queue("a", {"default": {"cpu": 0}}, "x"), b.queue("z", {"default": {"cpu": 4}}, "x"))
    state.put_workload(b.workload("runs", "z", cpu=2, count=2), b.NOW)
    b.settle(state)
    state.put_workload(b.reserved(b.workload("runs", "z", cpu=2, count=2), state), b.NOW)
    state.put_workload(b.workload("w", cpu=2), b.NOW)
    b.settle(state)
    assert [info.key for info in state.cluster_queues["a"].pending.inadmissible_infos()] == ["team/w"]
    return state


def end(state: State, name: str, how: str) -> None:
    """A workload that holds quota gives it back."""
    running = state.workloads[f"team/{name}"].workload
    match how:
        case "deleted":
            state.drop_workload(f"team/{name}")
        case "finished":
            state.put_workload(b.with_conditions(running, Finished=("True", "Succeeded")), b.NOW)
        case "released":
            state.put_workload(b.changed(b.released(running), spec={"active": False}), b.NOW)


class TestMoves:
    """A workload follows its LocalQueue, and its LocalQueue its ClusterQueue."""

    def test_to_another_local_queue(self) -> None:
        """It stands in one line only."""
        state = b.world(b.queue("a"), b.queue("z"))
        state.put_workload(b.workload("w", "a"), b.NOW)
        state.put_workload(b.workload("w", "z"), b.NOW)
        assert (places(state, "a"), places(state, "z")) == ([], ["w"])

    def test_before_its_local_queue_exists(self) -> None:
        """It waits, and stands in line once the queue is there."""
        state = b.world(b.queue("a"))
        state.put_workload(b.workload("w", "late"), b.NOW)
        assert places(state, "a") == []
        state.put_local_queue(b.local("late", "a"), b.NOW)
        assert places(state, "a") == ["w"]

    @pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
    def test_while_its_local_queue_is_stopped(self, policy: str) -> None:
        """Out of line, and back in it after."""
        state = b.world(b.queue("a"))
        state.put_workload(b.workload("w"), b.NOW)
        state.put_local_queue(b.local("main", "a", stopPolicy=policy), b.NOW)
        assert places(state, "a") == []
        assert state.questions.why("team/w") == ("Suspended", "LocalQueue main is inactive", ())
        b.settle(state)
        state.put_local_queue(b.local("main", "a"), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_with_its_local_queue_to_another_cluster_queue(self) -> None:
        """Out of the old line, into the new one."""
        state = b.world(b.queue("a"), b.queue("z"))
        state.put_workload(b.workload("w"), b.NOW)
        state.put_local_queue(b.local("main", "z"), b.NOW)
        assert (places(state, "a"), places(state, "z")) == ([], ["w"])

    def test_while_its_local_queue_is_gone(self) -> None:
        """As if it had never been."""
        state = b.world(b.queue("a"))
        state.put_workload(b.workload("w"), b.NOW)
        state.drop_local_queue("team/main")
        assert places(state, "a") == []
        assert state.questions.why("team/w") == ("Misconfigured", "LocalQueue main doesn't exist", ())
        state.put_local_queue(b.local("main", "a"), b.NOW)
        assert places(state, "a") == ["w"]

    def test_while_its_cluster_queue_is_gone(self) -> None:
        """It waits for it to come back."""
        state = b.world(b.queue("a"))
        state.put_workload(b.workload("w"), b.NOW)
        state.drop_cluster_queue("a")
        b.settle(state)
        assert state.questions.why("team/w") == ("Misconfigured", "ClusterQueue a doesn't exist", ())
        state.put_cluster_queue(b.queue("a"), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    @pytest.mark.parametrize("stopped", ["Hold", "HoldAndDrain"])
    def test_while_its_cluster_queue_is_stopped(self, stopped: str) -> None:
        """It keeps its place, and nobody looks at it."""
        state = b.world(b.queue("a", stopPolicy=stopped))
        state.put_workload(b.workload("w"), b.NOW)
        assert b.settle(state) == []
        assert state.questions.why("team/w") == ("Suspended", "ClusterQueue a is inactive", ())
        assert state.questions.active_reason("a") == (False, "Stopped", "Can't admit new workloads: is stopped.")
        state.put_cluster_queue(b.queue("a"), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_a_queue_that_is_being_deleted_admits_nothing(self) -> None:
        """It says so."""
        queue = b.queue("a")
        queue.metadata.deletion_timestamp = b.STAMP
        state = b.world(queue)
        state.put_workload(b.workload("w"), b.NOW)
        assert b.settle(state) == []
        assert state.questions.active_reason("a") == (
            False,
            "Terminating",
            "Can't admit new workloads; clusterQueue is terminating",
        )

    def test_a_queue_that_is_not_there_is_not_found(self) -> None:
        """Nobody is told that it is being deleted."""
        state = b.world()
        assert state.questions.active_reason("a") == (False, "NotFound", "ClusterQueue not found")


class TestMissingQueue:
    """A reservation in a ClusterQueue that does not exist, or not yet."""

    @pytest.mark.parametrize("how", ["deleted", "finished", "released"])
    def test_one_that_is_over_does_not_count_when_its_queue_comes(self, how: str) -> None:
        """There is room for another at once."""
        state = b.world()
        state.put_workload(b.held("runs", "a", {"cpu": "8"}), b.NOW)
        end(state, "runs", how)
        state.put_cluster_queue(b.queue("a", {"default": {"cpu": 8}}), b.NOW)
        state.put_local_queue(b.local("main", "a"), b.NOW)
        state.put_workload(b.workload("w", cpu=8), b.NOW)
        assert b.decide(state).outcome == "admit"


def test_one_that_holds_quota_nowhere_neither_counts_nor_waits() -> None:
    """QuotaReserved is set, and no admission says what it holds."""
    state = b.world(b.queue("a"))
    state.put_workload(b.with_conditions(b.workload("w"), QuotaReserved=("True", "QuotaReserved")), b.NOW)
    assert (places(state, "a"), b.admitted(state)) == ([], set())


class TestWakes:
    """What puts parked workloads of a whole tree back in line."""

    def test_more_quota_anywhere_in_the_tree(self) -> None:
        """Of a neighbour, or of the Cohort."""
        state = refused()
        state.put_cluster_queue(b.queue("z", {"default": {"cpu": 6}}, "x"), b.NOW)
        b.settle(state)
        assert "team/w" in b.admitted(state)
        state = refused()
        state.put_cohort(b.cohort("x", {"default": {"cpu": 2}}))
        b.settle(state)
        assert "team/w" in b.admitted(state)

    def test_a_new_neighbour(self) -> None:
        """Its quota may be lent."""
        state = refused()
        state.put_cluster_queue(b.queue("new", {"default": {"cpu": 2}}, "x"), b.NOW)
        b.settle(state)
        assert "team/w" in b.admitted(state)

    @pytest.mark.parametrize("how", ["deleted", "finished", "released", "reclaimed"])
    def test_room_that_a_neighbour_gives_back(self, how: str) -> None:
        """All of it, or some of its pods."""
        state = refused()
        if how == "reclaimed":
            done = {"reclaimablePods": [{"name": "main", "count": 1}]}
            state.put_workload(b.changed(state.workloads["team/runs"].workload, status=done), b.NOW)
        else:
            end(state, "runs", how)
        b.settle(state)
        assert "team/w" in b.admitted(state)

    @pytest.mark.parametrize("how", ["deleted", "finished", "deactivated", "gated"])
    def test_a_neighbour_that_gives_up_waiting(self, how: str) -> None:
        """It held no quota, but the head that it was may have kept others from theirs. One that is gated may return."""
        state = refused()
        other = b.workload("other", "z", cpu=9)
        state.put_workload(other, b.NOW)
        b.settle(state)
        match how:
            case "deleted":
                state.drop_workload("team/other")
            case "finished":
                state.put_workload(b.with_conditions(other, Finished=("True", "Succeeded")), b.NOW)
            case "deactivated":
                state.put_workload(b.changed(other, spec={"active": False}), b.NOW)
            case "gated":
                gates = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
                state.put_workload(b.changed(other, metadata={"annotations": gates}), b.NOW)
        b.retried(state, b.NOW)
        assert (state.cluster_queues["a"].pending.peek() is None) is (how == "gated")

    def test_another_priority_of_one_that_runs(self) -> None:
        """It may be preempted now."""
        state = b.world(b.queue("a", {"default": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"}))
        runs = b.workload("runs", cpu=4, priority=5)
        state.put_workload(runs, b.NOW)
        b.settle(state)
        running = b.reserved(runs, state)
        state.put_workload(running, b.NOW)
        state.put_workload(b.workload("w", cpu=4, priority=3), b.NOW)
        assert [decision.outcome for decision in b.settle(state)] == ["pending"]
        state.put_workload(b.changed(running, spec={"priority": 1}), b.NOW)
        assert [decision.outcome for decision in b.settle(state)][:1] == ["preempting"]

    def test_a_flavor_that_changes(self) -> None:
        """A taint that goes lets pods in."""
        state = b.world(b.queue("a"))
        taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
        state.put_flavor(b.flavor("default", nodeTaints=[taint]))
        state.put_workload(b.workload("w"), b.NOW)
        (decision,) = b.settle(state)
        assert decision.condition_reason == "NoMatchingFlavor"
        assert decision.message == (
            "couldn't assign flavors to pod set main: untolerated taint {k v NoSchedule <nil>} in flavor default"
        )
        state.put_flavor(b.flavor("default"))
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_a_flavor_that_comes(self) -> None:
        """Until then its queue is inactive."""
        state = b.world(b.queue("a", {"late": {"cpu": 4}}))
        state.put_workload(b.workload("w"), b.NOW)
        assert b.settle(state) == []
        state.put_flavor(b.flavor("late"))
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_a_check_that_becomes_ready(self) -> None:
        """Until then its queue is inactive."""
        checks = {"admissionChecks": [{"name": "c"}]}
        state = b.world(b.queue("a", admissionChecksStrategy=checks))
        state.put_workload(b.workload("w"), b.NOW)
        state.put_admission_check("c", active=False)
        assert b.settle(state) == []
        state.put_admission_check("c", active=True)
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_the_end_of_a_back_off_alone_does_not(self) -> None:
        """Somebody has to look: the controller that sets Requeued, or room elsewhere."""
        state = b.world(b.queue("a"))
        status = {"requeueState": {"count": 1, "requeueAt": b.stamp(10)}}
        state.put_workload(b.workload("w", status=status), b.NOW)
        state.retries.mark("a")
        b.settle(state)
        assert b.admitted(state) == set()
        state.retries.mark("a")
        b.retried(state, b.NOW + 1)
        assert state.cluster_queues["a"].pending.peek() is None
        requeued = b.with_conditions(b.workload("w", status=status), Requeued=("False", "PodsReadyTimeout"))
        state.put_workload(requeued, b.NOW + 600)
        assert state.cluster_queues["a"].pending.peek() is None
        state.put_workload(b.with_conditions(requeued, Requeued=("True", "BackoffFinished")), b.NOW + 600)
        assert state.cluster_queues["a"].pending.peek() is not None


class TestInactiveNeighbours:
    """A stopped queue still lends its quota and still uses it, but nobody in it is preempted."""

    def world(self, stop: str) -> State:
        """`z` borrows all 4 cores of `a`, then stops."""
        preemption = {"reclaimWithinCohort": "Any"}
        state = b.world(
            b.queue("a", {"default": {"cpu": 4}}, "x", preemption=preemption),
            b.queue("z", {"default": {"cpu": 4}}, "x"),
        )
        state.put_workload(b.workload("borrower", "z", cpu=8), b.NOW)
        b.settle(state)
        state.put_workload(b.reserved(b.workload("borrower", "z", cpu=8), state), b.NOW)
        state.put_cluster_queue(b.queue("z", {"default": {"cpu": 4}}, "x", stopPolicy=stop), b.NOW)
        return state

    def test_its_workloads_are_no_candidates(self) -> None:
        """Its usage stands."""
        for stop, outcome in (("None", "preempting"), ("Hold", "pending")):
            state = self.world(stop)
            state.put_workload(b.workload("w", cpu=4), b.NOW)
            assert next(iter(cycle(state, b.NOW))).outcome == outcome

    def test_its_quota_is_lent(self) -> None:
        """As if it admitted."""
        state = b.world(
            b.queue("a", {"default": {"cpu": 0}}, "x"), b.queue("z", {"default": {"cpu": 4}}, "x", stopPolicy="Hold")
        )
        state.put_workload(b.workload("w", cpu=4), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/w"}


class TestLocalQueueStatus:
    """The figures of a LocalQueue are written often."""

    def test_it_is_no_reason_to_decide_anew(self) -> None:
        """Nobody fits any better for it."""
        state = refused()
        counted = b.local("a", "a")
        counted.status.pending_workloads = 1
        state.put_local_queue(counted, b.NOW)
        assert not state.has_work

    def test_its_weight_is(self) -> None:
        """It may change the order of the line."""
        state = refused()
        epoch = state.log.epoch
        state.put_local_queue(b.local("a", "a", fairSharing={"weight": "2"}), b.NOW)
        assert state.log.epoch > epoch
