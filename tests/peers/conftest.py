"""Fixtures for tests with Kueue itself: its manager, and its command line against Turnstile.

All fixtures of the other tests are here too. Turnstile serves the visibility API, from which the command line takes
positions in queues.
"""

import pytest

from testbed import ControlPlane
from testbed.peers import KUEUE
from tests.peers.programs import PROGRAMS, Program
from tests.turnstile import Turnstile, installed_with


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a module run in one process, as its control plane is made once."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.name))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build Kueue before the first test, where a build of minutes is seen and no test's time limit runs."""
    if session.items and not session.config.option.collectonly:
        KUEUE.ensure()


@pytest.fixture(scope="session")
def installation(control_plane: ControlPlane) -> Turnstile:
    """As for every test, with the visibility API."""
    return installed_with(control_plane, visibility=True)


@pytest.fixture(params=list(PROGRAMS))
def program(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Program:
    """Each command line that has Kueue's commands."""
    return Program(control_plane, PROGRAMS[request.param]())
