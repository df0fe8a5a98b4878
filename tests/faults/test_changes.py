"""The chart's two Deployments are upgraded, drained, frozen, killed and given other certificates under load.

No review fails, but where everything of Turnstile is down, and then in managed namespaces only; and reviews that a
frozen pod has in hand, when the API server has waited for 5 s. A machine that is full may be too late for a few too.
Nothing is admitted twice, and nothing runs beyond the quota. `changes` says how to make rates and times those of
docs/operations.md.
"""

from collections.abc import Iterator

import pytest

from tests.faults.changes import CHANGES, DOWN, ROTATIONS, SECONDS, Bed, Change, bed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600 + DOWN + 30 * ROTATIONS + SECONDS)]
FROZEN = "webhook pod frozen"
LATE = 0.01
"""Share of the reviews that may be too late because the machine has other things to do."""


@pytest.fixture(scope="module")
def found() -> Iterator[Bed]:
    """One installation for all changes."""
    with bed() as made:
        yield made


@pytest.mark.parametrize("change", CHANGES, ids=[change.name for change in CHANGES])
def test_nobody_is_refused_and_nothing_is_admitted_twice(found: Bed, change: Change) -> None:
    """Whatever is done: reviews, namespaces that are not managed, quota, and every Job is started in the end."""
    if not change.possible:
        pytest.skip(f"needs {change.needs}")
    row = found.under_load(change)
    print(row, *row.wrong, sep="\n")
    assert row.reviews > 0, row.complaints
    assert row.failed == 0, row.complaints
    assert row.late <= LATE * row.reviews or change.name == FROZEN, row.complaints
    assert row.elsewhere == 0, row.complaints
    assert (row.failed_while_down > 0) == change.everything_down, row.complaints
    assert row.twice == ()
    assert row.over_quota == ()
