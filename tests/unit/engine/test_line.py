"""Who is first in line, who is parked, and what puts the parked back."""

from collections.abc import Callable

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import State, cycle


def order(state: b.State, name: str = "a") -> list[str]:
    """Names in the order of the line."""
    return [key.partition("/")[2] for key in state.questions.pending(name)]


def test_priority_comes_first_then_age() -> None:
    """Equal priorities in order of creation, equal times by UID."""
    state = b.world(b.queue("a", {"default": {"cpu": 0}}))
    for name, priority, second in (("old", 0, 0), ("new", 0, 9), ("urgent", 5, 9), ("b-tie", 0, 0)):
        state.put_workload(b.workload(name, priority=priority, second=second), b.NOW)
    assert order(state) == ["urgent", "b-tie", "old", "new"]


def test_strict_fifo_waits_for_its_head() -> None:
    """Nobody overtakes a head for which there is no room yet."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}, queueingStrategy="StrictFIFO"))
    state.put_workload(b.held("runs", "a", {"cpu": "1"}), b.NOW)
    state.put_workload(b.workload("big", cpu=4), b.NOW)
    state.put_workload(b.workload("small", second=1), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/runs"}
    state.drop_workload("team/big")
    b.settle(state)
    assert b.admitted(state) == {"team/runs", "team/small"}


class TestNeverTheHead:
    """A Workload that can never be admitted as the objects are is not the head of a StrictFIFO queue: whoever may
    submit to it could close it for all."""

    def world(self, big: Workload, cohort: str | None = None) -> State:
        """A strict queue of 4 cores with a small Workload behind another."""
        state = b.world(b.queue("a", {"default": {"cpu": 4}}, cohort, queueingStrategy="StrictFIFO"))
        state.put_workload(big, b.NOW)
        state.put_workload(b.workload("small", second=1), b.NOW)
        return state

    @pytest.mark.parametrize(
        "big",
        [
            b.workload("big", cpu=5),
            b.workload("big", count=3, cpu=5, min_count=2),
            b.workload("big", spec={"containers": [{"name": "c", "resources": {"requests": {"memory": "1"}}}]}),
            b.workload(
                "big",
                spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}]},
            ),
        ],
        ids=["quota", "least pods", "resource", "limits"],
    )
    def test_the_next_is_admitted(self, big: Workload) -> None:
        """More than the quota, for its least number of pods too; a resource without quota; requests above limits."""
        state = self.world(big)
        b.settle(state)
        assert b.admitted(state) == {"team/small"}

    def test_pod_sets_that_contradict_flavors_leave_the_line(self) -> None:
        """No two flavors of the groups that it asks for fit together."""
        groups = b.groups({"cpus": {"cpu": 4}}, {"gpus": {"gpu": 4}})
        state = b.world(b.queue("a", resourceGroups=groups, queueingStrategy="StrictFIFO"), flavors=())
        for flavor in ("cpus", "gpus"):
            state.put_flavor(b.flavor(flavor, nodeLabels={"pool": flavor}))
        containers = [{"name": "c", "resources": {"requests": {"cpu": "1", "gpu": "1"}}}]
        state.put_workload(b.workload("both", spec={"containers": containers}), b.NOW)
        state.put_workload(b.workload("small", second=1), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/small"}

    def test_pod_sets_that_only_divide_their_flavors_badly_stay(self) -> None:
        """The first division exceeds the maximum of a flavor; the next one fits."""
        state = b.world(
            b.queue("a", {"one": {"cpu": 12}, "two": {"cpu": 8}}, queueingStrategy="StrictFIFO"), flavors=("one", "two")
        )
        body = msgspec.to_builtins(b.workload("w"))
        containers = [[{"name": "c", "resources": {"requests": {"cpu": cpu}}}] for cpu in ("5", "10")]
        body["spec"]["podSets"] = [
            {"name": f"s{index}", "count": 1, "template": {"spec": {"containers": each}}}
            for index, each in enumerate(containers)
        ]
        state.put_workload(msgspec.convert(body, Workload), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/w"}

    def test_one_that_may_have_fewer_pods_stays_the_head(self) -> None:
        """Three pods never fit; two will."""
        state = self.world(b.workload("big", count=3, cpu=2, min_count=2))
        state.put_workload(b.held("runs", "a", {"cpu": "1"}), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/runs"}

    def test_what_could_be_borrowed_counts(self) -> None:
        """It is in use now, and will come back."""
        state = self.world(b.workload("big", cpu=5), "all")
        state.put_cluster_queue(b.queue("b", {"default": {"cpu": 4}}, "all"), b.NOW)
        state.put_workload(b.held("runs", "b", {"cpu": "4"}), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/runs"}

    @pytest.mark.parametrize("by", ["its queue", "a queue of its cohort", "its cohort"])
    def test_a_larger_quota_makes_it_the_head_again(self, by: str) -> None:
        """Quotas of the whole tree are looked at anew when they change; then it comes before younger Workloads."""
        state = self.world(b.workload("big", cpu=5), "all")
        b.settle(state)
        state.put_workload(b.workload("later", second=2), b.NOW)
        match by:
            case "its queue":
                larger = b.queue("a", {"default": {"cpu": 5}}, "all", queueingStrategy="StrictFIFO")
                state.put_cluster_queue(larger, b.NOW)
            case "a queue of its cohort":
                state.put_cluster_queue(b.queue("b", {"default": {"cpu": 1}}, "all"), b.NOW)
            case _:
                state.put_cohort(b.cohort("all", {"default": {"cpu": 1}}))
        b.settle(state)
        assert b.admitted(state) == {"team/small"}
        state.drop_workload("team/small")
        b.settle(state)
        assert b.admitted(state) == {"team/big"}

    def test_many_of_them_cost_no_cycles_when_quota_comes_free(self) -> None:
        """They are tried again when an object changes by which they may fit, not whenever a Workload ends."""
        state = self.world(b.workload("big", cpu=5))
        for number in range(50):
            state.put_workload(b.workload(f"big-{number}", cpu=5), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/small"}
        state.put_workload(b.workload("next", second=2, cpu=4), b.NOW)
        b.settle(state)
        state.drop_workload("team/small")
        assert {decision.key for decision in b.settle(state)} == {"team/next"}


def test_best_effort_fifo_lets_others_pass() -> None:
    """A head that does not fit is parked."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("big", cpu=5), b.NOW)
    state.put_workload(b.workload("small", second=1), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/small"}


def test_equals_of_a_refused_workload_are_parked_with_it() -> None:
    """One refusal speaks for all that ask for the same; room brings them back in order."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("runs", cpu=4), b.NOW)
    b.settle(state)
    for number in range(5):
        state.put_workload(b.workload(f"w{number}", cpu=2, second=number), b.NOW)
    decisions = b.settle(state)
    assert len(decisions) == 1
    assert order(state) == ["w0", "w1", "w2", "w3", "w4"]
    assert state.questions.why("team/w3") == (
        "WaitingForQuota",
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
        (),
    )
    state.drop_workload("team/runs")
    b.settle(state)
    assert b.admitted(state) == {"team/w0", "team/w1"}


def _hold_and_resume(state: b.State) -> None:
    state.put_local_queue(b.local("main", "a", stopPolicy="Hold"), b.NOW)
    state.put_local_queue(b.local("main", "a"), b.NOW)


def _delete_and_create_again(state: b.State) -> None:
    state.drop_local_queue("team/main")
    state.put_local_queue(b.local("main", "a"), b.NOW)


@pytest.mark.parametrize("leave_and_return", [_hold_and_resume, _delete_and_create_again])
def test_a_workload_that_left_its_queue_learns_why_it_waits_after_its_return(
    leave_and_return: Callable[[b.State], None],
) -> None:
    """It is inadmissible with its equals then, which no cycle looks at: it is told that, not what was found before."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    b.settle(state)
    assert state.questions.waits("team/w") is None  # the cycle told it itself
    leave_and_return(state)
    b.settle(state)
    assert state.questions.why("team/w") == (
        "ExceedsMaxQuota",
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
        (),
    )
    assert state.questions.waits("team/w") is not None


def test_a_deactivated_workload_is_tried_again_after_its_return() -> None:
    """Its deactivation has the inadmissible of its tree tried again, and itself with them."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    b.settle(state)
    inactive = b.workload("w", cpu=5)
    inactive.spec.active = False
    state.put_workload(inactive, b.NOW)
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    assert [decision.outcome for decision in b.settle(state)] == ["pending"]
    assert state.questions.waits("team/w") is None  # the cycle told it itself


def test_room_anywhere_in_the_tree_wakes_the_parked() -> None:
    """A workload of another queue ends: what borrowed from it is tried again."""
    state = b.world(b.queue("a", {"default": {"cpu": 0}}, "x"), b.queue("b", {"default": {"cpu": 4}}, "x"))
    state.put_workload(b.workload("lender", "b", cpu=4), b.NOW)
    b.settle(state)
    state.put_workload(b.workload("borrower", cpu=2), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/lender"}
    state.drop_workload("team/lender")
    b.settle(state)
    assert b.admitted(state) == {"team/borrower"}


def test_back_off_keeps_a_workload_out_of_line() -> None:
    """Until the time has come and something puts it back."""
    state = b.world(b.queue("a"))
    status = {"requeueState": {"count": 1, "requeueAt": "2026-01-02T03:05:05Z"}}
    state.put_workload(b.workload("w", status=status), b.NOW)
    assert b.settle(state) == []
    state.retries.mark("a")
    assert not b.retried(state, b.NOW + 59)
    state.retries.mark("a")
    assert b.retried(state, b.NOW + 60)
    cycle(state, b.NOW + 60)
    assert b.admitted(state) == {"team/w"}


def test_a_changed_request_leaves_the_parking_place() -> None:
    """What now asks for less is tried at once."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    b.settle(state)
    state.put_workload(b.workload("w", cpu=4), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_when_nothing_can_change_there_is_no_work() -> None:
    """The driver may sleep, whatever waits."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}, queueingStrategy="StrictFIFO"))
    state.put_workload(b.workload("w", cpu=2), b.NOW)
    b.settle(state)
    assert not state.has_work
    state.put_workload(b.workload("v", cpu=2, second=1), b.NOW)
    assert state.has_work


def test_a_deep_queue_costs_as_little_as_a_short_one() -> None:
    """Thousands that cannot run are neither looked at one by one nor moved one by one."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}))
    for number in range(2000):
        state.put_workload(b.workload(f"w{number:04}", cpu=1, second=number // 60), b.NOW)
    assert len(b.settle(state)) == 2
    for _ in range(20):
        (key,) = b.admitted(state)
        state.drop_workload(key)
        assert len(b.settle(state)) == 2
    assert len(b.admitted(state)) == 1


def test_nobody_is_preempted_for_a_workload_that_is_being_deleted() -> None:
    """It may wait long for its finalizers; meanwhile it stands in no line, also if it did before."""
    preemption = {"withinClusterQueue": "LowerPriority"}
    state = b.world(b.queue("main", {"default": {"cpu": 4}}, preemption=preemption))
    state.put_workload(b.held("low", "main", {"cpu": "3"}), b.NOW)
    gone = b.workload("gone", cpu=3, priority=10)
    state.put_workload(gone, b.NOW)
    state.put_workload(b.changed(gone, metadata={"deletionTimestamp": b.STAMP}), b.NOW)
    assert not b.settle(state)
