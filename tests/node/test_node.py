"""The node itself: that what the other tests rely on is real."""

import urllib.request

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from tests.node.images import BUSYBOX

SERVE = "echo hello > /index.html; echo serving; exec /bin/busybox httpd -f -p 8080"


@pytest.fixture
def server(control_plane: ControlPlane, namespace: str) -> Json:
    """A pod that serves one page on port 8080, with a probe and a Service of port 80; ready."""
    cp = control_plane
    container = {
        "name": "server",
        "image": BUSYBOX,
        "command": ["/bin/busybox", "sh", "-c", SERVE],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1},
    }
    cp.api.create({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "server", "namespace": namespace, "labels": {"app": "server"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    })  # fmt: skip
    cp.api.create({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server", "namespace": namespace},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    })  # fmt: skip
    return cp.api.wait_for(
        resource_path("v1", "pods", "server", namespace=namespace),
        lambda pod: condition(pod, "Ready").get("status") == "True",
        timeout=90,
    )


def test_a_pod_serves(control_plane: ControlPlane, server: Json, namespace: str) -> None:
    """Its log can be read and commands run in it; its Service answers at the cluster IP to a program of the node."""
    cp = control_plane
    assert cp.kubectl("logs", "-n", namespace, "server") == "serving\n"
    assert cp.kubectl("exec", "-n", namespace, "server", "--", "/bin/busybox", "cat", "/index.html") == "hello\n"
    address = cp.api.get(resource_path("v1", "services", "server", namespace=namespace))["spec"]["clusterIP"]

    def answer() -> bytes | None:
        try:
            with urllib.request.urlopen(f"http://{address}", timeout=5) as page:
                return bytes(page.read())
        except OSError:  # kube-proxy has still to write the rules
            return None

    assert wait_until(answer, timeout=30, describe=lambda: f"{address} does not answer") == b"hello\n"
