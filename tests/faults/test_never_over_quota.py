"""Whatever happens, and however often controllers are killed: never over quota, and nobody preempted in vain."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.client import Json, resource_path
from testbed.controlplane import ControlPlane
from tests.cluster.scenario import GROUP, Scenario
from tests.faults.again import keeping
from tests.faults.crew import LEASE, Crew
from tests.faults.evidence import looks
from tests.faults.history import History
from tests.faults.moments import Moment, Replay, finished, is_true, runs
from tests.faults.narrative import narrate
from tests.faults.promises import Judge
from tests.faults.recording import Event, Recorder
from tests.turnstile import Turnstile

OPERATIONS = int(os.environ.get("HISTORY_OPERATIONS", "80"))
KILLS = int(os.environ.get("HISTORY_KILLS", "3"))
SEED = int(os.environ.get("HISTORY_SEED", "1"))
SETTLED_SECONDS = float(os.environ.get("HISTORY_SETTLED", "90"))
"""From when somebody leads until nothing is left to do, at most: a stop for what never comes to rest, however busy the
machine is. How long it took is printed."""
LED_SECONDS = 60.0
"""From the start of the last process until it leads, at most: its start, and the Lease of the one that was killed."""
PAUSE_SECONDS = 0.08
"""Between two operations, on average."""
HASTE = 10
"""So many operations come without a pause right before the end, so that all die in the middle of work."""
AUDIT_EVERY = 16
"""Operations from one audit of the pods that run to the next."""
PATIENCE = 25
"""Operations after which a kill that waits for its moment is done anyway."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(max(600, 15 * OPERATIONS))]

CLASSICAL = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
"""
FAIR = (
    CLASSICAL
    + """
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
"""
)


@pytest.fixture(params=["classical", "fair"])
def fair(request: pytest.FixtureRequest) -> bool:
    """How the cohort shares."""
    return bool(request.param == "fair")


@pytest.fixture
def crew(control_plane: ControlPlane, turnstile: Turnstile, tmp_path: Path, fair: bool) -> Iterator[Crew]:
    """A webhook, a leader and a standby in the place of the session's Turnstile."""
    configuration = tmp_path / "config.yaml"
    configuration.write_text(FAIR if fair else CLASSICAL)
    turnstile.stop()
    crew = Crew(control_plane, turnstile.installation, directory=tmp_path, configuration=configuration)
    try:
        crew.start()
        yield crew
    finally:
        crew.stop()
        turnstile.start()


def test_no_overshoot_and_no_victim_in_vain(scenario: Scenario, crew: Crew, tmp_path: Path, fair: bool) -> None:
    """Everything users and administrators do, in any order, with controllers that die or freeze between.

    Jobs of three priorities are created, resized, moved, deleted, made anew and finished; Workloads are deactivated
    and deleted by hand; quota is edited, queues are stopped and opened. Jobs are deleted with orphan or held by a
    finalizer of a user, labels of running pods are to be taken off, and victims refuse to die for a while. A user
    gives pods a year to stop, writes to a Job without a pause, creates pods that name a Workload, and marks pods as
    a Job's after their creation. Controllers are killed at random, right after an eviction was written, and right
    after a job was told to stop; the standby takes over.
    """
    lots = random.Random(SEED)
    history = History(scenario, crew.control_plane, lots, fair=fair)
    recorder = Recorder(scenario.api, _paths(scenario), concerns=lambda obj: _concerns(obj, scenario))
    with recorder, keeping(tmp_path, recorder, fair=fair):
        kills = _Kills(crew, recorder, lots, first=3 if fair else 0)
        for step in range(OPERATIONS):
            history.step()
            if step < OPERATIONS - HASTE:
                threading.Event().wait(lots.expovariate(1 / PAUSE_SECONDS))
            kills.after(step)
            if step % AUDIT_EVERY == AUDIT_EVERY - 1:
                history.check_audit()
            if step == OPERATIONS // 2:
                kills.finish()
                history.check_settled(timeout=SETTLED_SECONDS)
        recorder.disarm()
        crew.stop()
        began = time.monotonic()
        crew.start_one()
        crew.wait_led(timeout=LED_SECONDS)
        led = time.monotonic()
        history.check_settled(timeout=SETTLED_SECONDS)
        settled = time.monotonic()
        crew.stop()
        recorder.catch_up()
    recorded = recorder.history()
    moments, cycles = Replay().moments(recorded), looks(crew.decision_logs, recorded)
    verdict = Judge(moments, cycles, fair=fair).judge()
    figures = ", ".join(f"{count} {what}" for what, count in sorted(verdict.figures.items()))
    print(f"seed {SEED}: {OPERATIONS} operations, {crew.kills + 1} kills ({kills.told});")
    print(", ".join(f"{count} {what}" for what, count in sorted(history.tenant.done.items())))
    print(f"{len(moments)} events, {len(cycles)} cycles, {sum(len(look.decisions) for look in cycles)} decisions;")
    print(f"{figures}; led {led - began:.1f} s after the last start, and settled {settled - led:.1f} s after that")
    assert not verdict.wrong, f"{_account(moments, verdict.wrong)}\nsee: python -m tests.faults.again {tmp_path}"


class _Kills:
    """When and how the leader dies: spread over the history, each kind about as often as the others, beginning with
    the kind of number `first`."""

    def __init__(self, crew: Crew, recorder: Recorder, lots: random.Random, *, first: int) -> None:
        self._crew = crew
        self._recorder = recorder
        self._lots = lots
        self._faults: dict[str, Callable[[], None]] = {
            "at an eviction": lambda: self._at(_evicted),
            "at a stop": lambda: self._at(_stopped),
            "at any time": self._crew.kill_leader,
            "at a return to the queue": lambda: self._at(_requeued),
            "no standby": self._crew.kill_all,
            "frozen": self._crew.freeze_leader,
        }
        kinds = [list(self._faults)[(first + number) % len(self._faults)] for number in range(KILLS)]
        lots.shuffle(kinds)
        self._plan = dict(zip(sorted(lots.sample(range(8, OPERATIONS - HASTE), KILLS)), kinds, strict=True))
        self._due: list[str] = []
        self._deadline = 0
        self._before = 0
        self._outage = 0
        self._under_way = ""
        self.told: dict[str, int] = {}

    def after(self, step: int) -> None:
        """Do what is due after that operation."""
        if step in self._plan:
            self._due.append(self._plan[step])
        if self._under_way:
            self._look(step)
        elif self._due:
            self._under_way = self._due.pop(0)
            self._before = self._crew.kills
            self._deadline, self._outage = step + PATIENCE, self._lots.randint(0, 5)
            self._faults[self._under_way]()

    def finish(self) -> None:
        """Let what is under way come to its end, and wait for a leader."""
        if self._under_way:
            self._recorder.disarm()
            if self._crew.kills == self._before:
                self._crew.kill_leader()
            self._recover()

    def _look(self, step: int) -> None:
        if self._crew.kills == self._before:
            if step >= self._deadline:
                self._recorder.disarm()
                self._crew.kill_leader()
            return
        if self._outage > 0:
            self._outage -= 1
            return
        self._recover()

    def _recover(self) -> None:
        self._crew.replace()
        self._crew.wait_led()
        self._crew.thaw()
        self.told[self._under_way] = self.told.get(self._under_way, 0) + 1
        self._under_way = ""

    def _at(self, catches: Callable[[Event], bool]) -> None:
        self._recorder.at_next(catches, self._crew.kill_leader)


def _evicted(event: Event) -> bool:
    """Between the write of an eviction and the stop of the job."""
    return event.kind == "workloads" and is_true(event.new, "Evicted") and not is_true(event.old, "Evicted")


def _stopped(event: Event) -> bool:
    """Between the stop of a job and the return of its quota."""
    if event.kind != "jobs" or event.old is None or event.new is None:
        return False
    return runs(event.old) and not runs(event.new) and not finished(event.new)


def _requeued(event: Event) -> bool:
    """Right after quota was given back, before the preemptor has it."""
    return event.kind == "workloads" and is_true(event.old, "QuotaReserved") and not is_true(event.new, "QuotaReserved")


def _paths(scenario: Scenario) -> dict[str, str]:
    def inside(group: str, plural: str) -> str:
        return resource_path(group, plural, namespace=scenario.namespace)

    return {
        "clusterqueues": resource_path(GROUP, "clusterqueues"),
        "cohorts": resource_path(GROUP, "cohorts"),
        "localqueues": inside(GROUP, "localqueues"),
        "jobs": inside("batch/v1", "jobs"),
        "pods": inside("v1", "pods"),
        "workloads": inside(GROUP, "workloads"),
        "leases": LEASE.rsplit("/", 1)[0],
    }


def _concerns(obj: Json, scenario: Scenario) -> bool:
    """Objects of the scenario, and the Lease of the controllers."""
    meta = obj["metadata"]
    return (
        meta.get("namespace") == scenario.namespace
        or meta["name"] == LEASE.rsplit("/", 1)[1]
        or ("namespace" not in meta and bool(meta["name"].endswith(scenario.namespace)))
    )


def _account(moments: list[Moment], wrong: list[str]) -> str:
    """What is wrong, and what happened about the first of it."""
    first = int(wrong[0].split()[0].lstrip("#"))
    return "\n".join([*wrong[:10], f"({len(wrong)} in all)", narrate(moments, first - 60, first + 120)])
