"""Tables and ages look as kubectl's."""

from datetime import UTC, datetime

import pytest

from turnstile.cli.queues.tables import Table, since, span

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * MINUTE + 59, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 5 * MINUTE, "7h5m"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (7 * DAY + 3 * HOUR, "7d3h"),
        (8 * DAY + 3 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (3 * 365 * DAY + 4 * DAY, "3y4d"),
        (9 * 365 * DAY, "9y"),
        (-1, "0s"),
        (-5, "<invalid>"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    """One unit, or two while the larger is small; a clock that is a little behind is none of the user's business."""
    assert span(seconds) == text


def test_an_object_without_a_time() -> None:
    """Its age is unknown."""
    assert since(None, datetime.now(UTC)) == "<unknown>"


def test_columns_are_three_spaces_apart() -> None:
    """Names of columns in capitals, the last column without blanks behind, narrow columns with six characters."""
    table = Table(("Name", "N", "Age"))
    assert list(table.lines([["a-long-name", "1", "5s"], ["b", "", "120d"]])) == [
        "NAME          N     AGE",
        "a-long-name   1     5s",
        "b                   120d",
    ]


def test_later_rows_keep_the_columns() -> None:
    """What is printed later is aligned with what was printed before, without a second heading."""
    table = Table(("Name", "Age"))
    list(table.lines([["a-long-name", "5s"]]))
    assert list(table.lines([["b", "6s"]])) == ["b             6s"]
