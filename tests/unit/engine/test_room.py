"""A ClusterQueue that asks for room admits a Workload only while nodes have room for each of its pods."""

import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.room_worlds import PREEMPTION, asking, bind, node, put, queue, why, world
from turnstile.api.names import SLICE_NAME, SLICE_REPLACEMENT_FOR
from turnstile.engine import Options, cycle
from turnstile.engine.cycle.cycle import cycle_steps
from turnstile.engine.options import Gates


def test_the_sum_is_free_and_no_node_has_room() -> None:
    """Two nodes have one CPU left each, and a pod asks for two. It says how much fits, and what is short."""
    state = world(nodes=[1, 1])
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    assert not b.admitted(state)
    assert why(state) == (
        "couldn't assign flavors to pod set main: nodes of flavor default have room for 0 out of 1 pod(s)."
        ' Total nodes: 2; excluded: resource "cpu": 2'
    )
    decision = state.queues.decisions["team/w"]
    assert decision.condition_reason == "NoRoomOnNodes"


def test_without_the_annotation_nothing_is_asked() -> None:
    """As in Kueue: quota decides alone, and the node table keeps no room."""
    state = world(b.queue("main", {"default": {"cpu": 100}}), nodes=[1])
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    assert state.surroundings.nodes.room is None


@pytest.mark.parametrize(("by_default", "says", "admitted"), [(True, None, False), (True, "false", True)])
def test_the_configuration_asks_for_all_queues_that_do_not_say_otherwise(
    by_default: bool, says: str | None, admitted: bool
) -> None:
    """The annotation comes first."""
    made = b.queue("main", {"default": {"cpu": 100}})
    state = world(asking(made, says) if says else made, nodes=[1], options=Options(wait_for_room=by_default))
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    assert bool(b.admitted(state)) is admitted


def test_a_node_that_comes_starts_it() -> None:
    """And one that is too small does not."""
    state = world(nodes=[1])
    put(state, b.workload("w", cpu=2, count=2))
    b.settle(state)
    state.put_node(node("small", 3))
    b.settle(state)
    assert not b.admitted(state)
    assert "room for 1 out of 2 pod(s)" in why(state)
    state.put_node(node("large", 2))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_pods_of_others_take_room_until_they_end() -> None:
    """Whatever namespace they are in, and whether a queue has them or not."""
    state = world(nodes=[2])
    state.put_pod("kube-system/agent", "n0", {"cpu": 500})
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    assert not b.admitted(state)
    assert not state.has_work
    state.drop_pod("kube-system/agent")
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_a_pod_that_ends_elsewhere_wakes_nobody() -> None:
    """It leaves room for no more pods of the kind that waits."""
    state = world(nodes=[2, 1])
    state.put_pod("kube-system/a", "n0", {"cpu": 500})
    state.put_pod("kube-system/b", "n1", {"cpu": 500})
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    state.drop_pod("kube-system/b")
    assert not state.has_work


def test_pods_that_are_not_bound_yet_keep_their_room() -> None:
    """Of this cycle and of earlier ones: there is room for two pods, and four ask for it."""
    queues = [queue(name) for name in ("a", "b")]
    state = world(*queues, nodes=[2, 2])
    put(state, *(b.workload(f"w{number}", line, cpu=2, second=number) for number, line in enumerate("abab")))
    cycle(state, b.NOW)
    assert b.admitted(state) == {"team/w0", "team/w1"}
    b.settle(state)
    assert b.admitted(state) == {"team/w0", "team/w1"}
    assert "room for 0 out of 1 pod(s)" in why(state, "w2")


def test_pods_that_are_bound_are_counted_once() -> None:
    """On the node that kube-scheduler chose, which may be another than the expected one."""
    state = world(nodes=[2, 4])
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    bind(state, "w", 0, "n1", cpu=2)
    put(state, b.workload("one", cpu=2, second=1), b.workload("two", cpu=2, second=2))
    b.settle(state)
    assert b.admitted(state) == {"team/w", "team/one", "team/two"}
    put(state, b.workload("more", second=3))
    b.settle(state)
    assert "room for 0 out of 1 pod(s)" in why(state, "more")


def test_a_pod_bound_elsewhere_than_expected_wakes_who_waits_for_that_node() -> None:
    """The small pod was expected on the large node, which the large pod needs."""
    state = world(nodes={"large": 4})
    put(state, b.workload("w", cpu=1))
    b.settle(state)
    put(state, b.workload("large", cpu=4, second=1))
    b.settle(state)
    state.put_node(node("small", 1))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    bind(state, "w", 0, "small")
    b.settle(state)
    assert b.admitted(state) == {"team/w", "team/large"}


def test_expected_pods_move_when_their_node_is_filled_or_goes() -> None:
    """So the last free node is not given to two."""
    state = world(nodes=[2, 2])
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    state.put_pod("other/pod", "n0", {"cpu": 1000})
    put(state, b.workload("x", cpu=2, second=1))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    state.put_node(node("n2", 2))
    b.settle(state)
    assert b.admitted(state) == {"team/w", "team/x"}
    state.drop_node("n2")
    put(state, b.workload("y", cpu=1, second=2))
    b.settle(state)
    assert b.admitted(state) == {"team/w", "team/x", "team/y"}, "a pod that fits nowhere takes no room from others"


def test_a_workload_that_ends_before_its_pods_are_bound_leaves_its_room() -> None:
    """To those of ClusterQueues that share no quota with its own, too."""
    state = world(queue("a"), queue("b"), nodes=[2])
    put(state, b.workload("w", "a", cpu=2), b.workload("x", "b", cpu=2, second=1))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    state.drop_workload("team/w")
    b.settle(state)
    assert b.admitted(state) == {"team/x"}


def test_pods_of_queues_that_do_not_ask_take_room_too() -> None:
    """Their pods go to the same nodes."""
    state = world(b.queue("a", {"default": {"cpu": 100}}), queue("b"), nodes=[2])
    put(state, b.workload("w", "a", cpu=2))
    b.settle(state)
    put(state, b.workload("x", "b", cpu=1, second=1))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_the_first_queue_that_asks_counts_what_runs_already() -> None:
    """Bound and yet to be bound; and when it does not ask any more, nobody waits for room."""
    plain = b.queue("main", {"default": {"cpu": 100}})
    state = world(plain, nodes=[3])
    put(state, b.workload("w", cpu=1, count=2))
    b.settle(state)
    bind(state, "w", 0, "n0")
    state.put_cluster_queue(queue(), b.NOW)
    put(state, b.workload("x", cpu=2, second=1))
    b.settle(state)
    assert "room for 0 out of 1 pod(s)" in why(state, "x")
    state.put_cluster_queue(b.queue("main", {"default": {"cpu": 100}}), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/w", "team/x"}


def test_nodes_are_those_of_the_flavor_that_the_pods_may_run_on() -> None:
    """Labels of the flavor, taints, node selectors; the message counts nodes of the flavor alone."""
    gpu = b.flavor("gpu", nodeLabels={"pool": "gpu"}, tolerations=[{"key": "gpu", "operator": "Exists"}])
    state = world(asking(b.queue("main", {"gpu": {"cpu": 100}})), nodes=[9], flavors=())
    state.put_flavor(gpu)
    put(state, b.workload("w", cpu=2, spec={"nodeSelector": {"zone": "a"}}))
    b.settle(state)
    assert why(state).endswith("no node that is ready has the labels of flavor gpu")
    tainted = [{"key": "gpu", "effect": "NoSchedule"}]
    state.put_node(node("g0", 9, pool="gpu", zone="b", taints=tainted))
    state.put_node(node("g1", 9, pool="gpu", zone="a", taints=[*tainted, {"key": "other", "effect": "NoExecute"}]))
    b.settle(state)
    assert why(state).endswith(
        "nodes of flavor gpu have room for 0 out of 1 pod(s)."
        ' Total nodes: 2; excluded: nodeSelector: 1, taint "other=:NoExecute": 1'
    )
    state.put_node(node("g2", 2, pool="gpu", zone="a", taints=tainted))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_the_next_flavor_is_tried() -> None:
    """In the same cycle, as when quota is lacking."""
    flavors = ("spot", "on-demand")
    made = asking(b.queue("main", {"spot": {"cpu": 9}, "on-demand": {"cpu": 9}}))
    state = b.world(made, flavors=())
    for name in flavors:
        state.put_flavor(b.flavor(name, nodeLabels={"pool": name}))
    state.put_node(node("s", 1, pool="spot"))
    state.put_node(node("d", 2, pool="on-demand"))
    put(state, b.workload("w", cpu=2))
    assert b.flavors_of(b.decide(state)) == [{"cpu": "on-demand"}]


def test_part_of_it_is_admitted_if_that_fits() -> None:
    """As many pods as there is room for."""
    state = world(nodes=[2, 1])
    put(state, b.workload("w", count=9, min_count=2))
    b.settle(state)
    info = state.ledger.holder("team/w")
    assert info is not None
    assert info.totals[0].count == 3


def test_nobody_is_preempted_for_room() -> None:
    """There is quota, and the node is full of pods of a lower priority."""
    state = world(queue(preemption=PREEMPTION), nodes=[2])
    put(state, b.workload("low", cpu=2))
    b.settle(state)
    bind(state, "low", 0, "n0", cpu=2)
    put(state, b.workload("w", cpu=2, priority=9, second=1))
    b.settle(state)
    assert not state.reservations.evicting
    assert "room for 0 out of 1 pod(s)" in why(state)


@pytest.mark.parametrize(("host", "victims"), [("large", ["team/low"]), ("small", [])])
def test_nobody_is_preempted_for_quota_that_no_node_has_room_for(host: str, victims: list[str]) -> None:
    """The pods of the only victim are on a node where the preemptor fits once they are gone, or on another one."""
    state = world(queue(cpu=2, preemption=PREEMPTION), nodes={"large": 2, "small": 2})
    for name in ("large", "small"):
        if name != host:
            state.put_pod(f"other/{name}", name, {"cpu": 1000})
    put(state, b.workload("low", count=2))
    b.settle(state)
    for number, where in enumerate((host, host) if victims else ("large", "small")):
        if not victims:
            state.drop_pod("other/large")
            state.put_pod("other/large", "large", {"cpu": 1000})
        bind(state, "low", number, where)
    put(state, b.workload("w", cpu=2, priority=9, second=1))
    if not victims:
        state.put_pod("other/small", "small", {"cpu": 1000})
    cycle(state, b.NOW)
    assert [*state.reservations.evicting] == victims
    if not victims:
        assert "room for 0 out of 1 pod(s)" in why(state)


def test_the_head_of_a_strict_queue_waits_and_so_do_those_behind_it() -> None:
    """As for quota: a node may come at any time. In a BestEffortFIFO queue others pass."""
    for strategy, passes in (("StrictFIFO", set[str]()), ("BestEffortFIFO", {"team/small"})):
        state = world(queue(queueingStrategy=strategy), nodes=[2])
        put(state, b.workload("w", cpu=3), b.workload("small", second=1))
        b.settle(state)
        assert b.admitted(state) == passes


def test_a_pod_set_counts_beside_those_before_it() -> None:
    """Each fits alone, and both together do not."""
    driver, workers = (
        {"name": name, "count": count, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}}
        for name, count, cpu in (("driver", 1, "2"), ("workers", 2, "2"))
    )  # fmt: skip
    state = world(nodes=[4, 1])
    put(state, b.changed(b.workload("w"), spec={"podSets": [driver, workers]}))
    b.settle(state)
    assert "pod set workers: nodes of flavor default have room for 1 out of 2 pod(s)" in why(state)
    state.put_node(node("more", 2))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    state.put_pod("team/w-driver", "n0", {"cpu": 2000}, "team/w")
    state.put_pod("team/w-0", "more", {"cpu": 2000}, "team/w")
    put(state, b.workload("x", cpu=2, second=1), b.workload("y", second=2))
    b.settle(state)
    assert b.admitted(state) == {"team/w", "team/y"}, "one worker is yet to be bound"


def test_nodes_that_are_provisioned_need_no_room() -> None:
    """The check makes the nodes."""
    made = queue(admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]})
    state = world(made, nodes=[])
    state.put_admission_check("nodes", active=True, controller="kueue.x-k8s.io/provisioning-request")
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    room = state.surroundings.nodes.room
    assert room is not None
    state.put_cluster_queue(queue("plain"), b.NOW)
    state.put_local_queue(b.local("plain", "plain"), b.NOW)
    state.put_node(node("new", 1))
    put(state, b.workload("x", "plain", second=1))
    b.settle(state)
    assert "team/x" in b.admitted(state), "nor do its pods take room before they are bound"


@pytest.mark.parametrize("stops", range(1, 7))
def test_a_cycle_that_is_left_early_expects_nobody(stops: int) -> None:
    """What it decided never was, wherever it is left."""
    state = world(queue("a"), queue("b"), nodes=[2])
    put(state, b.workload("w", "a", cpu=2), b.workload("x", "b", cpu=2, second=1))
    steps = cycle_steps(state, b.NOW)
    for _ in range(stops):
        next(steps)
    steps.close()
    state.drop_workload("team/w")
    b.settle(state)
    assert b.admitted(state) == {"team/x"}


def test_an_admission_that_could_not_be_written_leaves_its_room() -> None:
    """Its Workload waits again."""
    state = world(queue("a"), queue("b"), nodes=[2])
    put(state, b.workload("w", "a", cpu=2))
    b.settle(state)
    put(state, b.workload("x", "b", cpu=2, second=1))
    b.settle(state)
    state.drop_workload("team/w")
    state.forget("team/w", b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/x"}


def test_reservations_are_seen_and_reclaimed_pods_leave_their_room() -> None:
    """A version of the Workload that says nothing new changes nothing."""
    state = world(nodes=[2])
    waits = b.workload("w", count=2)
    put(state, waits)
    b.settle(state)
    seen = b.reserved(waits, state)
    put(state, seen, b.workload("x", second=1))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    put(state, b.changed(seen, status={"reclaimablePods": [{"name": "main", "count": 1}]}))
    b.settle(state)
    assert b.admitted(state) == {"team/w", "team/x"}


@pytest.mark.parametrize(("cpus", "admitted"), [(2, False), (3, True)])
def test_a_job_that_grows_needs_room_for_its_additional_pods_alone(cpus: int, admitted: bool) -> None:
    """Its pods name the first of its slices, whichever of these holds the quota."""
    state = world(nodes=[cpus], options=Options(gates=Gates(elastic_jobs_via_workload_slices=True)))
    put(state, b.workload("w", count=2))
    b.settle(state)
    for number in range(2):
        bind(state, "w", number, "n0")
    slices = {SLICE_NAME: "w", SLICE_REPLACEMENT_FOR: "team/w"}
    put(state, b.workload("grown", count=3, second=1, annotations=slices))
    b.settle(state)
    assert ("team/grown" in b.admitted(state)) is admitted
    if not admitted:
        assert "room for 0 out of 1 pod(s)" in why(state, "grown")
        return
    state.drop_workload("team/w")
    put(state, b.workload("x", second=2))
    b.settle(state)
    assert "room for 0 out of 1 pod(s)" in why(state, "x"), "one pod is yet to be bound"


def test_a_preemptor_keeps_the_room_that_its_victims_leave() -> None:
    """Their pods end one by one, and a Workload of a ClusterQueue that shares no quota would take the first hole."""
    state = world(queue("a", cpu=2, preemption=PREEMPTION), queue("b"), nodes=[2])
    put(state, b.workload("low", "a", count=2))
    b.settle(state)
    for number in range(2):
        bind(state, "low", number, "n0")
    put(state, b.workload("high", "a", cpu=2, priority=9, second=1))
    cycle(state, b.NOW)
    assert [*state.reservations.evicting] == ["team/low"]
    state.drop_pod("team/low-0")
    put(state, b.workload("small", "b", second=2))
    cycle(state, b.NOW)
    assert b.admitted(state) == {"team/low"}
    state.drop_pod("team/low-1")
    state.drop_workload("team/low")
    b.settle(state)
    assert b.admitted(state) == {"team/high"}


def test_pods_that_do_not_name_their_workload_take_room_once() -> None:
    """Those of a Workload that Kueue admitted, which run as the leader begins."""
    state = world(nodes=[4])
    put(state, b.held("kueue", "main", {"cpu": "2"}))
    state.put_pod("team/kueue-0", "n0", {"cpu": 2000})
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    assert "team/w" in b.admitted(state)
