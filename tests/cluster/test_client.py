"""`from turnstile import Client`, and `turnstile run`, on a real API server with Turnstile."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.components import EXIT_CODE, RUN_FOR
from tests.cluster.scenario import Scenario
from turnstile import AsyncClient, Client, State, container_job
from turnstile.api.errors import InvalidValue

pytestmark = pytest.mark.cluster

TURNSTILE = Path(sys.executable).with_name("turnstile")


@pytest.fixture
def client(control_plane: ControlPlane, scenario: Scenario) -> "Client":
    """A client of the test's namespace, with one CPU of quota in the LocalQueue `main`."""
    scenario.queue("main", {scenario.flavor("default"): {"cpu": "1", "memory": "100Gi"}})
    return Client(kubeconfig=str(control_plane.kubeconfig()), namespace=scenario.namespace)


def job(seconds: str = "1h", code: int = 0) -> dict[str, object]:
    """A Job of one CPU whose pod runs for so long."""
    annotations = {RUN_FOR: seconds, EXIT_CODE: str(code)}
    return container_job("busybox", ["true"], annotations=annotations)


def test_a_job_is_submitted_watched_explained_and_cancelled(client: Client) -> None:
    """The second waits for the quota of the first, says so, and starts when that is cancelled."""
    with client:
        first = client.submit(job(), queue="main")
        assert client.wait(first, until=State.ADMITTED, timeout=30).state is State.ADMITTED
        second = client.submit(job("1s"), queue="main")
        states = client.watch(second)
        seen = next(state for state in states if "insufficient" in state.message)
        assert seen.state is State.WAITING
        assert "cpu" in client.explain(second)
        client.cancel(first)
        assert [each.state for each in states][-1] is State.SUCCEEDED
        assert client.exit_code(second) == 0
        assert client.standing(first).state is State.GONE
        client.cancel(first)


def test_it_works_in_a_loop_that_runs(client: Client, control_plane: ControlPlane) -> None:
    """As in a notebook; and AsyncClient does the same without a thread."""

    async def notebook() -> None:
        with client:
            made = client.submit(job("1s"), queue="main")
        async with AsyncClient(kubeconfig=str(control_plane.kubeconfig()), namespace=made.namespace) as other:
            assert (await other.wait(made, timeout=60)).state is State.SUCCEEDED
            with pytest.raises(InvalidValue, match="no such kind in batch/v1"):
                await other.submit({"apiVersion": "batch/v1", "kind": "Jobb", "metadata": {"name": "x"}})

    asyncio.run(notebook())


def test_a_wait_ends_in_time(client: Client) -> None:
    """With TimeoutError, and the job is left alone."""
    with client:
        made = client.submit(job(), queue="main")
        with pytest.raises(TimeoutError):
            client.wait(made, timeout=1)
        client.cancel(made)


def test_run_passes_the_exit_status_on(client: Client, control_plane: ControlPlane) -> None:
    """And says on the way what the Job waits for."""
    client.close()
    for code in (0, 3):
        options = ["--kubeconfig", control_plane.kubeconfig(), "-n", client.namespace, "-q", "main"]
        options += ["--image", "busybox", "--annotation", f"{RUN_FOR}=1s", "--annotation", f"{EXIT_CODE}={code}"]
        answer = subprocess.run(
            [TURNSTILE, "run", *options, "--", "true"], capture_output=True, text=True, check=False, timeout=90
        )
        assert answer.returncode == code, answer.stderr
        assert "admitted: " in answer.stderr
        assert ("succeeded" if code == 0 else "failed: ") in answer.stderr
