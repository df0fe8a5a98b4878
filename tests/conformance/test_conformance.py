"""Every recorded case that an adapter knows decides as it was recorded."""

import pytest

from tests.conformance import cases, registry, unread

_RULES = cases.exclusions()


def _params() -> list[object]:
    return [
        pytest.param(case, id=case.id, marks=pytest.mark.cluster if registry.needs_server(case.suite) else ())
        for path in cases.suites()
        if registry.adapter(path.stem) is not None
        for case in cases.read(path)
        if cases.excluded(case, _RULES) is None
    ] or [pytest.param(None, id="absent")]


@pytest.mark.parametrize("case", _params())
def test_decides_as_recorded(case: cases.Case | None) -> None:
    """All runs of the case agree."""
    if case is None:
        pytest.skip(f"no recorded cases in {cases.directory()}: set CASES_DIR to their directory")
    differences = registry.differences(case)
    if differences is None:
        pytest.skip(registry.NO_COUNTERPART)
    assert differences == []


REPLAYED = ("cache.*", "scheduler.*", "workload.*", "resources.*", "util.admissionfairsharing.*")
"""Suites whose recorded calls are made again, call by call."""


def test_no_recorded_call_is_passed_over_unjudged() -> None:
    """A call that no adapter knows is a decision that nobody compares, unless it is told why."""
    assert unread.unjudged(unread.unread(REPLAYED)) == []
