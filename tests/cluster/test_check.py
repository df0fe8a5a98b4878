"""`turnstile check`, which `helm test` runs, with the rights of the chart's own account for it.

A control plane of its own, because its controller stops.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.installation import CHART, NAMESPACE, RELEASE, Installation
from testbed.manifests import documents
from testbed.processes import Process
from tests.cluster.versions import wait_served

pytestmark = pytest.mark.cluster

TURNSTILE = Path(sys.executable).with_name("turnstile")
ACCOUNT = f"{RELEASE}-test"


class Checked:
    """A release, the process that serves it, and the check as the pod of the chart's test runs it."""

    def __init__(self, cp: ControlPlane) -> None:
        self.cp = cp
        installation = Installation(cp, visibility=True)
        installation.install()
        self.process: Process = installation.start()
        installation.wait_ready(self.process)
        wait_served(cp.api)
        rendered = documents(
            cp.helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "-s", "templates/tests/check.yaml")
        )
        for manifest in rendered:
            if manifest["kind"] != "Pod":
                cp.api.create(manifest)
        (pod,) = [each for each in rendered if each["kind"] == "Pod"]
        self.arguments: list[str] = pod["spec"]["containers"][0]["args"]

    def check(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run what the pod says, with the rights of its account."""
        kubeconfig = self.cp.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        line = [TURNSTILE, *self.arguments, *arguments, "--kubeconfig", kubeconfig]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def checked() -> Iterator[Checked]:
    """Turnstile on a control plane of its own."""
    with ControlPlane(components=["etcd", "kube-apiserver", "kube-controller-manager"]) as cp:
        yield Checked(cp)


def test_a_release_that_works_passes_and_then_each_part_that_stopped_is_named(checked: Checked) -> None:
    """The same parts are listed in both cases; the exit code is 1 as soon as one does not work."""
    answer = checked.check()
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert [line.split()[0] for line in answer.stdout.splitlines()] == ["ok"] * 6, answer.stdout
    checked.process.kill()
    answer = checked.check("--timeout", "0")
    assert answer.returncode == 1
    assert "FAILED leader: " in answer.stdout
    assert "FAILED mutating webhook: 500 InternalError" in answer.stdout
    assert "FAILED validating webhook: " in answer.stdout
