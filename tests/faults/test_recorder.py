"""The flight recorder of a running controller that is killed, or cannot write; and a decision log, replayed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.insight.replay import replay
from testbed.client import resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

TURNSTILE = Path(sys.executable).with_name("turnstile")
PRIORITY = "kueue.x-k8s.io/priority-class"
Told = dict[str, Any]


def run(*arguments: str | Path) -> str:
    """What a command prints, which must succeed."""
    command = [TURNSTILE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(recorder: Path, scenario: Scenario, job: str) -> Told:
    """The timeline of the one Workload of a Job."""
    found: list[Told] = json.loads(
        run("timeline", f"job/{job}", "-n", scenario.namespace, "--recorder", recorder, "-o", "json")
    )
    assert len(found) == 1
    return found[0]


def whats(timeline: Told) -> list[str]:
    """What happened, without why it waited in between."""
    return [entry["what"] for entry in timeline["entries"] if entry["what"] not in ("tried", "waiting", "ready")]


def wait_told(recorder: Path, scenario: Scenario, job: str, what: str) -> Told:
    """Wait until something is recorded of a Job: the writer gathers records for a moment."""
    return wait_until(
        lambda: timeline if what in whats(timeline := told(recorder, scenario, job)) else None,
        timeout=20,
        describe=lambda: f"{what} is not recorded: {told(recorder, scenario, job)}",
    )


def test_the_timeline_of_a_job_that_is_gone(recorder: Path, turnstile: Turnstile, scenario: Scenario) -> None:
    """A Job waits, is admitted, is preempted, runs again, ends and is deleted, while its controller is killed twice."""
    flavor = scenario.flavor("plain")
    queue = scenario.queue("team", {flavor: {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    scenario.job("first", queue="team", cpu="2", labels={PRIORITY: low})
    scenario.wait_started("first")
    scenario.job("job", queue="team", cpu="2", labels={PRIORITY: low})
    scenario.wait_pending("job")
    wait_until(
        lambda: {"tried", "waiting"} <= {each["what"] for each in told(recorder, scenario, "job")["entries"]},
        timeout=20,
        describe=lambda: "it is not recorded why the Job waits",
    )
    scenario.delete_job("first")
    scenario.wait_started("job")
    wait_told(recorder, scenario, "job", "admitted")
    turnstile.kill()
    turnstile.start_with("--recorder", str(recorder))
    scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
    scenario.wait_started("high", timeout=30)
    wait_told(recorder, scenario, "job", "released")
    turnstile.kill()
    turnstile.start_with("--recorder", str(recorder))
    scenario.delete_job("high")
    scenario.wait_started("job", timeout=30)
    wait_until(lambda: scenario.pods_of("job"), timeout=20, describe=lambda: "the Job has no pods")
    wait_until(
        lambda: scenario.finish("job") or scenario.read_job("job")["status"].get("succeeded"),
        timeout=30,
        describe=lambda: "the Job does not end",
    )
    wait_told(recorder, scenario, "job", "finished")
    workload = scenario.workload_of("job")["metadata"]
    scenario.delete_job("job")
    scenario.api.wait_gone(
        resource_path(GROUP, "workloads", workload["name"], namespace=scenario.namespace), timeout=30
    )
    timeline = wait_told(recorder, scenario, "job", "deleted")
    assert whats(timeline) == [
        "created", "reserved", "admitted", "evicted", "released", "reserved", "admitted", "finished", "deleted",
    ]  # fmt: skip
    entries = {entry["what"]: entry for entry in timeline["entries"]}
    assert entries["evicted"]["detail"]["why"] == "InClusterQueue"
    (preemptor,) = timeline["names"].values()
    assert preemptor.startswith(f"{scenario.namespace}/job-high-")
    assert entries["reserved"]["detail"] == {"cluster_queue": queue, "usage": [[flavor, "cpu", 2000]]}
    text = run("timeline", "job/job", "-n", scenario.namespace, "--recorder", recorder)
    assert f"by Workload {preemptor} of ClusterQueue {queue} (InClusterQueue)" in text
    assert f"in ClusterQueue {queue}: holds 2 cpu of {flavor}" in text
    assert "insufficient unused quota for cpu" in text


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
