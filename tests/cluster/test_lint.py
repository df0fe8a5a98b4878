"""What kubectl prints of a Job that can never be admitted, and what `turnstile lint` says of the same cluster."""

import json
import subprocess

import pytest

from testbed import ControlPlane
from testbed.client import Json, wait_until
from tests.cluster.command import turnstile
from tests.cluster.scenario import Scenario, job

pytestmark = pytest.mark.cluster


def kubectl(control_plane: ControlPlane, *arguments: str, text: str) -> str:
    """What kubectl prints as warnings and errors."""
    command = [control_plane.tools["kubectl"], "--kubeconfig", control_plane.kubeconfig(), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60).stderr


def lint(control_plane: ControlPlane, *arguments: str, text: str = "") -> tuple[int, list[Json]]:
    """Exit code and findings of the command."""
    where = ("--live", "--kubeconfig", control_plane.kubeconfig(), "-o", "json")
    code, out, err = turnstile("lint", *where, *arguments, text=text)
    assert code in {0, 1}, err
    return code, json.loads(out)


def test_a_job_that_never_fits(control_plane: ControlPlane, scenario: Scenario) -> None:
    """kubectl warns of it, and lint says the same before and after it is applied."""
    flavor = scenario.flavor("plain")
    queue = scenario.queue("team", {flavor: {"cpu": "2"}})
    text = json.dumps(job("vast", namespace=scenario.namespace, queue="team", cpu="3"))
    sentence = (
        f"the job can never start as it is: its pod asks for 3 CPUs on {flavor} nodes, where ClusterQueue {queue} can"
        " have 2 at most"
    )
    code, (finding,) = lint(control_plane, "-f", "-", text=text)
    assert (code, finding["rule"], finding["sentence"]) == (1, "NeverFits", sentence)

    def warned() -> str:
        return kubectl(control_plane, "create", "--dry-run=server", "-f", "-", text=text)

    wait_until(lambda: f"Warning: {sentence}\n" in warned(), timeout=20, describe=warned)
    assert kubectl(control_plane, "create", "-f", "-", text=text).count("Warning: ") == 1
    assert "> maximum capacity (2)" in scenario.wait_pending("vast")["message"]
    _, found = lint(control_plane)
    name = scenario.workload_of("vast")["metadata"]["name"]
    of_workload = [each for each in found if each["object"] == f"{scenario.namespace}/{name}"]
    assert [(each["rule"], each["sentence"]) for each in of_workload] == [("NeverFits", sentence)]
    nothing = json.dumps(job("small", namespace=scenario.namespace, queue="team", cpu="2"))
    assert kubectl(control_plane, "create", "-f", "-", text=nothing) == ""
    assert lint(control_plane, "-f", "-", text=nothing) == (0, [])


def test_a_flavor_without_nodes(control_plane: ControlPlane, scenario: Scenario) -> None:
    """Nodes are read for it."""
    name = scenario.flavor("nowhere", labels={"pool": scenario.namespace})
    _, found = lint(control_plane)
    told = {each["rule"] for each in found if each["object"] == name}
    assert told == {"FlavorWithoutNodes", "UnusedFlavor"}
