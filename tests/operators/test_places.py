"""The judge of places sees what it is there for."""

from collections.abc import Mapping, Sequence

import pytest

from testbed.client import Json
from tests.operators.places import GATE, PODSET, WORKLOAD, Rules, faults
from turnstile.api.meta import to_plain
from turnstile.api.topologyassignment import Domain, encode

RACK, HOST, INDEX = "example.com/rack", "kubernetes.io/hostname", "index"
RACKS = {"r1": 3, "r2": 3}
NODES: list[Json] = [
    {"metadata": {"name": f"{rack}-{number}", "labels": {RACK: rack, HOST: f"{rack}-{number}"}}}
    for rack, hosts in RACKS.items()
    for number in range(hosts)
]
RULES = Rules(RACK, {"worker": lambda labels: int(labels[INDEX])})


def pods(pod_set: str, *hosts: str) -> list[Json]:
    """The pods of a pod set on these nodes, in the order of their numbers; without a name gated."""
    return [
        {
            "metadata": {
                "name": f"{pod_set}-{number}",
                "annotations": {WORKLOAD: "gang"},
                "labels": {PODSET: pod_set, INDEX: str(number)},
            },
            "spec": {"nodeName": host} if host else {"schedulingGates": [{"name": GATE}]},
        }
        for number, host in enumerate(hosts)
    ]


def assigned(**pod_sets: Mapping[str, int]) -> list[Json]:
    """A Workload with so many pods of each pod set on each node."""
    given = [
        {
            "name": name,
            "count": sum(hosts.values()),
            "topologyAssignment": to_plain(encode([HOST], [Domain((host,), each) for host, each in hosts.items()])),
        }
        for name, hosts in pod_sets.items()
    ]
    admission = {"clusterQueue": "main", "podSetAssignments": given}
    return [{"metadata": {"name": "gang", "namespace": "team"}, "status": {"admission": admission}}]


def found(rules: Rules, members: Sequence[Json], workloads: Sequence[Json]) -> list[str]:
    """The faults of these pods."""
    return faults(rules, pods=members, nodes=NODES, workloads=workloads)


WORKERS = assigned(worker={"r1-0": 2, "r1-1": 1})


def test_pods_in_their_places_have_no_fault() -> None:
    """By number: two on the first node, the last on the other."""
    assert found(RULES, pods("worker", "r1-0", "r1-0", "r1-1"), WORKERS) == []


@pytest.mark.parametrize(
    ("hosts", "fault"),
    [
        (("r1-0", "r1-1", "r1-0"), "worker-1 of rank 1 is in ('r1-1',), not ('r1-0',)"),
        (("r1-0", "r1-1", "r1-1"), "2 pods are in ('r1-1',), where 1 belong"),
        (("r1-0", "r1-0", "r1-2"), "1 pods are in ('r1-2',), where 0 belong"),
        (("r1-0", "r1-0", "r2-0"), f"pod set worker is in several domains of {RACK}"),
        (("r1-0", "r1-0", ""), "worker-2 is held by the topology gate"),
        (("r1-0", "r1-0", "elsewhere"), "worker-2 is on no node"),
        (("r1-0", "r1-0"), "pod set worker has 2 pods, not 3"),
        (("r1-0", "r1-0", "r1-1", "r1-1"), "the ranks of the pods are"),
    ],
)
def test_a_misplaced_pod_is_a_fault(hosts: tuple[str, ...], fault: str) -> None:
    """Of each kind."""
    assert any(each.startswith(fault) for each in found(RULES, pods("worker", *hosts), WORKERS))


def test_pods_of_no_pod_set_are_a_fault() -> None:
    """They run unaccounted for."""
    strangers = pods("stranger", "r1-2")
    assert found(RULES, pods("worker", "r1-0", "r1-0", "r1-1") + strangers, WORKERS) == ["stranger-0 is of no pod set"]


@pytest.mark.parametrize(("leader", "torn"), [("r1-2", False), ("r2-0", True)])
def test_a_leader_in_another_rack_is_a_fault(leader: str, torn: bool) -> None:
    """If its place is assigned to it there, only the rule for groups sees that."""
    workloads = assigned(leader={leader: 1}, worker={"r1-0": 2, "r1-1": 1})
    members = pods("leader", leader) + pods("worker", "r1-0", "r1-0", "r1-1")
    assert found(RULES, members, workloads) == []
    wrong = found(Rules(RACK, RULES.ranks, together=("leader", "worker")), members, workloads)
    assert [each.startswith("a leader and its workers are in several domains") for each in wrong] == [True] * torn


@pytest.mark.parametrize(("last", "torn"), [("r2-0", False), ("r1-1", True)])
def test_a_slice_in_two_racks_is_a_fault(last: str, torn: bool) -> None:
    """The first two pods are a slice, and so are the last two."""
    hosts = ("r1-0", "r1-0", last, "r2-1")
    rules = Rules("", RULES.ranks, slice_level=RACK, slice=2)
    wrong = found(rules, pods("worker", *hosts), assigned(worker={"r1-0": 2, last: 1, "r2-1": 1}))
    assert wrong == ["slice 1 of pod set worker is in ['r1', 'r2']"] * torn
