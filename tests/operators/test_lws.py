"""LeaderWorkerSet's real controller does on the bed what it does on a cluster; nothing of ours runs in these
namespaces."""

import pytest

from testbed import Api
from testbed.client import Json, condition
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("lws")

GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"


@pytest.fixture
def serving(namespace: str) -> Json:
    """Two groups, each of a leader and two workers."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serving", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": {"containers": [container]}}},
        },
    }


def test_its_groups_run(api: Api, namespace: str, serving: Json) -> None:
    """The operator's webhook labels each pod with its group; when all are ready the LeaderWorkerSet is Available."""
    path = api.path_of(api.create(serving))
    wait_running(api, namespace, {"0": 3, "1": 3}, by=GROUP_LABEL)
    api.wait_for(path, lambda lws: condition(lws, "Available").get("status") == "True", timeout=30)


def test_it_is_scaled_to_zero_and_back(api: Api, namespace: str, serving: Json) -> None:
    """All pods go, and come again."""
    path = api.path_of(api.create(serving))
    wait_running(api, namespace, {"0": 3, "1": 3}, by=GROUP_LABEL)
    api.patch(path, {"spec": {"replicas": 0}})
    wait_no_pods(api, namespace)
    api.patch(path, {"spec": {"replicas": 1}})
    wait_running(api, namespace, {"0": 3}, by=GROUP_LABEL)
