"""The flight recorder of a running controller that is killed, or cannot write; and a decision log, replayed."""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client import resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario
from tests.postgres import ENCODED, PASSWORD, PostgresServer
from tests.turnstile import Turnstile
from turnstile.insight.replay import replay
from turnstile.wording.amounts import nodes

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


@pytest.fixture(params=["sqlite", "postgres"])
def recorder(request: pytest.FixtureRequest, tmp_path: Path, turnstile: Turnstile) -> Iterator[str]:
    """Where Turnstile records while the test runs: a file, or a database."""
    if request.param == "sqlite":
        place = str(tmp_path / "recorder.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        place = server.database()
    turnstile.restart("--recorder", place, "--recorder-decisions")
    yield place
    turnstile.stop()


def told(recorder: str, scenario: Scenario, job: str) -> Told:
    """The timeline of the one Workload of a Job."""
    found: list[Told] = json.loads(
        run("timeline", f"job/{job}", "-n", scenario.namespace, "--recorder", recorder, "-o", "json")
    )
    assert len(found) == 1
    return found[0]


def whats(timeline: Told) -> list[str]:
    """What happened, without why it waited in between and when its pods ran."""
    passed_over = ("tried", "waiting", "ready", "pods")
    return [entry["what"] for entry in timeline["entries"] if entry["what"] not in passed_over]


def wait_told(recorder: str, scenario: Scenario, job: str, what: str) -> Told:
    """Wait until something is recorded of a Job: the writer gathers records for a moment."""
    return wait_until(
        lambda: timeline if what in whats(timeline := told(recorder, scenario, job)) else None,
        timeout=20,
        describe=lambda: f"{what} is not recorded: {told(recorder, scenario, job)}",
    )


def test_the_timeline_of_a_job_that_is_gone(recorder: str, turnstile: Turnstile, scenario: Scenario) -> None:
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
    turnstile.start_with("--recorder", recorder, "--recorder-decisions")
    scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
    scenario.wait_started("high", timeout=30)
    wait_told(recorder, scenario, "job", "released")
    turnstile.kill()
    turnstile.start_with("--recorder", recorder, "--recorder-decisions")
    scenario.delete_job("high")
    scenario.wait_started("job", timeout=30)
    scenario.finish("job")
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
    assert f"Preempted by {preemptor} of ClusterQueue {queue}, which comes first in the same queue." in text
    assert f"in ClusterQueue {queue}: holds 2 CPUs on {nodes(flavor)}" in text
    assert "Waits for 2 more CPUs on" in text
    turnstile.stop()
    terms = run("replay", "--recorder", recorder).splitlines()
    assert len(terms) == 3
    assert all("all the same" in term for term in terms)
    rows = [line.split() for line in run("usage", "--recorder", recorder, "--by", "queue,flavor").splitlines()]
    assert [row[:3] for row in rows].count([queue, flavor, "cpu"]) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of two MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "turnstile-test", folder]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here: that needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def cannot_write(turnstile: Turnstile) -> list[str]:
    """The lines of the log that say so."""
    assert turnstile.process is not None
    return [line for line in turnstile.process.tail(10_000).splitlines() if "recorder.cannot_write" in line]


def test_a_full_disk_holds_up_nothing(small_disk: Path, turnstile: Turnstile, scenario: Scenario) -> None:
    """Jobs are admitted, one line of the log says why nothing is recorded, and when there is room what happened
    meanwhile is recorded."""
    recorder, filler = str(small_disk / "recorder.db"), small_disk / "filler"
    turnstile.restart("--recorder", recorder)
    try:
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 50}})
        scenario.job("before", queue="team", cpu="1")
        scenario.wait_started("before")
        wait_told(recorder, scenario, "before", "admitted")
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)) == 4096:
                pass
        for number in range(20):  # more than what is left in the pages of the file
            scenario.job(f"job-{number}", queue="team", cpu="1")
        scenario.wait_started("job-19")
        wait_until(lambda: failing(turnstile), timeout=20, describe=turnstile.installation.metrics)
        scenario.job("meanwhile", queue="team", cpu="1")
        scenario.wait_started("meanwhile")
        (line,) = cannot_write(turnstile)
        assert "full" in line
        filler.unlink()
        wait_until(lambda: not failing(turnstile), timeout=60, describe=turnstile.installation.metrics)
        wait_told(recorder, scenario, "meanwhile", "admitted")
    finally:
        turnstile.stop()


def test_a_database_that_is_down_holds_up_nothing(
    postgres_server: PostgresServer, turnstile: Turnstile, scenario: Scenario
) -> None:
    """Neither at the start nor later: Jobs are admitted, and what happened meanwhile is recorded when it is back."""
    recorder = postgres_server.database()
    postgres_server.kill()
    turnstile.restart("--recorder", recorder)
    try:
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
        scenario.job("before", queue="team", cpu="1")
        scenario.wait_started("before")
        assert len(cannot_write(turnstile)) == 1
        postgres_server.start()
        wait_until(lambda: not failing(turnstile), timeout=60, describe=turnstile.installation.metrics)
        wait_told(recorder, scenario, "before", "admitted")
        postgres_server.kill()
        scenario.job("meanwhile", queue="team", cpu="1")
        scenario.wait_started("meanwhile")
        wait_until(lambda: failing(turnstile), timeout=20, describe=turnstile.installation.metrics)
        postgres_server.start()
        wait_until(lambda: not failing(turnstile), timeout=60, describe=turnstile.installation.metrics)
        wait_told(recorder, scenario, "meanwhile", "admitted")
        assert turnstile.process is not None
        assert PASSWORD not in turnstile.process.tail(10_000)
        assert ENCODED not in turnstile.process.tail(10_000)
    finally:
        turnstile.stop()


def failing(turnstile: Turnstile) -> bool:
    """Whether the recorder says that it cannot write."""
    return "turnstile_recorder_failing 1.0" in turnstile.installation.metrics()


def test_a_file_that_cannot_be_written_holds_up_nothing(
    tmp_path: Path, turnstile: Turnstile, scenario: Scenario
) -> None:
    """Jobs are admitted, and the metrics say that the recorder fails."""
    turnstile.restart("--recorder", str(tmp_path))
    try:
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
        scenario.job("job", queue="team", cpu="2")
        scenario.wait_started("job")
        wait_until(lambda: failing(turnstile), timeout=20, describe=turnstile.installation.metrics)
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
