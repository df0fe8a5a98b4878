"""Every file of examples/kinds is admitted as it is, on the queue of the quickstart and under its real operator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import Api, ControlPlane, resource_path
from testbed.client import Json, condition, wait_until
from tests.cluster.scenario import GROUP, Scenario
from tests.documents import ROOT
from tests.operators.rows import ROWS, Row
from tests.turnstile import Turnstile

QUICKSTART = ROOT / "examples" / "quickstart"
SETUP = ("01-namespaces.yaml", "02-flavors.yaml", "03-queues.yaml", "04-priorities.yaml")
FILES = sorted((ROOT / "examples" / "kinds").glob("*.yaml"))
TEAM = "team-a"
WITHIN_SECONDS = 60.0


def row_of(path: Path) -> Row:
    """The row of the kind that a file is about: of its last document with a row."""
    for body in reversed(list(yaml.safe_load_all(path.read_text()))):
        for row in ROWS:
            if (body["apiVersion"].rpartition("/")[0], body["kind"]) == (row.api_version.rpartition("/")[0], row.kind):
                return row
    raise AssertionError(f"{path.name}: no row of the table of kinds has such a kind")


@pytest.fixture(scope="module")
def quickstart(control_plane: ControlPlane, installation: Turnstile) -> Iterator[None]:
    """The namespaces, flavors and queues of the quickstart, and a node of the first flavor."""
    api = control_plane.api
    installation.start()  # its webhook answers for flavors and queues
    control_plane.add_node("on-demand", labels={"capacity": "on-demand"}, cpu=64, memory="256Gi")
    made: list[Json] = []
    try:
        for name in SETUP:
            made += api.apply_yaml(QUICKSTART / name)
        yield
    finally:
        paths = [api.path_of(each) for each in made]
        for path in reversed(paths):
            api.delete(path)
        for path in paths:  # another module may create objects of the same names
            api.wait_gone(path, timeout=60)
        control_plane.remove_node("on-demand")


@pytest.fixture
def team(control_plane: ControlPlane, turnstile: Turnstile, quickstart: None) -> Iterator[Scenario]:
    """The namespace of the examples, which is emptied afterwards."""
    scenario = Scenario(control_plane.api, TEAM)
    yield scenario
    scenario.remove()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.operator(name) for name in row_of(path).operators])
        for path in FILES
    ],
)
def test_an_example_is_admitted_as_it_is(team: Scenario, path: Path) -> None:
    """All Workloads that come of it are admitted by team-a's ClusterQueue."""
    row, before = row_of(path), {each["metadata"]["uid"] for each in workloads(team.api)}
    applied = team.api.apply_yaml(path)
    team.made += applied
    for body in applied:
        if body["kind"] == row.kind:
            row.begin(team, body["metadata"]["name"])
    seen: list[Json] = []

    def admitted() -> bool:
        nonlocal seen
        seen = [each for each in workloads(team.api) if each["metadata"]["uid"] not in before]
        return bool(seen) and all(condition(each, "Admitted").get("status") == "True" for each in seen)

    wait_until(admitted, timeout=WITHIN_SECONDS, describe=lambda: f"not admitted: {_states(seen)}")
    assert {each["status"]["admission"]["clusterQueue"] for each in seen} == {TEAM}


def workloads(api: Api) -> list[Json]:
    """The Workloads of the namespace."""
    return api.items(resource_path(GROUP, "workloads", namespace=TEAM))


def _states(found: list[Json]) -> list[Any]:
    return [(each["metadata"]["name"], each.get("status", {}).get("conditions")) for each in found]
