"""Quota of kinds with operators that is held and not used, for a shorter time than the chart's half an hour."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed import ControlPlane
from testbed.client import condition, resource_path
from testbed.errors import WaitTimeout
from tests.operators.rows import ROWS, Row
from tests.operators.trial import Trial, trial_of
from tests.turnstile import Turnstile

UNUSED_AFTER = 4.0
IMPATIENT = ("--unused-after", f"{UNUSED_AFTER:g}")
STUCK = [row.case for row in ROWS if row.name in ("jobset", "leaderworkerset", "raycluster", "rayjob", "rayservice")]

pytestmark = pytest.mark.usefixtures("nodes")


@pytest.fixture(scope="module")
def impatient(installation: Turnstile) -> Iterator[Turnstile]:
    """Turnstile takes quota back after four seconds without a running pod."""
    installation.restart(*IMPATIENT)
    yield installation
    installation.stop()


@pytest.fixture
def trial(control_plane: ControlPlane, impatient: Turnstile, row: Row) -> Iterator[Trial]:
    """A queue with quota for one job of the row, in an empty namespace."""
    with trial_of(row, control_plane) as made:
        yield made


def without_service_account(value: Any) -> None:
    """Let all pods that a manifest describes have a service account that does not exist."""
    if isinstance(value, dict):
        if "containers" in value:
            value["serviceAccountName"] = "nobody"
        for part in value.values():
            without_service_account(part)
    elif isinstance(value, list):
        for part in value:
            without_service_account(part)


def never_started(trial: Trial) -> None:
    """A job of whose pods none can be made."""
    for each in trial.row.objects(trial.scenario, "job", "main"):
        without_service_account(each)
        trial.scenario.create(each)
    trial.wait_reserved(trial.quota)


def stopped_later(trial: Trial) -> None:
    """A job that has run, and whose pods are deleted; others are refused."""
    trial.create("job")
    trial.wait_runs("job")
    meta = {"name": "none", "namespace": trial.scenario.namespace}
    trial.scenario.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "0"}}}
    )
    trial.scenario.api.delete(resource_path("v1", "pods", namespace=trial.scenario.namespace))


@pytest.mark.parametrize("hold", [never_started, stopped_later])
@pytest.mark.parametrize("row", STUCK)
def test_it_gives_quota_back_that_it_does_not_use(trial: Trial, hold: Callable[[Trial], None]) -> None:
    """A job none of whose pods runs loses its quota, whatever its operator says of it."""
    hold(trial)
    trial.wait_reserved(0)


@pytest.mark.parametrize("row", [row.case for row in ROWS])
def test_it_keeps_quota_that_it_uses(trial: Trial, impatient: Turnstile) -> None:
    """A job that runs is not evicted: its pods are known to be its own. Until they run, which may take its operator
    longer than four seconds, Turnstile has no limit."""
    impatient.restart()
    try:
        trial.create("job")
        trial.wait_runs("job")
    finally:
        impatient.restart(*IMPATIENT)

    def evicted() -> bool:
        return any(condition(each, "Evicted") for each in trial.workloads("job"))

    with pytest.raises(WaitTimeout, match="it runs on"):
        trial.wait(evicted, timeout=2 * UNUSED_AFTER + 1, describe=lambda: "it runs on")
