"""Every recorded case that an adapter knows decides as it was recorded."""

import pytest

from tests.conformance import cases, registry

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
