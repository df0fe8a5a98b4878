"""Jobs of every kind that MultiKueue sends away: submitted to a manager, they run on a worker under their operator.

Both clusters have the operator, so that a job which the manager's operator began too would be seen there.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.errors import ApiError
from testbed.operators import OPERATORS, RunningOperator
from tests.cluster.scenario import GROUP, Scenario
from tests.cluster.sites import Site, Team, a_team, connect
from tests.operators.rows import ROWS, Row
from turnstile.jobs.integration import Integration
from turnstile.jobs.registry import ALL

pytestmark = pytest.mark.timeout(600)

KINDS: Final[dict[str, Integration[Any]]] = {each.framework: each for each in ALL}
ELSEWHERE: Final = {"cronjob": "its Jobs are sent", "trainjob": "test_trainjob_elsewhere"}
"""Rows that are tried otherwise."""
SENT: Final = [row for row in ROWS if row.name not in ELSEWHERE and KINDS[row.framework].copies is not None]
RUNS_SECONDS: Final = 90.0
GONE_SECONDS: Final = 120.0
"""The garbage collector of a cluster learns of a new kind within 30 seconds."""


@pytest.fixture(autouse=True)
def operators() -> dict[str, RunningOperator]:
    """None on the session's control plane."""
    return {}


class Pair:
    """A manager and a worker that is connected, and the operators that run on both."""

    def __init__(self, manager: ControlPlane, worker: ControlPlane) -> None:
        self._control_planes = (manager, worker)
        self._operators: set[str] = set()
        self.manager, self.worker = Site(manager), Site(worker)
        connect(self.manager, {"east": self.worker}, "--external", "Deployment.v1.apps")  # for an AppWrapper of one

    def start(self, names: tuple[str, ...]) -> None:
        """Have these operators run on both clusters."""
        for name in names:
            if name not in self._operators:
                self._operators.add(name)
                for each in self._control_planes:
                    RunningOperator(each, OPERATORS[name]).start()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """The two clusters."""
    with ControlPlane() as manager, ControlPlane() as worker:
        yield Pair(manager, worker)


@pytest.fixture
def team(pair: Pair, row: Row) -> Iterator[Team]:
    """An empty namespace on both clusters, with the row's operators; the worker has a queue of 4 CPUs."""
    pair.start(row.operators)
    with a_team(pair.manager, {"east": pair.worker}) as found:
        yield found


def read(row: Row, scenario: Scenario) -> Json | None:
    """The job in one of the clusters."""
    try:
        found: Json = scenario.api.get(row.path(scenario, "job"))
    except ApiError as error:
        if error.code != 404:
            raise
        return None
    return found


def left(row: Row, scenario: Scenario) -> list[str]:
    """Workloads, jobs of the kind, and pods that the namespace has in one of the clusters."""
    return [
        f"{plural} {each['metadata']['name']}"
        for version, plural in ((GROUP, "workloads"), (row.api_version, row.plural), ("v1", "pods"))
        for each in scenario.api.items(resource_path(version, plural, namespace=scenario.namespace))
    ]


def story(row: Row, team: Team) -> str:
    """The state of both clusters, for a failure."""
    lines = []
    for name, scenario in (("manager", team.here), ("worker", team.there["east"])):
        for each in scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace)):
            conditions = each.get("status", {}).get("conditions", ())
            states = ", ".join(f"{found['type']}={found['status']} ({found['message']})" for found in conditions)
            lines.append(f"{name}: Workload {each['metadata']['name']}: {states}")
        pods = [f"{each['metadata']['name']} {each['status'].get('phase')}" for each in row.pods_of(scenario, "job")]
        lines.append(f"{name}: pods {pods}, job {(read(row, scenario) or {}).get('status')}")
    return "\n".join(lines)


def wait(row: Row, team: Team, look: Callable[[], object], what: str, *, seconds: float = RUNS_SECONDS) -> None:
    """Wait for something, and describe both clusters if it does not come."""
    wait_until(look, timeout=seconds, describe=lambda: f"{what}\n{story(row, team)}")


@pytest.mark.parametrize("row", [row.case for row in SENT])
def test_it_runs_on_a_worker_and_leaves_nothing_there(team: Team, row: Row) -> None:
    """All its pods run on the worker, and none on the manager, where its status is that of its copy. When it has ended,
    or was deleted on the manager, nothing is left on the worker; once deleted, nothing on the manager either."""
    here, there = team.here, team.there["east"]
    copies = KINDS[row.framework].copies
    assert copies is not None
    created = row.create(here, "job", "team")
    wait(row, team, lambda: len(row.running(there, "job")) == row.pods, f"{row.pods} pods do not run on the worker")
    assert not [pod for pod in row.pods_of(here, "job") if pod["spec"].get("nodeName")], story(row, team)
    if copies.managed_by is not None and not copies.late:
        wait(row, team, lambda: _status(row, here) == _status(row, there) != {}, "the status does not come back")
    if row.end is not None:
        row.end(there, "job")
        wait(row, team, lambda: _all_finished(row, here), "the Workload on the manager is not finished")
        wait(row, team, lambda: not left(row, there), "something is left on the worker", seconds=GONE_SECONDS)
        assert not [pod for pod in row.pods_of(here, "job") if pod["spec"].get("nodeName")], story(row, team)
    for each in created:
        here.api.delete(here.api.path_of(each))
    for name, scenario in (("worker", there), ("manager", here)):
        wait(row, team, lambda s=scenario: not left(row, s), f"something is left on the {name}", seconds=GONE_SECONDS)  # type: ignore[misc]


def _status(row: Row, scenario: Scenario) -> Json:
    found: Json = (read(row, scenario) or {}).get("status") or {}
    return found


def _all_finished(row: Row, scenario: Scenario) -> bool:
    found = row.workloads_of(scenario, "job")
    return bool(found) and all(condition(each, "Finished").get("status") == "True" for each in found)
