"""Workloads that hold quota get places: after their admission checks, and in place of nodes that failed."""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import RACK, free, node, places, workload, world
from turnstile.api import names
from turnstile.api.topology import HOSTNAME
from turnstile.api.workload import Workload
from turnstile.engine import Decision, State
from turnstile.engine.cycle.cycle import cycle, cycle_steps
from turnstile.engine.options import Gates, Options

GANG = {"r1": [1, 1, 1, 1], "r2": [1, 1, 1, 1]}
SLOW = Gates(tas_failed_node_replacement_fail_fast=False)


def turn(state: State, name: str = "w", *, after: float = 1.0) -> Decision:
    """The decision of a cycle so many seconds later about a Workload that holds quota."""
    return next(each for each in cycle(state, b.NOW + after) if each.key == f"team/{name}")


def running(state: State, base: Workload) -> Workload:
    """Have a Workload admitted, and its admission written."""
    state.put_workload(base, b.NOW)
    assert b.decide(state, base.metadata.name).outcome == "admit"
    admitted = b.reserved(base, state)
    state.put_workload(admitted, b.NOW)
    return admitted


def failed(admitted: Workload, *hosts: str) -> Workload:
    """The Workload with nodes that failed."""
    return b.changed(admitted, status={"unhealthyNodes": [{"name": host} for host in hosts]})


def written(decision: Decision) -> Workload:
    """The Workload with the places that were found for it."""
    admission = msgspec.to_builtins(decision.admission)
    base = b.changed(decision.workload, status={"admission": admission, "unhealthyNodes": []})
    return b.with_conditions(base, Admitted=("True", "Admitted")) if decision.admitted else base


def gang(count: int = 3, **request: Any) -> Workload:
    """A Workload that wants one rack."""
    return workload("w", count, **(request or {"required": RACK}))


def with_group(leader: int, workers: int) -> Workload:
    """A leader and its workers, which belong to one rack."""
    body = msgspec.to_builtins(workload("w", workers, required=RACK, podSetGroupName="all"))
    (group,) = body["spec"]["podSets"]
    body["spec"]["podSets"] = [{**group, "name": "leader", "count": leader}, {**group, "name": "workers"}]
    return msgspec.convert(body, Workload)


class TestNodesThatFailed:
    """Others take their place."""

    def test_the_pods_of_a_node_go_elsewhere_in_the_same_rack(self) -> None:
        """And those of other nodes stay."""
        state = world(racks=GANG)
        state.put_workload(failed(running(state, gang()), "r1-1"), b.NOW)
        state.drop_node("r1-1")
        decision = turn(state)
        assert (decision.outcome, decision.admitted) == ("place", True)
        assert places(state, "w") == {"r1-0": 1, "r1-2": 1, "r1-3": 1}

    def test_all_nodes_are_replaced_at_once(self) -> None:
        """Kueue evicts the Workload when a second one fails."""
        state = world(racks={"r1": [1] * 6})
        state.put_workload(failed(running(state, gang()), "r1-0", "r1-2"), b.NOW)
        for host in ("r1-0", "r1-2"):
            state.drop_node(host)
        assert turn(state).outcome == "place"
        assert places(state, "w") == {"r1-1": 1, "r1-3": 1, "r1-4": 1}

    def test_a_workload_that_lost_all_nodes_gets_another_rack(self) -> None:
        """All its pods together."""
        state = world(racks={"r1": [2, 2], "r2": [3, 2], "r3": [2, 2]})
        state.put_workload(failed(running(state, gang(4)), "r1-0", "r1-1"), b.NOW)
        assert turn(state).outcome == "place"
        assert places(state, "w") == {"r3-0": 2, "r3-1": 2}

    def test_a_leader_stays_in_the_rack_of_its_workers(self) -> None:
        """Although none of its own places is left."""
        state = world(racks={"r1": [1, 1, 1, 1], "r0": [1, 1, 1, 1]})
        admitted = running(state, with_group(1, 2))
        (leader, _) = admitted.status.admission.pod_set_assignments  # type: ignore[union-attr]
        host = leader.topology_assignment.slices[0].values_per_level[0].universal  # type: ignore[union-attr]
        assert host is not None
        state.put_workload(failed(admitted, host), b.NOW)
        assert turn(state).outcome == "place"
        assert {each.partition("-")[0] for each in places(state, "w")} == {host.partition("-")[0]}

    def test_pods_on_a_node_that_takes_no_others_stay(self) -> None:
        """It is drained too, and its pods still run."""
        state = world(racks=GANG)
        state.put_workload(failed(running(state, gang()), "r1-1"), b.NOW)
        for host in ("r1-0", "r1-1"):
            state.drop_node(host)
        assert turn(state).outcome == "place"
        assert places(state, "w") == {"r1-0": 1, "r1-2": 1, "r1-3": 1}

    def test_a_node_that_failed_gets_no_pods_again(self) -> None:
        """Though it is ready and has room: it may have failed by a condition that the table does not know."""
        state = world(racks={"r1": [2, 1]})
        state.put_workload(failed(running(state, gang(2)), "r1-0"), b.NOW)
        decision = turn(state)
        assert decision.outcome == "evict"
        assert decision.message == "Workload was evicted as there was no replacement for unhealthy node(s): r1-0"

    def test_heads_of_the_cycle_see_the_new_places(self) -> None:
        """The Workload that holds quota comes first."""
        state = world(racks={"r1": [2, 1, 1], "r2": [1]})
        state.put_workload(failed(running(state, gang(2)), "r1-0"), b.NOW)
        state.drop_node("r1-0")
        state.put_workload(workload("late", 2, second=5), b.NOW)
        found = {each.key: each.outcome for each in cycle(state, b.NOW + 1)}
        assert found == {"team/w": "place", "team/late": "pending"}

    @pytest.mark.parametrize("owner", ["Pod", "Job"])
    def test_the_one_pod_of_a_workload_is_not_moved(self, owner: str) -> None:
        """No other pod takes its place; Kueue has a gate for that."""
        state = world(racks=GANG)
        owners = [{"apiVersion": "v1" if owner == "Pod" else "batch/v1", "kind": owner, "name": "w", "uid": "1"}]
        admitted = running(state, b.changed(gang(1), metadata={"ownerReferences": owners}))
        state.put_workload(failed(admitted, *places(state, "w")), b.NOW)
        assert bool(state.second_passes.due(b.NOW + 1)) == (owner == "Job")


class TestNoReplacement:
    """Pods have no other place."""

    def test_the_workload_is_evicted(self) -> None:
        """Nobody else is chosen as a victim for it, and it is not decided twice."""
        state = world(racks={"r1": [2, 1], "r2": [1]})
        state.put_workload(failed(running(state, gang(3)), "r1-0"), b.NOW)
        state.drop_node("r1-0")
        decision = turn(state)
        assert (decision.outcome, decision.status) == ("evict", "evicted")
        assert state.reservations.is_evicted(decision.info)
        assert [each.key for each in cycle(state, b.NOW + 1)] == []

    def test_without_failing_fast_it_waits_for_longer_each_time(self) -> None:
        """Until there is room."""
        state = world(racks={"r1": [2, 1]}, options=Options(gates=SLOW))
        state.put_workload(failed(running(state, gang(3)), "r1-0"), b.NOW)
        state.drop_node("r1-0")
        decision = turn(state)
        assert decision.outcome == "unplaced"
        assert "allows to fit" in decision.message or "doesn't allow to fit" in decision.message
        assert state.second_passes.next_turn == b.NOW + 3
        assert turn(state, after=3).outcome == "unplaced"
        assert state.second_passes.next_turn == b.NOW + 7
        state.put_node(node("r1-9", "r1", 2))
        assert turn(state, after=7).outcome == "place"
        assert state.second_passes.next_turn is None


class TestWrites:
    """What is decided counts at once, and not for good before it is written."""

    def test_an_older_version_is_not_taken_for_a_loss(self) -> None:
        """Another change of the status, which was seen while the write was on its way."""
        state = world(racks=GANG)
        marked = failed(running(state, gang()), "r1-1")
        state.put_workload(marked, b.NOW)
        decision = turn(state)
        state.put_workload(b.with_conditions(marked, PodsReady=("False", "WaitForStart")), b.NOW + 2)
        assert "r1-3" in places(state, "w")
        state.put_workload(written(decision), b.NOW + 2)
        assert "r1-3" in places(state, "w")
        assert not state.reservations.assumed
        assert state.second_passes.next_turn is None

    def test_one_more_node_that_fails_meanwhile_is_replaced_too(self) -> None:
        """The places that were decided before are not kept."""
        state = world(racks={"r1": [1] * 6})
        marked = failed(running(state, gang()), "r1-1")
        state.put_workload(marked, b.NOW)
        turn(state)
        state.put_workload(failed(marked, "r1-1", "r1-2"), b.NOW + 1)
        assert turn(state, after=2).outcome == "place"
        assert places(state, "w") == {"r1-0": 1, "r1-3": 1, "r1-4": 1}

    def test_a_refused_write_gives_the_places_back(self) -> None:
        """And they are looked for again."""
        state = world(racks=GANG)
        state.put_workload(failed(running(state, gang()), "r1-1"), b.NOW)
        before = free(state)
        turn(state)
        assert free(state) != before
        state.forget("team/w", b.NOW + 2)
        assert free(state) == before
        assert state.second_passes.next_turn == b.NOW + 3

    @pytest.mark.parametrize("stops", [1, 2, 3])
    def test_a_cycle_that_is_abandoned_leaves_places_as_they_were(self, stops: int) -> None:
        """Wherever it is closed."""
        state = world(racks=GANG)
        state.put_workload(failed(running(state, gang()), "r1-1"), b.NOW)
        before = free(state)
        steps = cycle_steps(state, b.NOW + 1, stretch=1)
        for _ in range(stops):
            next(steps)
        steps.close()
        assert free(state) == before
        assert turn(state).outcome == "place"

    def test_a_workload_that_ends_meanwhile_holds_nothing(self) -> None:
        """Neither its old places nor the new ones."""
        state = world(racks=GANG)
        marked = failed(running(state, gang()), "r1-1")
        state.put_workload(marked, b.NOW)
        turn(state)
        state.put_workload(b.with_conditions(marked, Finished=("True", "Succeeded")), b.NOW)
        assert set(free(state).values()) == {1000}


class TestDelayedRequests:
    """Nodes are yet to be provisioned."""

    def state(self) -> State:
        """A ClusterQueue whose nodes are provisioned."""
        queue = b.queue("main", {"gpu": {"cpu": 100}}, admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]})
        state = world(queue, racks={"r1": [1]})
        state.put_admission_check("nodes", active=True, controller=names.PROVISIONING_CONTROLLER)
        return state

    def reserved(self, made: State, **check: Any) -> Workload:
        """The Workload with quota, and the state of its check."""
        base = gang(2)
        made.drop_workload(base.metadata.key)
        made.put_workload(base, b.NOW)
        decision = b.decide(made)
        assert decision.admission is not None
        assert not decision.admitted
        body = msgspec.to_builtins(base)
        listed = [{"name": "nodes", "state": "Pending", "lastTransitionTime": b.STAMP, **check}]
        body["status"] = {"admission": msgspec.to_builtins(decision.admission), "admissionChecks": listed}
        return b.with_conditions(msgspec.convert(body, Workload), QuotaReserved=("True", "QuotaReserved"))

    def test_quota_comes_first(self) -> None:
        """Though no rack has room yet."""
        given = self.reserved(self.state()).status.admission
        assert given is not None
        assert [each.delayed_topology_request for each in given.pod_set_assignments] == ["Pending"]
        assert [each.topology_assignment for each in given.pod_set_assignments] == [None]

    def test_places_come_with_the_nodes(self) -> None:
        """Then the Workload is admitted."""
        state = self.state()
        state.put_workload(self.reserved(state), b.NOW)
        assert state.second_passes.next_turn is None
        state.put_node(node("new-0", "new", 2))
        state.put_workload(self.reserved(state, state="Ready"), b.NOW)
        decision = turn(state)
        assert (decision.outcome, decision.admitted) == ("place", True)
        assert decision.admission is not None
        assert [each.delayed_topology_request for each in decision.admission.pod_set_assignments] == ["Ready"]
        assert places(state, "w") == {"new-0": 2}

    def test_an_answer_of_a_check_says_which_nodes(self) -> None:
        """By a node selector."""
        state = self.state()
        for host in ("a", "z"):
            state.put_node(node(host, host, 2))
        update = {"name": "main", "nodeSelector": {HOSTNAME: "z"}}
        state.put_workload(self.reserved(state, state="Ready", podSetUpdates=[update]), b.NOW)
        assert turn(state).outcome == "place"
        assert places(state, "w") == {"z": 2}

    def test_nodes_that_are_late_are_waited_for(self) -> None:
        """The Workload is not evicted."""
        state = self.state()
        state.put_workload(self.reserved(state, state="Ready"), b.NOW)
        assert turn(state).outcome == "unplaced"
        assert not state.reservations.evicting

    def test_flavors_without_that_check_are_placed_at_once(self) -> None:
        """It is for another flavor."""
        checks = {"admissionChecks": [{"name": "nodes", "onFlavors": ["other"]}]}
        state = world(b.queue("main", {"gpu": {"cpu": 100}}, admissionChecksStrategy=checks), racks={"r1": [2]})
        state.put_flavor(b.flavor("other"))
        state.put_admission_check("nodes", active=True, controller=names.PROVISIONING_CONTROLLER)
        state.put_workload(gang(2), b.NOW)
        b.decide(state)
        assert places(state, "w") == {"r1-0": 2}
