"""Fixtures for tests with real job operators.

A test says which operators it needs: `pytest.mark.operator("jobset")`, on the module, the test or the row of a table.
They are built before the first test and run before the test begins. All fixtures of the other tests are here too: with
`scenario` (or `turnstile`) Turnstile runs on the same control plane, without them it need not.
"""

import json
from collections.abc import Callable, Generator, Iterator
from typing import Final

import pytest

from testbed import ControlPlane
from testbed.operators import OPERATORS, RunningOperator
from tests.cluster.scenario import Scenario
from tests.faults.crew import Crew
from tests.turnstile import Turnstile, installed_with
from turnstile.api.config.frameworks import GATED
from turnstile.jobs.registry import ALL

CONFIGURATION: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": [each.framework for each in ALL]},
    "waitForPodsReady": {"timeout": "30m"},
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the same operators run in one process, where the operators are started once: by the first test.

    Before pytest-xdist reads the groups, which it does among the hooks of plugins.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group("-".join(sorted(_needed(item))) or "none"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the operators before the first test, where a build of minutes is seen and no test's time limit runs."""
    if not session.config.option.collectonly:
        needed = {name for item in session.items for name in _needed(item)}
        for name in sorted(needed & OPERATORS.keys()):  # of one that is not there, only its own tests fail
            OPERATORS[name].ensure()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its operators and Turnstile printed last: the usual place where the reason stands."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    running, turnstile, crew = (fixtures.get(name) for name in ("operators", "installation", "crew"))
    processes = [turnstile.process] if isinstance(turnstile, Turnstile) else []
    if isinstance(crew, Crew):
        processes += [crew.webhook, *crew.controllers]
    for process in processes if report.failed else ():
        if process is not None:
            state = "running" if process.poll() is None else f"ended with {process.poll()}"
            title = f"the end of Turnstile's log, process {process.pid} ({process.name}) {state}"
            report.sections.append((title, process.tail(40)))
    if report.failed and running is not None:
        for name in _needed(item):
            if (found := running.get(name)) is not None:
                report.sections.append((f"the end of the log of operator {name}", found.tail()))
    return report


@pytest.fixture(scope="session")
def installed_operators(control_plane: ControlPlane) -> dict[str, RunningOperator]:
    """The operators that were started in the session's control plane, by name."""
    control_plane.add_node("operators", labels={"pool": "operators"}, cpu=64, memory="256Gi")
    return {}


@pytest.fixture(autouse=True)
def operators(
    request: pytest.FixtureRequest, control_plane: ControlPlane, installed_operators: dict[str, RunningOperator]
) -> dict[str, RunningOperator]:
    """The operators, by name; those that the test is marked with run, and have their CRDs."""
    for name in _needed(request.node):
        if name not in installed_operators:
            installed_operators[name] = RunningOperator(control_plane, OPERATORS[name])
        installed_operators[name].start()
    return installed_operators


@pytest.fixture
def namespace(
    request: pytest.FixtureRequest, namespace: str, installed_operators: dict[str, RunningOperator]
) -> Iterator[str]:
    """As for every test; objects of the operators' kinds are deleted too, for they would make their pods again."""
    yield namespace
    for name in _needed(request.node):
        installed_operators[name].clear(namespace)


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest, scenario: Scenario, installed_operators: dict[str, RunningOperator]
) -> Iterator[Scenario]:
    """As for every test; objects of the operators' kinds are deleted too, for they would make their pods again."""
    yield scenario
    for name in _needed(request.node):
        installed_operators[name].clear(scenario.namespace)


def _needed(item: pytest.Item) -> list[str]:
    return [name for marker in item.iter_markers("operator") for name in marker.args]


@pytest.fixture(scope="session")
def installation(control_plane: ControlPlane) -> Turnstile:
    """As for every test, with the kinds that need a feature gate too."""
    return installed_with(control_plane, *(GATED[each.framework] for each in ALL if each.framework in GATED))


@pytest.fixture(scope="module")
def crew(
    control_plane: ControlPlane,
    installation: Turnstile,
    nodes: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crew]:
    """A webhook, a leader and a standby in the place of the session's Turnstile, with all kinds enabled. They report
    whether the pods of each job are ready, and wait for that longer than a test takes."""
    installation.stop()
    directory = tmp_path_factory.mktemp("crew")
    file = directory / "config.yaml"
    file.write_text(json.dumps(CONFIGURATION))
    crew = Crew(control_plane, installation.installation, directory=directory, configuration=file)
    try:
        crew.start()
        yield crew
    finally:
        crew.stop()
        installation.start()


@pytest.fixture
def without_definitions(operators: dict[str, RunningOperator]) -> Iterator[Callable[[str], RunningOperator]]:
    """`without_definitions("jobset")` removes the CRDs of an operator; they are there again after the test."""
    removed: list[RunningOperator] = []

    def remove(name: str) -> RunningOperator:
        removed.append(operators[name])
        operators[name].remove_definitions()
        return operators[name]

    yield remove
    for operator in removed:
        operator.install_definitions()
