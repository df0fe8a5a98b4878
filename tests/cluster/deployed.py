"""The chart installed in a control plane of its own, and both roles as its Deployments start them.

No kubelet runs pods here, so what the rendered Deployments say is started as processes: of this checkout (the fixture
`deployed`, one a session), or of the image (tests/image). Every request is in the audit log. A test that uses them
removes what it makes.
"""

import http.client
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.client import Json, unverified_tls, wait_until
from testbed.installation import CHART, NAMESPACE
from testbed.manifests import documents
from testbed.ports import lent_port
from testbed.processes import Process
from tests.cluster.versions import wait_served
from tests.shared import Shared

ACCOUNTS = tuple(f"system:serviceaccount:{NAMESPACE}:turnstile-{role}" for role in ("controller", "webhook"))


@dataclass(frozen=True, slots=True)
class Replica:
    """One process of a Deployment: how it was started, and where its probes are."""

    process: Process
    container: Json
    port: int
    metrics_port: int

    def probe(self, kind: str) -> str:
        """Ask as the kubelet would (it checks no certificate); empty when the probe succeeds."""
        target = self.container[kind]["httpGet"]
        return self.ask(target["path"], scheme=target.get("scheme", "HTTP"))

    def scrape(self, token: str = "") -> int:
        """Ask for /metrics where the ServiceMonitor looks, with this token if it is given: the status."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.metrics_port, context=unverified_tls(), timeout=3)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status
        finally:
            connection.close()

    def ask(self, path: str, *, scheme: str) -> str:
        """Empty when this path is answered as a probe wants it, else what came."""
        if scheme == "HTTPS":
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=unverified_tls(), timeout=3)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return "" if 200 <= answer.status < 400 else f"{answer.status} {answer.read(200)!r}"
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Deployed:
    """A control plane that writes down every request, with the two roles in two processes on it."""

    cp: ControlPlane
    controller: Replica
    webhook: Replica

    @property
    def replicas(self) -> tuple[Replica, Replica]:
        """Both."""
        return self.controller, self.webhook

    def requests(self) -> list[Json]:
        """What the two accounts asked for, from the audit log; most of its lines are of others, and large."""
        lines = self.cp.audit_log.read_text().splitlines()
        entries = (json.loads(line) for line in lines if any(account in line for account in ACCOUNTS))
        return [entry for entry in entries if entry["user"]["username"] in ACCOUNTS]

    def forbidden(self) -> set[str]:
        """What they were not allowed."""
        return {
            f"{entry['user']['username']}: {entry['verb']} {entry['requestURI']}"
            for entry in self.requests()
            if entry.get("responseStatus", {}).get("code") == 403
        }


Start = Callable[[ControlPlane, Json, list[str]], Process]
"""Starts what the pod of a rendered Deployment says, with the rights of its service account.

The list has the arguments of its container as the kubelet would give them, with 127.0.0.1 as the address."""


@pytest.fixture(scope="session")
def deployed(shared: Shared) -> Deployed:
    """Both roles as processes of this checkout."""
    return shared.enter("deployed", deploy(_from_the_checkout))


@contextmanager
def deploy(start: Start) -> Iterator[Deployed]:
    """The chart installed with the webhook at a port of this host; one process a role, and one node."""
    health_port, webhook_port, metrics_port, pending_port = (lent_port() for _ in range(4))
    ports = f"controller.healthPort={health_port},controller.metricsPort={metrics_port}"
    ports += f",visibility.port={pending_port},visibility.url=https://localhost:{pending_port}"
    values = ("--set", f"webhook.url=https://127.0.0.1:{webhook_port},{ports}")
    with ControlPlane(audit=True) as cp:
        cp.helm("install", "turnstile", str(CHART), "-n", NAMESPACE, "--create-namespace", *values)
        controller = _start(start, cp, "controller", health_port, metrics_port, *values)
        # With a URL the chart renders no webhook Deployment: take the one it would render without.
        webhook = _start(start, cp, "webhook", webhook_port, webhook_port, "--set", f"webhook.port={webhook_port}")
        cp.add_node("plain", cpu=64, memory="256Gi")
        for replica in (controller, webhook):
            wait_until(
                lambda r=replica: not r.probe("readinessProbe"),
                timeout=30,
                describe=lambda r=replica: f"not ready: {r.probe('readinessProbe')}\n{r.process.tail(30)}",
            )
        wait_served(cp.api)
        yield Deployed(cp, controller, webhook)


def _start(start: Start, cp: ControlPlane, role: str, port: int, metrics_port: int, *values: str) -> Replica:
    """Start what the rendered Deployment of a role says."""
    rendered = cp.helm("template", "turnstile", str(CHART), "-n", NAMESPACE, *values)
    (deployment,) = [
        document
        for document in documents(rendered)
        if document["kind"] == "Deployment" and document["metadata"]["name"] == f"turnstile-{role}"
    ]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    arguments = [
        argument.replace("$(POD_NAMESPACE)", NAMESPACE).replace("0.0.0.0", "127.0.0.1")
        for argument in container["args"]
    ]
    return Replica(start(cp, pod, arguments), container, port, metrics_port)


def _from_the_checkout(cp: ControlPlane, pod: Json, arguments: list[str]) -> Process:
    kubeconfig = cp.service_account_kubeconfig(NAMESPACE, pod["serviceAccountName"])
    program = Path(sys.executable).with_name("turnstile")
    return cp.start_process(pod["containers"][0]["name"], [program, *arguments, "--kubeconfig", kubeconfig])
