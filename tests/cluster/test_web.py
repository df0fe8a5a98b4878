"""`turnstile web` on a real cluster: it shows what Turnstile does, with the rights of its reader."""

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testbed import ControlPlane
from testbed.client import wait_until
from tests.cluster.scenario import Scenario
from tests.documents import ROOT, steps

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "tasks" / "page.md"


def told(number: int, **names: str) -> list[str]:
    """The command of the page with that number, with these names in the place of those that the page uses."""
    command = steps(PAGE)[number][1]
    for word, name in names.items():
        command = command.replace(word.replace("_", "-"), name)
    turnstile, *arguments = shlex.split(command)
    return [str(Path(sys.executable).with_name(turnstile)), *arguments]


class Reader:
    """A browser without a screen: it keeps the cookie that the printed address gave it."""

    def __init__(self, address: str) -> None:
        found = urlsplit(address)
        assert found.hostname
        assert found.port
        self._host, self._port = found.hostname, found.port
        self._cookie = ""
        status, _ = self.get(f"/?{found.query}")
        assert status == 303

    def get(self, path: str) -> tuple[int, str]:
        """Status and words of a page."""
        connection = HTTPConnection(self._host, self._port, timeout=30)
        try:
            connection.request("GET", path, headers={"Cookie": self._cookie})
            answer = connection.getresponse()
            self._cookie = (answer.getheader("set-cookie") or self._cookie).partition(";")[0]
            return answer.status, " ".join(re.sub(r"<[^>]+>", " ", answer.read().decode()).split())
        finally:
            connection.close()

    def sees(self, path: str, *sentences: str) -> None:
        """The page says all this, soon."""
        said = ""

        def look() -> bool:
            nonlocal said
            said = self.get(path)[1]
            return all(each in said for each in sentences)

        wait_until(look, timeout=30, every=0.3, describe=lambda: f"{path} should say {sentences}, but says\n{said}")


@pytest.fixture
def open_page() -> Iterator[Callable[..., Reader]]:
    """`open_page(command, kubeconfig)` starts the command, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(command: list[str], kubeconfig: Path) -> Reader:
        process = subprocess.Popen(
            [*command, "--port", "0", "--kubeconfig", kubeconfig], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        return Reader(process.stdout.readline().strip())

    yield begin
    for process in started:
        process.terminate()
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()


class TestWhatIsShown:
    """A queue of 2 cpus, in which one Job runs and another waits."""

    @pytest.fixture
    def waits(self, scenario: Scenario) -> str:
        """The name of the ClusterQueue."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": "2"}})
        scenario.job("runs", queue="team", cpu="1")
        scenario.wait_admitted("runs")
        scenario.job("waits", queue="team", cpu="2")
        scenario.wait_pending("waits")
        return queue

    def test_to_an_administrator(
        self, control_plane: ControlPlane, scenario: Scenario, waits: str, open_page: Callable[..., Reader]
    ) -> None:
        """The queue, its line, the explanation, and the leader; then the change of a quota."""
        reader = open_page(told(0), control_plane.kubeconfig())
        name = scenario.workload_of("waits")["metadata"]["name"]
        reader.sees(f"/?q={waits}", f"{waits} 1 1 cpu", "1 / 2")
        reader.sees(f"/clusterqueues/{waits}", "1 Workload, in the order", "1 waits Job", "Waits for 1 more CPU on")
        reader.sees(f"/workloads/{scenario.namespace}/{name}", "1 free", "What would start it now")
        reader.sees("/health", "Leader State renews", "clusterqueues.kueue.x-k8s.io synced")
        scenario.api.delete(f"/apis/batch/v1/namespaces/{scenario.namespace}/jobs/runs")
        reader.sees(f"/clusterqueues/{waits}", "Nothing waits here.")

    def test_to_a_user_of_one_namespace(
        self, control_plane: ControlPlane, scenario: Scenario, waits: str, open_page: Callable[..., Reader]
    ) -> None:
        """The Workloads of that namespace, and what may not be read."""
        user = f"user-{scenario.namespace}"
        rules = [
            {
                "apiGroups": ["kueue.x-k8s.io"],
                "resources": ["workloads", "localqueues"],
                "verbs": ["get", "list", "watch"],
            }
        ]
        where = {"namespace": scenario.namespace}
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        scenario.create({**kind, "kind": "Role", "metadata": {"name": "reader", **where}, "rules": rules})
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "reader", **where}, "subjects": [subject], "roleRef": role}
        scenario.create({**kind, "kind": "RoleBinding", **binding})
        reader = open_page(told(2, team_a=scenario.namespace), control_plane.kubeconfig(user))
        reader.sees("/", "ClusterQueue: you may not list and watch them", "Quotas cannot be shown")
        reader.sees("/workloads", "2 jobs", "Waits for 1 more CPU on")


def test_with_the_flight_recorder(
    control_plane: ControlPlane, scenario: Scenario, recorder: Path, open_page: Callable[..., Reader]
) -> None:
    """A Job that is gone: its Workload is found, what happened to it is told, and what it held is counted."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": "2"}})
    scenario.job("brief", queue="team", cpu="1")
    scenario.wait_started("brief")
    name = scenario.workload_of("brief")["metadata"]["name"]
    scenario.delete_job("brief")
    reader = open_page(told(1, FILE=str(recorder)), control_plane.kubeconfig())
    reader.sees(f"/workloads?q={scenario.namespace}", "No longer there 1 job", "brief Job")
    path = f"/workloads/{scenario.namespace}/{name}"
    reader.sees(path, "It is not there any more.", "Deleted", f"in ClusterQueue {queue}: holds 1 CPU", "Created")
    reader.sees("/usage?span=24h&resource=cpu", "cpu held over time", queue)
    assert f",{queue},cpu,core-hours,0." in reader.get("/usage.csv?span=24h")[1]


def test_what_cannot_be_served(control_plane: ControlPlane) -> None:
    """One sentence and exit code 2: a port in use, a file that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = complaint("--kubeconfig", control_plane.kubeconfig(), "--port", str(port))
    assert (code, said.strip()) == (2, f"error: --port {port}: cannot be used: [Errno 98] Address already in use")
    code, said = complaint("--kubeconfig", "/nonexistent")
    assert code == 2
    assert "no such file" in said


def complaint(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and standard error of a command that ends by itself."""
    done = subprocess.run([*told(0), *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr
