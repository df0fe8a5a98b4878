"""What the table of kinds (test_kinds.py) does not wait for: the garbage collector, after a CRD was away."""

from collections.abc import Callable

import pytest

from testbed import ControlPlane
from testbed.operators import RunningOperator
from tests.operators.rows.jobset import ROWS
from tests.operators.trial import COLLECTED, trial_of
from tests.turnstile import Turnstile


@pytest.mark.operator("jobset")
def test_quota_of_a_job_that_went_with_its_definition_is_freed_when_its_pods_are_gone(
    control_plane: ControlPlane,
    turnstile: Turnstile,
    nodes: dict[str, str],
    without_definitions: Callable[[str], RunningOperator],
) -> None:
    """Its pods run until the garbage collector knows the kind again; so long they are charged, and no pod beyond."""
    (row,) = ROWS
    with trial_of(row, control_plane) as trial:
        trial.create("before")
        trial.wait_runs("before")
        operator = without_definitions("jobset")
        trial.gone("before")
        operator.install_definitions()
        trial.create("after")
        trial.wait_runs("after", timeout=COLLECTED)
