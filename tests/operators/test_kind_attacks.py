"""What a tenant does to an admitted job of each kind, with its real operator, to run more pods than were admitted.

Running pods are counted from the pods alone. docs/reference/attacks.md lists the attacks, written by
`python -m tests.attacks.page`.
"""

from collections.abc import Iterator

import pytest

from testbed import ApiError, ControlPlane
from tests.audits import assert_passes
from tests.cluster.scenario import Scenario
from tests.operators.rows import ROWS, Attack, Row
from tests.operators.tenants import TENANT, at_rest, tenant_in
from tests.operators.trial import Trial, trial_of
from tests.turnstile import Turnstile

WITHIN_SECONDS = 10.0
"""Seconds after an attack in which no more than the quota runs again."""
REFUSALS = (400, 403, 409, 422)
"""The codes of a refused request; any other error is one of the attack itself."""
REST_SECONDS = 30.0
"""Seconds after an attack in which nothing changes any more, and no quota is reserved for what does not run."""


@pytest.fixture
def trial(control_plane: ControlPlane, turnstile: Turnstile, nodes: dict[str, str], row: Row) -> Iterator[Trial]:
    """A queue with quota for one job of the row, in an empty namespace that a tenant may edit."""
    with trial_of(row, control_plane) as made:
        yield made


@pytest.fixture
def tenant(control_plane: ControlPlane, trial: Trial) -> Scenario:
    """The namespace as a tenant may change it."""
    return tenant_in(trial, control_plane)


@pytest.mark.parametrize(
    ("row", "attack"),
    [
        pytest.param(row, attack, id=f"{row.name}: {attack.sentence}", marks=row.marks)
        for row in ROWS
        for attack in row.attacks
    ],
)
def test_it_runs_within_its_quota(trial: Trial, tenant: Scenario, attack: Attack) -> None:
    """The attempt is refused, or no more than the quota runs soon after it, and none is held for what does not run."""
    trial.create("job")
    trial.wait_runs("job")
    admitted = {pod["metadata"]["uid"] for pod in trial.pods("job")}
    refusal: ApiError | None = None
    try:
        attack.act(tenant, "job")
    except ApiError as error:
        refusal = error
    assert refusal is None or refusal.code in REFUSALS, refusal
    assert f'User "{TENANT}" cannot' not in str(refusal), "the roles of the tenant refuse what the attack is about"
    trial.wait_after_attack(
        lambda: trial.sentry.runs <= trial.quota,
        timeout=WITHIN_SECONDS,
        describe=lambda: f"{float(trial.sentry.runs):g} CPUs run, {trial.quota} are the quota",
    )
    if (
        attack.ends == "stopped" and refusal is None
    ):  # by operators that take their time; until then all may seem to be at rest
        trial.wait_after_attack(
            lambda: "stopped" in _answers(trial, admitted), timeout=REST_SECONDS, describe=lambda: "nothing is stopped"
        )
    trial.wait_after_attack(
        lambda: at_rest(trial),
        timeout=REST_SECONDS,
        describe=lambda: f"not at rest: {float(trial.sentry.runs_or_will):g} CPUs run or will",
    )
    assert_passes(trial.scenario.api, trial.scenario.namespace, about=f" in\n{trial.story()}\n")
    answers = {"refused"} if refusal is not None else _answers(trial, admitted)
    print(f"{' and '.join(sorted(answers))}: {refusal or trial.story()}")
    assert attack.ends in answers


def _answers(trial: Trial, admitted: set[str]) -> set[str]:
    """How an attack ended that was not refused: both may be said where the job itself replaces its pods."""
    within = trial.sentry.most <= trial.quota
    kept = admitted <= {pod["metadata"]["uid"] for pod in trial.pods("job")}
    return ({"charged"} if within else set()) | (set() if within and kept else {"stopped"})
