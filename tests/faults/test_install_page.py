"""docs/install.md, read from top to bottom on an empty cluster: each command is run as it stands there.

Names in capitals get values. `docker`, for which there is no daemon here, is a program that notes how it was called;
tests/image builds the image.
"""

import contextlib
import os
import re
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.client import resource_path, wait_until
from testbed.installation import NAMESPACE, RELEASE, ROOT
from testbed.ports import lent_port
from tests.cluster.reader import Reader
from tests.documents import steps
from tests.faults.changes import Bed, bed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]

OUTSIDE = "turnstile serve --role all"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What a checkout has, without being one: the page writes files."""
    for name in ("charts", ".venv", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/docker.log\n')
    docker.chmod(0o755)
    return tmp_path


def reader(made: Bed, directory: Path) -> Reader:
    """The page, from its beginning."""
    return Reader("../install.md", made.cp, directory=directory, programs=[directory / "bin"])


def test_install_upgrade_and_leave(directory: Path) -> None:
    """In the order of the page, but for the section about running it outside the cluster."""
    page: Reader | None = None

    def install(made: Bed) -> None:
        nonlocal page
        page = reader(made, directory)
        page.do(REGISTRY="registry.example.com")
        page.do(REGISTRY="registry.example.com")  # preflight would end with 1 if there were a danger
        page.do(REGISTRY="registry.example.com")

    with bed(install, nodes=0) as made:
        assert page is not None
        api = made.cp.api
        page.see(r"Phase: +Succeeded", **{"system --logs": "system"})  # no kubelet here shows logs
        page.do(**{"MY-TEAM": made.elsewhere})
        page.do(REGISTRY="registry.example.com")
        page.do()
        assert api.find(made.webhooks("mutating")) is None
        page.do(**{"CONTROL-PLANE-CIDR": "192.0.2.0/24"})
        assert api.find(made.webhooks("mutating")) is not None
        page.skip("yaml")
        page.skip("yaml")
        page.do(**{"AUTHORITY.crt": str(made.cp.authority)})
        made.rolled_out()
        page.do()
        made.rolled_out()
        page.do(**{"MY-TEAM": made.elsewhere, "QUOTA-OWNERS": "owners"})
        page.skip("")
        page.do()
        assert api.find(made.webhooks("mutating")) is None
        released = f"app.kubernetes.io/instance={RELEASE}"
        pods = resource_path("v1", "pods", namespace=NAMESPACE)
        # No review can come any more, so no webhook pod leaves idle connections to the API server for 95 s.
        wait_until(lambda: not api.items(pods, labels=released), timeout=60, describe=made.kubelet.describe)
        page.do()
        page.do()
        page.end()
        api.wait_gone(resource_path("v1", "namespaces", NAMESPACE), timeout=60)
    calls = (directory / "docker.log").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["build", "push", "run"]


def test_run_it_outside_the_cluster(directory: Path) -> None:
    """The commands of that section, in a shell that goes on serving: a Job of a managed namespace is suspended."""
    (text,) = (text for _, text in steps(ROOT / "docs" / "install.md") if OUTSIDE in text)
    port = lent_port()
    for word, name in {"HOST": "127.0.0.1", "9443": str(port), "KUBECONFIG": "outside.kubeconfig"}.items():
        text = re.sub(rf"\b{word}\b", name, text)
    text = text.replace("0.0.0.0", "127.0.0.1")
    with ControlPlane(components=["etcd", "kube-apiserver", "kube-controller-manager"]) as cp:
        tools = cp.directory / "tools"
        tools.mkdir()
        for name in ("helm", "kubectl"):
            (tools / name).symlink_to(cp.tools[name])
        environment = {
            "HOME": str(cp.directory / "home"),
            "KUBECONFIG": str(cp.kubeconfig()),
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        shell = cp.start_process("page", ["bash", "-euo", "pipefail", "-c", text], env=environment, cwd=directory)
        namespace = cp.namespace("team", labels={"kueue-managed": "true"})
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "held", "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        }

        def held() -> bool:
            shell.require_running()
            with contextlib.suppress(Exception):  # the webhooks are there before the process answers
                return bool(cp.api.create(body, dry_run=True)["spec"].get("suspend"))
            return False

        wait_until(held, timeout=60, describe=lambda: shell.tail(30))
