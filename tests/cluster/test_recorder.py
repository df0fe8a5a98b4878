"""The flight recorder of a running controller."""

import json
from pathlib import Path

import pytest

from app.insight.replay import replay
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


def test_a_decision_log_replays_to_the_same_decisions(tmp_path: Path, turnstile: Turnstile, scenario: Scenario) -> None:
    """All that a leader decided follows again from what it took in."""
    log = tmp_path / "decisions.jsonl"
    turnstile.restart("--decision-log", str(log), "--decision-log-objects")
    try:
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
        scenario.job("runs", queue="team", cpu="2")
        scenario.wait_started("runs")
        scenario.job("waits", queue="team", cpu="1")
        scenario.wait_pending("waits")
        scenario.delete_job("runs")
        scenario.wait_started("waits")
    finally:
        turnstile.stop()
    (term,) = replay(json.loads(line) for line in log.read_bytes().splitlines())
    assert (term.difference, term.unfinished) == ("", "")
    assert term.decisions >= 3
