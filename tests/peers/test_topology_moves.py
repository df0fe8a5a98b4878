"""A gang that Kueue has placed on a rack, and Turnstile takes over: its pods run on, and new ones keep its places."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from testbed import ControlPlane, resource_path
from testbed.client import Json, condition, wait_until
from tests.cluster.scenario import GROUP, job
from tests.peers.moving import TEAMS, Cluster
from tests.peers.test_move import install

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

TEAM: Final = TEAMS[0]
RACK: Final = "example.com/rack"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
WAIT: Final = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Under Kueue, with a rack of four nodes and one of two, each for one pod; a queue with more quota than that."""
    with ControlPlane(kube_api_qps=500) as cp:
        for rack, count in (("r1", 4), ("r2", 2)):
            for number in range(count):
                cp.add_node(f"{rack}-{number}", labels={"pool": "racks", RACK: rack}, cpu=1)
        made = Cluster(cp, tmp_path, jobs=0)
        made.kueue.start()
        levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        quota = [{"name": "racks", "resources": [{"name": "cpu", "nominalQuota": 100}]}]
        groups = [{"coveredResources": ["cpu"], "flavors": quota}]
        cp.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        cp.api.wait_for(resource_path("v1", "serviceaccounts", "default", namespace=TEAM), bool, timeout=60)
        for kind, spec in (
            ("Topology", {"levels": levels}),
            ("ResourceFlavor", {"nodeLabels": {"pool": "racks"}, "topologyName": "racks"}),
            ("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": groups}),
        ):
            cp.api.create({"apiVersion": GROUP, "kind": kind, "metadata": {"name": "racks"}, "spec": spec})
        meta = {"name": "main", "namespace": TEAM}
        cp.api.create({"apiVersion": GROUP, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": "racks"}})
        yield made


def gang(name: str) -> Json:
    """A Job of three pods, which have to be on one rack."""
    made = job(name, namespace=TEAM, queue="main", pods=3)
    made["spec"] |= {"completionMode": "Indexed", "backoffLimit": 9}
    made["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = RACK
    return made


def running(cluster: Cluster) -> dict[int, tuple[str, str]]:
    """Node and uid of each pod of the gang that runs, by its index."""
    found = {}
    for pod in cluster.api.items(
        resource_path("v1", "pods", namespace=TEAM), labels="batch.kubernetes.io/job-name=gang"
    ):
        meta = pod["metadata"]
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in meta:
            found[int(meta["labels"][INDEX])] = pod["spec"]["nodeName"], meta["uid"]
    return found


def workload_of(cluster: Cluster, name: str) -> Json:
    """The Workload of a Job; empty until it is made."""
    found = cluster.api.items(resource_path(GROUP, "workloads", namespace=TEAM))
    return next((each for each in found if each["metadata"]["ownerReferences"][0]["name"] == name), {})


def wait_nodes(cluster: Cluster, wanted: dict[int, str]) -> None:
    """Until the pods of the gang run on these nodes, by their index."""

    def nodes() -> dict[int, str]:
        return {index: node for index, (node, _) in running(cluster).items()}

    wait_until(lambda: nodes() == wanted, timeout=WAIT, describe=lambda: f"pods run on {nodes()}, not on {wanted}")


def test_its_pods_keep_their_places(cluster: Cluster) -> None:
    """Not a pod is started again. A pod that is deleted comes back to its node, one of a failed node goes to the free
    node of the rack, and the next gang waits, because the rack is full."""
    api = cluster.api
    api.create(gang("gang"))
    wait_until(lambda: len(running(cluster)) == 3, timeout=WAIT, describe=lambda: f"under Kueue {running(cluster)} run")
    before, workload = running(cluster), workload_of(cluster, "gang")
    nodes = {index: node for index, (node, _) in before.items()}
    assert {node[:2] for node in nodes.values()} == {"r1"}
    guide = cluster.guide("1. Look")
    guide.do()
    cluster.set_values()
    guide.do()
    install(cluster)
    cluster.start_turnstile()
    api.create(gang("late"))
    wait_until(
        lambda: condition(workload_of(cluster, "late"), "QuotaReserved").get("status") == "False",
        timeout=WAIT,
        describe=lambda: f"late: {workload_of(cluster, 'late')}",
    )
    assert "topology" in condition(workload_of(cluster, "late"), "QuotaReserved")["message"]
    assert running(cluster) == before
    now = workload_of(cluster, "gang")
    assert now["metadata"]["uid"] == workload["metadata"]["uid"]
    assert now["status"]["admission"] == workload["status"]["admission"]

    for pod in api.items(resource_path("v1", "pods", namespace=TEAM), labels=f"{INDEX}=1"):
        api.delete(resource_path("v1", "pods", pod["metadata"]["name"], namespace=TEAM))
    wait_until(
        lambda: running(cluster).get(1, before[1]) != before[1], timeout=WAIT, describe=lambda: "no new pod runs"
    )
    wait_nodes(cluster, nodes)
    (free,) = {f"r1-{number}" for number in range(4)} - set(nodes.values())
    taints = [{"key": "example.com/maintenance", "effect": "NoExecute"}]
    api.patch(resource_path("v1", "nodes", nodes[2]), {"spec": {"taints": taints}})
    wait_nodes(cluster, {**nodes, 2: free})
    assert running(cluster)[0] == before[0]
