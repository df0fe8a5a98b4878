"""The flight recorder of a running controller."""

from pathlib import Path

import pytest

from testbed.client import wait_until
from tests.cluster.scenario import Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


def test_a_file_that_cannot_be_written_holds_up_nothing(
    tmp_path: Path, turnstile: Turnstile, scenario: Scenario
) -> None:
    """Jobs are admitted, and the metrics say that the recorder fails."""
    turnstile.restart("--recorder", str(tmp_path))
    try:
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
        scenario.job("job", queue="team", cpu="2")
        scenario.wait_started("job")
        wait_until(
            lambda: "turnstile_recorder_failing 1.0" in turnstile.installation.metrics(),
            timeout=20,
            describe=lambda: turnstile.installation.metrics(),
        )
    finally:
        turnstile.stop()
