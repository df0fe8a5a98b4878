"""Fixtures for tests with Kueue itself: its manager, and its command line against Turnstile.

All fixtures of the other tests are here too. Turnstile serves the visibility API, from which the command line takes
positions in queues.
"""

from collections.abc import Generator

import pytest

from testbed import ControlPlane, resource_path
from testbed.operators import OPERATORS
from testbed.peers import KUEUE
from tests.cluster.scenario import GROUP, Scenario
from tests.peers.programs import PROGRAMS, Program
from tests.turnstile import Turnstile, installed_with


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build Kueue before the first test, where a build of minutes is seen and no test's time limit runs; and operators
    that tests ask for with `pytest.mark.operator`."""
    if session.items and not session.config.option.collectonly:
        KUEUE.ensure()
        for name in sorted(
            {name for item in session.items for each in item.iter_markers("operator") for name in each.args}
        ):
            OPERATORS[name].ensure()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the Workloads and the pods of its namespace: why a Job did not start stands there."""
    report = yield
    scenario = getattr(item, "funcargs", {}).get("scenario")
    if report.failed and isinstance(scenario, Scenario):
        for plural, version in (("workloads", GROUP), ("pods", "v1")):
            found = scenario.api.items(resource_path(version, plural, namespace=scenario.namespace))
            told = (f"{each['metadata']['name']}: {each.get('status')}" for each in found)
            report.sections.append((plural, "\n".join(told)))
    return report


@pytest.fixture(scope="session")
def installation(control_plane: ControlPlane) -> Turnstile:
    """As for every test, with the visibility API."""
    return installed_with(control_plane, visibility=True)


@pytest.fixture(params=list(PROGRAMS))
def program(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Program:
    """Each command line that has Kueue's commands."""
    return Program(control_plane, PROGRAMS[request.param]())
