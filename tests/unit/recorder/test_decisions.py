"""The decision log in the recorder's store: the lines that were told are those that are read, and gaps are told."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.recorder.lives import T0, life, recorded
from tests.unit.recorder.test_writer import store
from turnstile.insight.replay import replay
from turnstile.recorder.database import Database
from turnstile.recorder.decisions import StoredDecisions
from turnstile.recorder.facts import Line
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading
from turnstile.recorder.writer import Retention, Writer

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
LINES = st.lists(
    st.dictionaries(NAMES.filter(lambda name: name != "leading"), NAMES | st.integers(-9, 2**60)), max_size=9
)


def read(place: Location) -> list[dict[str, Any]]:
    """All lines of a store."""
    with reading(place) as reader:
        return list(reader.decisions())


def leading(epoch: int) -> dict[str, Any]:
    """The line with which a term begins."""
    return {"leading": "one", "epoch": epoch}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(terms=st.lists(LINES, max_size=3))
def test_what_was_told_is_read(places: Callable[[], Location], terms: list[list[dict[str, Any]]]) -> None:
    """Term by term, in order, whatever a line holds."""
    place = places()
    writer = Writer(place, retention=Retention(), clock=lambda: T0, gather_seconds=0)
    log = StoredDecisions(writer, lambda: T0)
    told = [line for epoch, lines in enumerate(terms) for line in (leading(epoch), *lines)]
    for line in told:
        log.append(line)
    writer.start()
    writer.close()
    assert read(place) == told


def test_lines_of_two_leaders_do_not_mix(place: Location) -> None:
    """A leader that has just lost the Lease may tell more lines."""
    lines = [Line(f"{name}/1", number, T0, f'{{"n":"{name}{number}"}}') for number in range(3) for name in "ab"]
    store(place, lines)
    assert [line["n"] for line in read(place)] == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_missing_line_ends_the_replay_of_its_term(place: Location) -> None:
    """What follows cannot be judged."""
    first = '{"leading":"one","epoch":1,"options":{}}'
    store(place, [Line("one/1", 0, T0, first), Line("one/1", 3, T0, '{"cycled":2,"now":1.0}')])
    (term,) = replay(read(place))
    assert (term.unfinished, term.difference, term.cycles) == ("2 lines are missing", "", 0)


def test_lines_leave_room_for_what_happens_to_workloads(place: Location) -> None:
    """When half of the queue is full the term gets no more lines; the next one does."""
    writer = Writer(place, retention=Retention(), clock=lambda: T0, waiting=10)
    log = StoredDecisions(writer, lambda: T0)
    log.append(leading(1))
    for number in range(20):
        log.append({"n": number})
    assert len(writer) == 6
    for record in recorded(life()[:2]):
        writer.put(record)
    assert writer.stats.dropped == 0
    writer.start()
    writer.close()
    assert read(place) == [leading(1), *({"n": number} for number in range(5))]


def test_old_lines_are_deleted(place: Location) -> None:
    """By age; and by size before anything else."""
    database = Database(place, now=T0)
    database.store([*recorded(life()), *(Line("one/1", number, T0 + number, "{}") for number in range(9))])
    database.forget_before(T0 + 3, at_most=10)
    left = len(read(place))
    database.forget_oldest(at_most=2)
    assert (left, len(read(place))) == (6 + 1, 4 + 1)  # and the line that says how many are missing
    with reading(place) as reader:
        assert len(reader.named("team", "w")) == 1
    database.close()
