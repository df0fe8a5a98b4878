"""Rules of admission fair sharing that no recorded case shows: decay, penalties and what they do to the order."""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import AdmissionFairSharing, Gates

SCOPE = {"admissionMode": "UsageBasedAdmissionFairSharing"}


def sharing(state: State | None = None, **given: Any) -> AdmissionFairSharing:
    """A half-life of one minute, sampled as often."""
    return AdmissionFairSharing(**{"usage_half_life": 60.0, "usage_sampling_interval": 60.0, **given})


def world(*, gates: Gates | None = None, quota: Any = 100, scope: Any = SCOPE, **given: Any) -> State:
    """One queue with LocalQueues `x` and `y`."""
    options = Options(gates=gates or Gates(), admission_fair_sharing=sharing(**given))
    state = b.world(b.queue("a", {"default": {"cpu": quota}}, admissionScope=scope), options=options)
    for name in ("x", "y"):
        state.put_local_queue(b.local(name, "a"), b.NOW)
    return state


def run(state: State, workload: Workload, now: float = b.NOW) -> Workload:
    """Admit it, and see it admitted."""
    state.put_workload(workload, now)
    while state.has_work:
        cycle(state, now)
    running = b.reserved(workload, state)
    state.put_workload(running, now)
    return running


def reserve(state: State, *, cpu: int) -> Workload:
    """A workload of LocalQueue `x` that holds quota and waits for its checks."""
    workload = b.workload("w", "x", cpu=cpu)
    state.put_workload(workload, b.NOW)
    cycle(state, b.NOW)
    reserved = b.with_conditions(b.reserved(workload, state), drop=("Admitted",))
    state.put_workload(reserved, b.NOW)
    return reserved


def usage(state: State, name: str = "x") -> float | None:
    """What orders its line."""
    return state.sharing.usage(state.cluster_queues["a"], f"team/{name}")


def seen(name: str, **consumed: str) -> LocalQueue:
    """A LocalQueue with consumption in its status."""
    status = {
        "fairSharing": {
            "weightedShare": 0,
            "admissionFairSharingStatus": {"consumedResources": consumed, "lastUpdate": b.STAMP},
        }
    }
    base = msgspec.to_builtins(b.local(name, "a"))
    return msgspec.convert({**base, "status": status}, LocalQueue)


class TestOfTheObject:
    """Usage is kept by the name of a LocalQueue, and goes with the object."""

    @pytest.mark.parametrize("seen_gone", [True, False])
    def test_a_new_queue_of_that_name_inherits_none(self, *, seen_gone: bool) -> None:
        """Whether or not the watch showed that the old one was deleted."""
        state = world()
        state.put_local_queue(with_uid(seen("x", cpu="8"), "old"), b.NOW)
        assert usage(state)
        if seen_gone:
            state.drop_local_queue("team/x")
        state.put_local_queue(with_uid(b.local("x", "a"), "new"), b.NOW)
        assert not usage(state)


def with_uid(queue: LocalQueue, uid: str) -> LocalQueue:
    """The object with that uid."""
    return msgspec.structs.replace(queue, metadata=msgspec.structs.replace(queue.metadata, uid=uid))


class TestDecay:
    """Consumption approaches what runs, by half each half-life."""

    def test_what_runs_steadily(self) -> None:
        """2 cores: 1, 1.5, 1.75 after one, two, three half-lives, once the penalty of the start is set aside."""
        state = world()
        run(state, b.workload("w", "x", cpu=2))
        state.sharing.set_consumed("team/x", {}, b.NOW)
        for minutes, expected in ((1, "1"), (2, "1500m"), (3, "1750m")):
            assert state.sample_usage("team/x", b.NOW + 60 * minutes) == 60.0
            assert state.sharing.consumed("team/x")[0] == {"cpu": expected}

    def test_what_ran_once(self) -> None:
        """8 of before are 4 after one half-life with nothing running."""
        state = world()
        state.sharing.set_consumed("team/x", {"cpu": "8"}, b.NOW)
        state.sample_usage("team/x", b.NOW + 60)
        assert state.sharing.consumed("team/x") == ({"cpu": "4"}, b.NOW + 60)

    def test_sampling_waits_for_its_interval_unless_a_penalty_is_open(self) -> None:
        """It says how long."""
        state = world()
        state.sharing.set_consumed("team/x", {"cpu": "8"}, b.NOW)
        assert state.sample_usage("team/x", b.NOW + 20) == 40.0
        assert state.sharing.consumed("team/x")[0] == {"cpu": "8"}
        state.put_workload(b.workload("w", "x", cpu=1), b.NOW + 20)
        cycle(state, b.NOW + 20)
        assert state.sample_usage("team/x", b.NOW + 30) == 60.0
        assert state.sharing.consumed("team/x")[1] == b.NOW + 30

    def test_without_a_half_life_nothing_is_remembered(self) -> None:
        """Consumption is forgotten at the next sample, and there is no penalty."""
        state = world(usage_half_life=0.0)
        state.sharing.set_consumed("team/x", {"cpu": "8"}, b.NOW)
        run(state, b.workload("w", "x", cpu=4))
        state.sample_usage("team/x", b.NOW + 60)
        assert state.sharing.consumed("team/x")[0] == {}
        assert usage(state) == 0.0

    def test_a_clock_that_goes_back_takes_nothing_away(self) -> None:
        """Elapsed time is never negative, and the last update never earlier."""
        state = world()
        state.sharing.set_consumed("team/x", {"cpu": "8"}, b.NOW)
        state.put_workload(b.workload("w", "x", cpu=1), b.NOW)
        cycle(state, b.NOW)
        state.sample_usage("team/x", b.NOW - 100)
        assert state.sharing.consumed("team/x") == ({"cpu": "8"}, b.NOW)

    def test_reservations_count_only_once_they_are_admitted(self) -> None:
        """What waits for its checks uses nothing yet."""
        state = world()
        reserve(state, cpu=2)
        state.sharing.set_consumed("team/x", {}, b.NOW)
        state.sample_usage("team/x", b.NOW + 60)
        assert state.sharing.consumed("team/x")[0] == {"cpu": "0"}

    def test_a_line_that_used_nothing(self) -> None:
        """The first sample is zero of every resource of its ClusterQueue."""
        state = world()
        assert state.sample_usage("team/x", b.NOW) == 60.0
        assert state.sharing.consumed("team/x") == ({"cpu": "0"}, b.NOW)

    def test_it_is_counted_also_where_it_orders_nothing(self) -> None:
        """A ClusterQueue without admission mode: its LocalQueues are sampled all the same."""
        state = world(scope=None)
        run(state, b.workload("w", "x", cpu=2))
        state.sample_usage("team/x", b.NOW)
        state.sample_usage("team/x", b.NOW + 60)
        assert state.sharing.consumed("team/x") == ({"cpu": "1"}, b.NOW + 60)
        assert usage(state) is None


class TestPenalty:
    """What was admitted counts before its usage shows."""

    def test_its_share_of_one_sample(self) -> None:
        """4 cores at a sampling interval of one half-life: 2, at once."""
        state = world()
        state.put_workload(b.workload("w", "x", cpu=4), b.NOW)
        cycle(state, b.NOW)
        assert usage(state) == 2.0
        assert state.sharing.consumed("team/x")[0] == {}

    def test_it_settles_when_the_workload_is_admitted(self) -> None:
        """Consumption decays towards what runs, and the penalty is added to it."""
        state = world()
        state.sharing.set_consumed("team/x", {"cpu": "8"}, b.NOW)
        workload = b.workload("w", "x", cpu=4)
        state.put_workload(workload, b.NOW)
        cycle(state, b.NOW)
        state.put_workload(b.reserved(workload, state), b.NOW + 60)
        assert state.sharing.consumed("team/x") == ({"cpu": "8"}, b.NOW + 60)  # 8/2 of before, 4/2 of now, 2 of penalty
        assert usage(state) == 8.0

    def test_it_stays_open_where_the_workload_is_deactivated_as_it_is_admitted(self) -> None:
        """A Workload that is seen to be admitted and inactive at once will not run: nothing is consumed yet."""
        state = world()
        workload = b.workload("w", "x", cpu=4)
        state.put_workload(workload, b.NOW)
        cycle(state, b.NOW)
        body = msgspec.to_builtins(b.reserved(workload, state))
        body["spec"]["active"] = False
        state.put_workload(msgspec.convert(body, Workload), b.NOW)
        assert (usage(state), state.sharing.consumed("team/x")[0]) == (2.0, {})

    def test_it_goes_when_the_write_fails(self) -> None:
        """As if nothing had been admitted."""
        state = world()
        state.put_workload(b.workload("w", "x", cpu=4), b.NOW)
        cycle(state, b.NOW)
        state.forget("team/w", b.NOW)
        assert usage(state) == 0.0

    @pytest.mark.parametrize("how", ["deleted", "finished", "moved", "inactive"])
    def test_it_goes_with_a_workload_that_will_not_run(self, how: str) -> None:
        """Without ever being consumption."""
        state = world()
        workload = b.workload("w", "x", cpu=4)
        state.put_workload(workload, b.NOW)
        cycle(state, b.NOW)
        body = msgspec.to_builtins(b.with_conditions(b.reserved(workload, state), drop=("Admitted",)))
        match how:
            case "deleted":
                state.drop_workload("team/w")
            case "finished":
                finished = b.with_conditions(msgspec.convert(body, Workload), Finished=("True", "Succeeded"))
                state.put_workload(finished, b.NOW)
            case "moved":
                body["spec"]["queueName"] = "y"
                state.put_workload(msgspec.convert(body, Workload), b.NOW)
            case "inactive":
                state.put_workload(msgspec.convert(body, Workload), b.NOW)
                gone = msgspec.to_builtins(b.released(msgspec.convert(body, Workload)))
                gone["spec"]["active"] = False
                state.put_workload(msgspec.convert(gone, Workload), b.NOW)
        assert usage(state) == 0.0

    def test_an_evicted_workload_keeps_it(self) -> None:
        """It will run yet."""
        state = world()
        reserved = reserve(state, cpu=4)
        state.put_workload(b.released(reserved), b.NOW)
        assert usage(state) == 2.0

    def test_undeclared_resources_count_unless_they_are_ignored(self) -> None:
        """As quota counts them."""
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "gpu": "2"}}}]}
        options = Options(admission_fair_sharing=sharing(), quota_check_strategy="IgnoreUndeclared")
        state = b.world(b.queue("a", admissionScope=SCOPE), options=options)
        state.put_workload(b.workload("w", "a", spec=spec), b.NOW)
        cycle(state, b.NOW)
        assert usage(state, "a") == 1.0

    def test_a_second_of_the_same_line_goes_behind_another_line_in_the_same_breath(self) -> None:
        """Each admission counts for the next choice, before any of them is seen to run."""
        state = world()
        for number in range(2):
            state.put_workload(b.workload(f"x{number}", "x", second=number), b.NOW)
            state.put_workload(b.workload(f"y{number}", "y", second=10 + number), b.NOW)
        order = [decision.key for _ in range(4) for decision in cycle(state, b.NOW)]
        assert order == ["team/x0", "team/y0", "team/x1", "team/y1"]


class TestWeights:
    """What usage counts for."""

    def test_by_resource_and_by_line(self) -> None:
        """2 consumed and 1 of penalty, cpu at 4, the line at 2: 6."""
        state = world(resource_weights={"cpu": 4.0})
        state.put_local_queue(b.local("x", "a", fairSharing={"weight": "2"}), b.NOW)
        state.sharing.set_consumed("team/x", {"cpu": "2"}, b.NOW)
        state.put_workload(b.workload("w", "x", cpu=2), b.NOW)
        cycle(state, b.NOW)
        assert usage(state) == 6.0

    def test_a_resource_of_weight_0_does_not_count(self) -> None:
        """Others count 1 if nothing is said; memory counts by the byte."""
        state = world(resource_weights={"cpu": 0.0})
        state.sharing.set_consumed("team/x", {"cpu": "9", "memory": "1Ki"}, b.NOW)
        assert usage(state) == 1024.0

    def test_a_line_of_weight_0_is_past_all_others(self) -> None:
        """Even if it used nothing."""
        state = world()
        state.put_local_queue(b.local("x", "a", fairSharing={"weight": "0"}), b.NOW)
        assert usage(state) == float("inf")

    def test_usage_does_not_count_without_mode_gate_or_section(self) -> None:
        """Each of the three is needed."""
        plain = b.world(b.queue("a", admissionScope=SCOPE))
        for state in (world(scope=None), world(gates=Gates(admission_fair_sharing=False)), plain):
            assert usage(state) is None

    def test_usage_is_not_sampled_without_gate_or_section(self) -> None:
        """Nor where the ClusterQueue does not exist."""
        for state in (world(gates=Gates(admission_fair_sharing=False)), b.world(b.queue("a", admissionScope=SCOPE))):
            assert state.sample_usage("team/a", b.NOW) is None
        state = world()
        state.put_local_queue(b.local("lost", "no-such-queue"), b.NOW)
        assert state.sample_usage("team/lost", b.NOW) is None


class TestSeed:
    """Consumption outlives the process in the status of LocalQueues."""

    def test_it_is_taken_over_once(self) -> None:
        """Later versions of the status are our own writes."""
        state = world()
        state.put_local_queue(seen("z", cpu="6"), b.NOW)
        assert usage(state, "z") == 6.0
        state.put_local_queue(seen("z", cpu="9"), b.NOW)
        assert usage(state, "z") == 6.0

    def test_the_time_without_a_leader_does_not_count(self) -> None:
        """What another process wrote down is consumption until the first sample, which changes no amount."""
        state = world()
        state.put_local_queue(seen("z", cpu="6"), b.NOW)
        assert state.sample_usage("team/z", b.NOW + 600) == 60.0
        assert state.sharing.consumed("team/z") == ({"cpu": "6"}, b.NOW + 600)
        state.sample_usage("team/z", b.NOW + 660)
        assert usage(state, "z") == 3.0

    def test_a_penalty_that_came_earlier_stays(self) -> None:
        """Both count."""
        state = world()
        state.put_workload(b.workload("w", "x", cpu=4), b.NOW)
        cycle(state, b.NOW)
        state.put_local_queue(seen("x", cpu="6"), b.NOW)
        assert usage(state) == 8.0
