"""Fixtures for tests with other people's programs that submit jobs: Python packages, each in an environment of its own,
and real operators.

The environments are made before the first test; Turnstile and its queues run as for the pages of docs/tasks.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.operators import OPERATORS
from tests.cluster.reader import queues, team_a
from tests.cluster.scenario import Scenario
from tests.operators.conftest import installed_operators, operators
from tests.submitters import environments
from tests.submitters.desk import Desk, Queue

__all__ = ["installed_operators", "operators", "queues", "team_a"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Some of these programs take half a minute to start, and several minutes on a busy machine."""
    for item in items:
        item.add_marker(pytest.mark.timeout(1800))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make the environments before the first test, where minutes are seen and no test's time limit runs."""
    if not session.config.option.collectonly:
        for name in sorted({name for item in session.items for name in _needed(item, "submitter")}):
            environments.ensure(name)
        for name in sorted({name for item in session.items for name in _needed(item, "operator")}):
            OPERATORS[name].ensure()


def _needed(item: pytest.Item, what: str) -> list[str]:
    return [name for marker in item.iter_markers(what) for name in marker.args]


@pytest.fixture
def full_queue(control_plane: ControlPlane, team_a: Scenario) -> Iterator[Queue]:
    """The queue of team-a, in which a Job holds all the quota that it may use."""
    yield Queue(control_plane, team_a)
    team_a.remove()


@pytest.fixture
def desk(request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """`desk("airflow.md")`: a desk for the reader of a page, with the environment that the test is marked with."""
    (environment,) = _needed(request.node, "submitter")
    sat: list[Desk] = []

    def sit(page: str, **variables: str) -> Desk:
        sat.append(Desk(page, control_plane, tmp_path, environment=environment, variables=variables))
        return sat[-1]

    yield sit
    for each in sat:
        each.leave()
