"""Every recorded case that an adapter knows decides as it was recorded."""

import os

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
        pytest.skip(cases.absent())
    try:
        differences = registry.differences(case)
    except cases.NotRead as error:
        if "CASES_DIR" not in os.environ:
            raise  # those kept beside the project can all be read
        pytest.skip(f"not read: {error}")
    if differences is None:
        pytest.skip(registry.NO_COUNTERPART)
    assert differences == []


def _made_up(suite: str, **body: object) -> cases.Case:
    return cases.Case(suite, "made up", body)


@pytest.mark.parametrize(
    "case",
    [
        _made_up("cache.scheduler.TestNew", runs=[{"trace": [{"op": "cache/scheduler.Cache.Reshuffle"}]}]),
        _made_up("util.limitrange.TestSummarize", case={"ranges": None, "expected": None}, runs=[{}]),
    ],
    ids=["an unknown call", "nothing where there was always something"],
)
def test_what_no_adapter_knows_is_not_judged(case: cases.Case) -> None:
    """It neither passes nor fails."""
    with pytest.raises(cases.NotRead):
        registry.differences(case)


@pytest.mark.parametrize(
    ("body", "excluded"),
    [({"gate": False, "name": "a"}, True), ({"gate": False, "name": "c"}, False), ({"gate": True, "name": "a"}, False)],
)
def test_an_exclusion_needs_all_of_its_texts_and_any_of_the_others(body: dict[str, object], excluded: bool) -> None:
    """Both, where it has both."""
    rule = cases.Exclusion("suite", "why", containing=('"a"', '"b"'), all_of=('"gate": false',))
    assert (cases.excluded(_made_up("suite", **body), [rule]) == "why") is excluded


REPLAYED = ("cache.*", "scheduler.*", "workload.*", "resources.*", "util.admissionfairsharing.*")
"""Suites whose recorded calls are made again, call by call."""


def test_no_recorded_call_is_passed_over_unjudged() -> None:
    """A call that no adapter knows is a decision that nobody compares, unless it is told why."""
    assert unread.unjudged(unread.unread(REPLAYED)) == []
