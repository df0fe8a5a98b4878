"""The two roles as the chart's Deployments start them: arguments, probes, what their service accounts may do."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.client import condition, wait_until
from testbed.installation import MANAGED, metrics_token
from tests.cluster.deployed import Deployed
from tests.cluster.scenario import QUEUE

pytestmark = pytest.mark.cluster

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: plain, resources: [{name: cpu, nominalQuota: "1"}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: default}
spec: {clusterQueue: team}
"""


@pytest.fixture
def namespace(deployed: Deployed) -> Iterator[str]:
    """A managed namespace whose default queue has one CPU; queue and jobs go with the test.

    The namespace stays: in one that is on its way out events are refused, and tests look for refusals.
    """
    api = deployed.cp.api
    name = deployed.cp.namespace(labels=MANAGED)
    made = api.apply_yaml(QUEUES, namespace=name)
    yield name
    api.delete(f"/apis/batch/v1/namespaces/{name}/jobs")
    for path in map(api.path_of, reversed(made)):
        api.delete(path)
        api.wait_gone(path, timeout=30)  # the next test makes them again


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_succeed(deployed: Deployed, probe: str) -> None:
    """All probes of both Deployments are answered."""
    assert deployed.controller.probe(probe) == ""
    assert deployed.webhook.probe(probe) == ""


def test_metrics_are_for_those_who_may_read_them(deployed: Deployed) -> None:
    """Without a token 401, with one of another account 403; with that of Prometheus they are shown, by both roles."""
    stranger = deployed.cp.service_account_token("default", "default")
    prometheus = metrics_token(deployed.cp)
    for replica in deployed.replicas:
        assert [replica.scrape(token) for token in ("", "nonsense", stranger, prometheus)] == [401, 401, 403, 200]
    assert "404" in deployed.controller.ask("/metrics", scheme="HTTP")  # a token would be sent in the clear


def test_the_two_roles_together_keep_quota(deployed: Deployed, namespace: str) -> None:
    """A Job without a queue label gets the default queue and runs; the next one waits; nothing was forbidden."""
    cp = deployed.cp
    wait_until(
        lambda: cp.api.create(job("first", namespace), dry_run=True)["metadata"].get("labels", {}).get(QUEUE),
        timeout=15,
        describe=lambda: "the webhook, a process of its own, does not know the new default queue",
    )
    first = cp.api.path_of(cp.api.create(job("first", namespace)))
    running = cp.api.wait_for(first, lambda found: not found["spec"]["suspend"], describe="resumed")
    second = cp.api.path_of(cp.api.create(job("second", namespace)))
    assert running["metadata"]["labels"][QUEUE] == "default"
    (waiting,) = [
        wait_until(
            lambda: next(
                (
                    found
                    for found in cp.api.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads")
                    if found["metadata"]["ownerReferences"][0]["name"] == "second"
                    and condition(found, "QuotaReserved").get("status") == "False"
                ),
                None,
            ),
            timeout=15,
            describe=lambda: "the second Job's Workload does not say that it waits",
        )
    ]
    assert re.search("insufficient .*quota for cpu in flavor plain", condition(waiting, "QuotaReserved")["message"])
    assert cp.api.get(second)["spec"]["suspend"] is True
    cp.api.delete(first)
    cp.api.wait_for(second, lambda found: not found["spec"]["suspend"], describe="resumed when the first is gone")
    assert deployed.forbidden() == set()


def job(name: str, namespace: str) -> dict[str, Any]:
    """A Job that asks for the whole quota and names no queue."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def test_the_lease_and_all_other_requests_have_their_priority_levels(deployed: Deployed, namespace: str) -> None:
    """The API server says in which flow it has put what the two processes asked for."""
    api = deployed.cp.api
    wait_until(
        lambda: api.create(job("queued", namespace), dry_run=True)["metadata"].get("labels", {}).get(QUEUE),
        timeout=15,
        describe=lambda: "the webhook does not know the new default queue",
    )
    api.create(job("queued", namespace))
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/queued"
    api.wait_for(path, lambda found: not found["spec"].get("suspend"), timeout=60, describe="admitted")

    def counted() -> dict[tuple[str, str], float]:
        lines = api.request("GET", "/metrics").splitlines()  # several megabytes, of which few are read
        of_family = (line for line in lines if "apiserver_flowcontrol_dispatched_requests_total" in line)
        return {
            (each.labels["flow_schema"], each.labels["priority_level"]): each.value
            for family in text_string_to_metric_families("\n".join(of_family) + "\n")
            for each in family.samples
            if each.labels["flow_schema"].startswith("turnstile")
        }

    before = counted()
    assert before.keys() == {
        ("turnstile-leader-election", "leader-election"),
        ("turnstile-requests", "workload-high"),
    }
    lease = ("turnstile-leader-election", "leader-election")
    wait_until(lambda: counted()[lease] > before[lease], timeout=20, every=1, describe=lambda: "no renewal is counted")
