"""The two roles as the chart's Deployments start them: their arguments, their probes, their service accounts' rights.

No kubelet runs pods here, so the test reads the rendered Deployments and starts what they say as processes.
"""

import http.client
import json
import re
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import ControlPlane
from testbed.client import condition, wait_until
from testbed.ports import ReservedPort
from testbed.processes import Process

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "charts" / "turnstile"
NAMESPACE = "turnstile-system"
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


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of a Deployment: how it was started, and where its probes are."""

    process: Process
    container: dict[str, Any]
    port: int

    def probe(self, kind: str) -> str:
        """Ask as the kubelet would (it checks no certificate); empty when the probe succeeds."""
        target = self.container[kind]["httpGet"]
        if target.get("scheme") == "HTTPS":
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=tls, timeout=3)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3)
        try:
            connection.request("GET", target["path"])
            answer = connection.getresponse()
            return "" if 200 <= answer.status < 400 else f"{answer.status} {answer.read(200)!r}"
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Install:
    """A control plane with the chart and both roles on it."""

    cp: ControlPlane
    controller: Replica
    webhook: Replica


@pytest.fixture(scope="module")
def install() -> Iterator[Install]:
    """The chart installed with the webhook at a port of this host; one process a role."""
    with ReservedPort() as health:
        webhook_port = free_port()
        values = ("--set", f"webhook.url=https://127.0.0.1:{webhook_port},controller.healthPort={health.number}")
        health.release()
        with ControlPlane(components=["etcd", "kube-apiserver", "kube-controller-manager"], audit=True) as cp:
            cp.helm("install", "turnstile", str(CHART), "-n", NAMESPACE, "--create-namespace", *values)
            controller = start(cp, "controller", health.number, *values)
            # With a URL the chart renders no webhook Deployment: take the one it would render without.
            webhook = start(cp, "webhook", webhook_port, "--set", f"webhook.port={webhook_port}")
            installed = Install(cp, controller, webhook)
            for replica in (controller, webhook):
                wait_until(
                    lambda r=replica: not r.probe("readinessProbe"),
                    timeout=30,
                    describe=lambda r=replica: f"not ready: {r.probe('readinessProbe')}\n{r.process.tail(30)}",
                )
            yield installed


def free_port() -> int:
    """A port nobody listens on."""
    with ReservedPort() as port:
        return port.number


def start(cp: ControlPlane, role: str, port: int, *values: str) -> Replica:
    """Start what the rendered Deployment of a role says, with a token of its service account."""
    rendered = cp.helm("template", "turnstile", str(CHART), "-n", NAMESPACE, *values)
    (deployment,) = [
        document
        for document in yaml.safe_load_all(rendered)
        if document and document["kind"] == "Deployment" and document["metadata"]["name"] == f"turnstile-{role}"
    ]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = [
        argument.replace("$(POD_NAMESPACE)", NAMESPACE).replace("0.0.0.0", "127.0.0.1")
        for argument in container["args"]
    ]
    kubeconfig = cp.service_account_kubeconfig(NAMESPACE, pod["serviceAccountName"])
    program = Path(sys.executable).with_name("turnstile")
    process = cp.start_process(role, [program, *arguments, "--kubeconfig", kubeconfig])
    return Replica(process, container, port)


def refused(cp: ControlPlane) -> set[str]:
    """What Turnstile's service accounts asked for and were forbidden, from the audit log."""
    entries = (json.loads(line) for line in cp.audit_log.read_text().splitlines())
    return {
        f"{entry['user']['username']}: {entry['verb']} {entry['requestURI']}"
        for entry in entries
        if entry["user"]["username"].startswith(f"system:serviceaccount:{NAMESPACE}:")
        and entry.get("responseStatus", {}).get("code") == 403
    }


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_succeed(install: Install, probe: str) -> None:
    """All probes of both Deployments are answered."""
    assert install.controller.probe(probe) == ""
    assert install.webhook.probe(probe) == ""


def test_metrics_are_where_the_service_monitor_looks(install: Install) -> None:
    """Both roles answer /metrics on the port of their probes."""
    for replica in (install.controller, install.webhook):
        target = {"readinessProbe": {"httpGet": {**replica.container["readinessProbe"]["httpGet"], "path": "/metrics"}}}
        assert Replica(replica.process, target, replica.port).probe("readinessProbe") == ""


def test_the_two_roles_together_keep_quota(install: Install) -> None:
    """A Job without a queue label gets the default queue and runs; the next one waits; nothing was forbidden."""
    cp = install.cp
    namespace = cp.namespace(labels={"kueue-managed": "true"})
    cp.api.apply_yaml(QUEUES, namespace=namespace)
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues/default"
    cp.api.wait_for(path, lambda queue: condition(queue, "Active").get("status") == "True", describe="Active")
    first = cp.api.path_of(cp.api.create(job("first", namespace)))
    running = cp.api.wait_for(first, lambda found: not found["spec"]["suspend"], describe="resumed")
    second = cp.api.path_of(cp.api.create(job("second", namespace)))
    assert running["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
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
    assert refused(cp) == set()


def job(name: str, namespace: str) -> dict[str, Any]:
    """A Job that asks for the whole quota and names no queue."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
