"""Pods get places where their request says, never more than there is, and the node table is as it was afterwards."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine import topology_builders as t
from turnstile.api.pods import PodSpec, Taint
from turnstile.api.topology import HOSTNAME
from turnstile.engine.pace import Pace, finish
from turnstile.engine.quota.podsets import PodShape
from turnstile.engine.topology.counting import MOST_KINDS
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.placement import Placed, Placer

RACKS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["r1", "r2", "r3"])).map(
        lambda pair: f"{pair[0]}/{''.join(pair)}"
    ),
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    min_size=1,
    max_size=5,
)
REQUESTS = st.sampled_from(
    [
        {"required": t.RACK},
        {"required": t.BLOCK},
        {"preferred": t.RACK},
        {"preferred": t.BLOCK},
        {"unconstrained": True},
        {"required": t.BLOCK, "pod_set_slice_required_topology": t.RACK, "pod_set_slice_size": 2},
        {"pod_set_slice_required_topology": HOSTNAME, "pod_set_slice_size": 2},
    ]
)


def racks_of(nodes: Nodes, hosts: dict[str, int]) -> dict[str, int]:
    """Pods by rack."""
    found: dict[str, int] = {}
    for host, count in hosts.items():
        leaf = nodes.trees[t.FLAVOR].leaf((host,))
        assert leaf is not None
        found[leaf.values[1]] = found.get(leaf.values[1], 0) + count
    return found


class TestInvariants:
    """Properties over drawn clusters."""

    @given(RACKS, REQUESTS, st.integers(1, 12))
    def test_no_node_gets_more_than_it_has(self, racks: dict[str, list[int]], request: object, count: int) -> None:
        """All pods have a place, or none has."""
        nodes = t.cluster(racks)
        assert isinstance(request, dict)
        slices = request.get("pod_set_slice_size", 1)
        count -= count % slices
        if not count:
            return
        found = t.place(nodes, t.pods(nodes, count, **request))["main"]
        if isinstance(found, str):
            return
        sizes = {
            f"{where.partition('/')[2]}-{at}": cpus for where, each in racks.items() for at, cpus in enumerate(each)
        }
        assert sum(found.values()) == count
        assert all(pods <= sizes[host] for host, pods in found.items())
        by_rack = racks_of(nodes, found)
        if request.get("required") == t.RACK:
            assert len(by_rack) == 1
        if request.get("pod_set_slice_required_topology") == t.RACK:
            assert all(pods % 2 == 0 for pods in by_rack.values())
        if request.get("pod_set_slice_required_topology") == HOSTNAME:
            assert all(pods % 2 == 0 for pods in found.values())

    @given(RACKS, st.integers(1, 12))
    def test_a_gang_that_fits_into_a_rack_is_put_into_one(self, racks: dict[str, list[int]], count: int) -> None:
        """Whether the rack is required or preferred."""
        nodes = t.cluster(racks)
        fits = any(sum(hosts) >= count for hosts in racks.values())
        required = t.place(nodes, t.pods(nodes, count, required=t.RACK))["main"]
        preferred = t.place(nodes, t.pods(nodes, count, preferred=t.RACK))["main"]
        assert isinstance(required, str) is not fits
        if fits:
            assert required == preferred
        assert isinstance(preferred, str) is (sum(map(sum, racks.values())) < count)

    @given(RACKS, st.lists(st.tuples(st.integers(0, 19), st.integers(1, 3)), max_size=6), REQUESTS)
    def test_counts_that_are_kept_are_those_that_are_counted_anew(
        self, racks: dict[str, list[int]], changes: list[tuple[int, int]], request: object
    ) -> None:
        """After any changes of what is in use, and of nodes that come and go."""
        assert isinstance(request, dict)
        nodes = t.cluster(racks)
        hosts = sorted(leaf.values[-1] for leaf in nodes.trees[t.FLAVOR].leaves)
        wanted = t.pods(nodes, 4, **request)
        kept = []
        for at, count in changes:
            host = hosts[at % len(hosts)]
            if at >= 15:
                nodes.drop_node(host)
                if count > 1:
                    t.put_node(nodes, host, block="b", rack="rnew", cpus=count)
            else:
                kept.append(t.use(nodes, host, count))
            before = t.place(nodes, wanted)
            nodes.trees[t.FLAVOR].counts.clear()
            assert t.place(nodes, wanted) == before


def test_the_last_domain_is_the_tightest() -> None:
    """Best fit: of two racks that are large enough the smaller one, and in it as few hosts as possible."""
    nodes = t.cluster({"a/r1": [4, 4], "a/r2": [3, 1]})
    assert t.place(nodes, t.pods(nodes, 4, required=t.RACK)) == {"main": {"r2-0": 3, "r2-1": 1}}


def test_without_a_level_the_fullest_hosts_come_first() -> None:
    """So that wide domains stay whole."""
    nodes = t.cluster({"a/r1": [4, 1], "a/r2": [2]})
    assert t.place(nodes, t.pods(nodes, 1, unconstrained=True)) == {"main": {"r1-1": 1}}
    assert t.place(nodes, t.pods(nodes, 1)) == {"main": {"r1-1": 1}}


def test_a_pod_set_sees_those_before_it() -> None:
    """Two pod sets of one Workload do not get the same place."""
    nodes = t.cluster({"a/r1": [2, 2]})
    one, other = t.pods(nodes, 2, name="one", required=HOSTNAME), t.pods(nodes, 2, name="other", required=HOSTNAME)
    assert t.place(nodes, one, other) == {"one": {"r1-0": 2}, "other": {"r1-1": 2}}


def test_a_leader_has_its_place_beside_the_workers() -> None:
    """In one rack, where both fit."""
    nodes = t.cluster({"a/r1": [3], "a/r2": [2, 2]})
    leader = t.pods(nodes, 1, name="leader", group="g", required=t.RACK)
    workers = t.pods(nodes, 3, name="workers", group="g", required=t.RACK)
    found = t.place(nodes, leader, workers)
    assert not any(isinstance(each, str) for each in found.values())
    assert {host[:2] for each in found.values() if isinstance(each, dict) for host in each} == {"r2"}


def test_a_third_member_of_a_group_is_refused() -> None:
    """Kueue leaves it without a place and without a word."""
    nodes = t.cluster({"a/r1": [9]})
    members = [t.pods(nodes, 1, name=name, group="g", required=t.RACK) for name in ("a", "b", "c")]
    assert "only a leader and its workers fit together" in str(t.place(nodes, *members)["c"])


def test_pods_that_are_left_over_by_slices_are_refused() -> None:
    """Kueue leaves them gated for ever."""
    nodes = t.cluster({"a/r1": [9]})
    request = {"required": t.BLOCK, "pod_set_slice_required_topology": t.RACK, "pod_set_slice_size": 2}
    assert t.place(nodes, t.pods(nodes, 3, **request)) == {"main": "3 pods make no whole slices of 2 pods"}


def test_a_taint_keeps_pods_away() -> None:
    """The message says which one."""
    nodes = t.cluster({"a/r1": [9]}, taints=[Taint(key="gpu", effect="NoSchedule")])
    assert 'taint "gpu=:NoSchedule": 1' in str(t.place(nodes, t.pods(nodes, 1, required=t.RACK))["main"])


def test_the_leader_has_a_node_selector_of_its_own() -> None:
    """Kueue looks at that of the workers alone, and so puts the leader where it cannot run."""
    nodes = t.cluster({"a/r1": [1, 3]})
    chosen = PodShape(PodSpec(node_selector={HOSTNAME: "r1-0"}))
    leader = t.pods(nodes, 1, name="leader", group="g", required=t.RACK)._replace(where=chosen)
    workers = t.pods(nodes, 2, name="workers", group="g", required=t.RACK)
    assert t.place(nodes, leader, workers) == {"leader": {"r1-0": 1}, "workers": {"r1-1": 2}}


def test_a_count_as_large_as_a_number_can_be_takes_no_longer() -> None:
    """Pod counts stay counts."""
    nodes = t.cluster({"a/r1": [2**31, 5]})
    assert t.place(nodes, t.pods(nodes, 2**31 - 1, required=HOSTNAME)) == {"main": {"r1-0": 2**31 - 1}}


def test_a_search_stops_on_its_way() -> None:
    """Where it stops changes nothing of what it finds."""
    nodes = t.cluster({f"a/r{number}": [2] * 40 for number in range(40)})
    wanted = [t.pods(nodes, 60, preferred=t.RACK)]
    steps = Placer(nodes.trees[t.FLAVOR], nodes.frees, pace=Pace(20)).place(wanted)
    stops = 0
    while True:
        try:
            next(steps)
            stops += 1
        except StopIteration as end:
            found = end.value
            break
    assert stops > 2
    placed = found["main"]
    assert isinstance(placed, Placed)
    nodes.trees[t.FLAVOR].counts.clear()
    assert finish(Placer(nodes.trees[t.FLAVOR], nodes.frees).place(wanted)) == found


class TestPodsThatTopologyDidNotPlace:
    """They count on their node."""

    def test_they_take_from_what_is_free(self) -> None:
        """And give it back when they are gone."""
        nodes = t.cluster({"a/r1": [2]})
        nodes.put_pod("team/other", "r1-0", {"cpu": 1})
        assert isinstance(t.place(nodes, t.pods(nodes, 2, required=HOSTNAME))["main"], str)
        assert nodes.drop_pod("team/other") == "r1-0"
        assert t.place(nodes, t.pods(nodes, 2, required=HOSTNAME)) == {"main": {"r1-0": 2}}

    def test_a_node_that_comes_later_has_them_too(self) -> None:
        """Pods may be seen before their node."""
        nodes = t.cluster({})
        nodes.put_pod("team/other", "r1-0", {"cpu": 1})
        t.put_node(nodes, "r1-0", block="a", rack="r1", cpus=2)
        assert isinstance(t.place(nodes, t.pods(nodes, 2, required=HOSTNAME))["main"], str)

    def test_less_room_is_no_news(self) -> None:
        """Only a node with more free than before is worth another look."""
        nodes = t.cluster({"a/r1": [4]})
        assert nodes.put_pod("team/other", "r1-0", {"cpu": 1}) is None
        assert nodes.put_pod("team/other", "r1-0", {"cpu": 2}) is None
        assert nodes.put_pod("team/other", "r1-0", {"cpu": 1}) == "r1-0"


class TestNodes:
    """The node table follows nodes."""

    def test_a_node_that_stays_as_it_was_is_no_change(self) -> None:
        """Heartbeats cost nothing."""
        nodes = t.cluster({"a/r1": [2]})
        labels = {t.BLOCK: "a", t.RACK: "r1", HOSTNAME: "r1-0"}
        assert not nodes.put_node("r1-0", labels=labels, allocatable={"cpu": 2, "pods": 2**40}, taints=())

    def test_usage_outlasts_its_node(self) -> None:
        """A node that comes back has the pods that were placed there."""
        nodes = t.cluster({"a/r1": [2]})
        kept = t.use(nodes, "r1-0", 2)
        nodes.drop_node("r1-0")
        t.put_node(nodes, "r1-0", block="a", rack="r1", cpus=2)
        assert isinstance(t.place(nodes, t.pods(nodes, 1, required=HOSTNAME))["main"], str)
        assert kept is not None

    def test_flavors_share_their_hosts(self) -> None:
        """Pods of one flavor count on the node for all flavors with that node."""
        nodes = t.cluster({"a/r1": [2]})
        nodes.put_flavor("other", "flat", (HOSTNAME,), {})
        kept = nodes.capacity("other", (HOSTNAME,), ("r1-0",))
        kept.take({"cpu": 2, "pods": 2}, 1)
        assert isinstance(t.place(nodes, t.pods(nodes, 1, required=HOSTNAME))["main"], str)

    def test_an_empty_cluster_leaves_out_what_topology_placed(self) -> None:
        """And nothing else."""
        nodes = t.cluster({"a/r1": [2]})
        nodes.put_pod("team/other", "r1-0", {"cpu": 1})
        kept = t.use(nodes, "r1-0", 1)
        assert t.place(nodes, t.pods(nodes, 1, required=HOSTNAME), empty=True) == {"main": {"r1-0": 1}}
        assert isinstance(t.place(nodes, t.pods(nodes, 2, required=HOSTNAME), empty=True)["main"], str)
        assert kept is not None


def test_requests_of_many_kinds_fill_no_memory() -> None:
    """Whoever may make Workloads may ask for ever other amounts."""
    nodes = t.cluster({"a/r1": [1000, 2000]})
    for amount in range(1, 3 * MOST_KINDS):
        t.place(nodes, t.pods(nodes, 1, cpus=amount, required=HOSTNAME))
    assert len(nodes.trees[t.FLAVOR].counts) <= MOST_KINDS
