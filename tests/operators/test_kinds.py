"""Jobs of every kind, each with its real operator, under Turnstile as it runs in production: webhook and controllers
apart, one controller leading and one standing by.

A row of the table (`tests/operators/rows`) is a kind. At no time do pods of a namespace run that request more than its
quota: a watch of the pods counts that through every test.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from testbed import ControlPlane
from testbed.client import condition
from testbed.operators import RunningOperator
from tests.faults.crew import Crew
from tests.operators.rows import ROWS, Row
from tests.operators.trial import NODE, QUEUE, Trial, trial_of

STOPPING_SECONDS = 1.0
"""For so long the pods of a victim terminate, so that quota that is freed too early is seen."""
DEFINED_BY = {
    operators: [row for row in ROWS if row.operators == operators]
    for operators in dict.fromkeys(row.operators for row in ROWS if row.operators)
}
"""The rows of kinds that have a CRD, by their operators."""

EVERY_ROW = pytest.mark.parametrize("row", [row.case for row in ROWS])


@pytest.fixture
def trial(control_plane: ControlPlane, crew: Crew, row: Row) -> Iterator[Trial]:
    """A queue with quota for one job of the row, in an empty namespace."""
    with trial_of(row, control_plane) as made:
        yield made


@EVERY_ROW
def test_it_waits_for_quota_and_runs_on_the_nodes_of_its_flavor(trial: Trial) -> None:
    """The second job runs no pod while the first one has the quota, and runs when the first one has ended. Its operator
    says that the pods of the first one are ready, and so do its Workloads."""
    trial.create("first")
    trial.wait_runs("first")
    if trial.row.says_ready:
        trial.wait_ready("first")
    assert {pod["spec"]["nodeName"] for pod in trial.pods("first")} == {NODE}
    trial.create("second")
    trial.wait_waits("second")
    trial.end("first")
    trial.wait_runs("second")
    if trial.row.end is not None:
        trial.wait(
            lambda: all(condition(each, "Finished").get("status") == "True" for each in trial.workloads("first")),
            describe=lambda: "the Workload of a job that has ended is not finished",
        )


def preempt(trial: Trial) -> None:
    """Let a job that runs be preempted by one of a higher priority; its pods take their time to terminate."""
    low, high = trial.scenario.priority_class("low", 10), trial.scenario.priority_class("high", 100)
    trial.create("victim", priority=low)
    trial.wait_runs("victim")
    trial.slow_to_stop("victim", seconds=STOPPING_SECONDS)
    trial.create("urgent", priority=high)


@EVERY_ROW
def test_preempted_it_frees_its_quota_when_its_pods_are_gone(trial: Trial) -> None:
    """The preemptor runs after that; the victim is what its user wrote again, and runs when the preemptor is gone."""
    preempt(trial)
    trial.wait_runs("urgent")
    assert not trial.pods("victim")
    if trial.row.runs_again:
        before = [trial.row.written(each) for each in trial.created["victim"]]
        trial.wait(lambda: trial.written("victim") == before, describe=lambda: f"{trial.written('victim')}\n{before}")
    trial.end("urgent")
    if trial.row.runs_again:
        trial.wait_runs("victim")


@EVERY_ROW
def test_deactivated_it_stops_and_frees_its_quota(trial: Trial) -> None:
    """Its pods go, and nothing is reserved any more, unless new pods are queued by themselves."""
    trial.create("first")
    trial.wait_runs("first")
    pods = trial.pods("first")
    trial.activate("first", active=False)
    trial.wait_stopped("first", pods)
    if not trial.row.queued_by_pod:
        trial.wait_reserved(0)


@EVERY_ROW
def test_a_killed_leader_changes_nothing(trial: Trial, crew: Crew) -> None:
    """Killed while a victim stops, the leader is followed by the standby, and the preemptor runs within the quota."""
    preempt(trial)
    trial.wait(
        lambda: (
            len(trial.workloads("victim")) == 0
            or any(condition(each, "Evicted").get("status") == "True" for each in trial.workloads("victim"))
        ),
        describe=lambda: "nothing is evicted",
    )
    crew.kill_leader()
    try:
        trial.wait_runs("urgent")
        assert not trial.pods("victim")
    finally:
        crew.replace()


@EVERY_ROW
def test_deleted_it_leaves_nothing(trial: Trial) -> None:
    """A job that runs and one that waits: no pod, no Workload and no finalizer is left, and nothing is reserved. A dry
    run before them leaves nothing in the first place."""
    trial.dry_run("dry")
    trial.create("first")
    trial.wait_runs("first")
    assert len(trial.everything()) == trial.row.workloads + trial.row.pods, trial.everything()
    trial.create("second")
    trial.wait_waits("second")
    trial.delete("second")
    trial.delete("first")
    trial.wait_nothing_left()


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(rows, id="+".join(operators), marks=[pytest.mark.operator(name) for name in operators])
        for operators, rows in DEFINED_BY.items()
    ],
)
def test_its_definition_can_go_and_come_back(
    control_plane: ControlPlane,
    crew: Crew,
    rows: list[Row],
    without_definitions: Callable[[str], RunningOperator],
) -> None:
    """While the CRDs of an operator are missing other kinds are queued; with them again, so are its kinds."""
    with ExitStack() as stack:
        trials = [stack.enter_context(trial_of(row, control_plane, jobs=3)) for row in rows]
        for trial in trials:
            trial.create("before")
            trial.wait_runs("before")
        operator = without_definitions(rows[0].operators[0])
        for trial in trials:
            trial.gone("before")
            trial.scenario.job("plain", queue=QUEUE)
            trial.scenario.wait_started("plain")
        operator.install_definitions()
        operator.start()
        for trial in trials:
            trial.create("after")
            trial.wait_runs("after")
