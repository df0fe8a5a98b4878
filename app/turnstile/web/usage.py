"""The page of usage: quota held over time, as plots and as a table, from the recorder's file.

It is added up beside the event loop. A plot has a bar for each step of time: the amount that was held on average, up
to what is borrowed, and below the axis what was lent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, TypeVar

from turnstile.api.errors import InvalidValue, Unanswered
from turnstile.engine.instants import Instant, stamp
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, reading
from turnstile.recorder.reports import Report, Row, as_csv, nominals, reports
from turnstile.recorder.scope import EVERYTHING, Scope
from turnstile.web.explanations import Beside
from turnstile.web.history import said
from turnstile.wording.lost import unit_of

T = TypeVar("T")

FIELDS: Final = ("span", "since", "until", "by", "resource", "label", "namespace")
SPANS: Final = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
}
GROUPINGS: Final = {
    "queue": "ClusterQueue",
    "localqueue": "LocalQueue",
    "namespace": "namespace",
    "user": "user",
    "flavor": "flavor",
    "queue,flavor": "ClusterQueue and flavor",
    "namespace,flavor": "namespace and flavor",
}
STEPS: Final = tuple(timedelta(minutes=each) for each in (1, 5, 15, 60, 180, 720, 1440, 7 * 1440, 28 * 1440))
MOST_STEPS: Final = 60
GROUPS: Final = 8
"""Groups that have a plot of their own: those that held most."""
HEIGHT: Final = 88
"""Height of a plot, in pixels."""
_ABOVE: Final = 3
"""Pixels above the highest bar, so that a line on it is seen."""
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A filled form."""

    since: datetime
    until: datetime
    by: tuple[str, ...]
    resource: str
    """Empty for the one that the page finds."""
    label: str
    """The label of Workloads that has their user."""
    namespace: str
    """Whose usage is asked for; empty for that of all that the reader is shown."""

    def part(self, scope: Scope) -> Scope:
        """The requested part of what the reader is shown."""
        return scope.within(self.namespace) if self.namespace else scope

    def recorded(self, since: Instant | None) -> "Asked":
        """The question about the part of its time that is recorded, `since` an instant: a plot of a fresh recorder
        would be empty but for its right edge. All of it where nothing of it is recorded."""
        if since is None or not self.since.timestamp() < since < self.until.timestamp():
            return self
        return replace(self, since=datetime.fromtimestamp(since, UTC))

    @property
    def edges(self) -> list[Instant]:
        """Where the steps of time begin, and where the last one ends: on full hours or days but for the ends."""
        length = self.until - self.since
        step = next((each for each in STEPS if length <= each * MOST_STEPS), STEPS[-1]).total_seconds()
        begin, end = self.since.timestamp(), self.until.timestamp()
        first = (begin // step + 1) * step
        inner = [first + number * step for number in range(max(0, int((end - first) // step) + 1))]
        return [begin, *(each for each in inner if begin < each < end), end]


@dataclass(frozen=True, slots=True)
class Bar:
    """One step of a plot: amounts that were held on average, and pixels."""

    at: str
    held: float
    borrowed: float
    lent: float
    nominal: float | None
    """None where nothing has a nominal quota, as a namespace, or none is shown."""


@dataclass(frozen=True, slots=True)
class Plot:
    """The bars of a group, and how high the highest is."""

    name: str
    bars: tuple[Bar, ...]
    row: Row
    top: float = 0.0
    """The amount at the top; plots with the same top may be compared."""
    bottom: float = 0.0
    """The amount below the axis."""

    @property
    def peak(self) -> float:
        """The most that was held in a step."""
        return max((each.held for each in self.bars), default=0.0)

    def drawn(self) -> Iterator[tuple[str, float, float, float, float]]:
        """The drawn shapes: kind, x and width in percent, y and height in pixels."""
        scale = (HEIGHT - _ABOVE) / (self.top + self.bottom or 1.0)
        zero, wide = _ABOVE + self.top * scale, 100 / len(self.bars)
        for number, bar in enumerate(self.bars):
            x, width = number * wide, wide * 0.86
            own, borrowed, lent = ((bar.held - bar.borrowed) * scale, bar.borrowed * scale, bar.lent * scale)
            if own > 0:
                yield "used", x, width, zero - own, own
            if borrowed > 0:
                yield "borrowed", x, width, zero - own - borrowed, borrowed
            if lent > 0 and self.bottom:
                yield "lent", x, width, zero, lent
            if bar.nominal:
                yield "mark", x, wide, zero - bar.nominal * scale - 1, 2
        yield "axis", 0, 100, min(zero, HEIGHT - 1), 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that the page shows."""

    since: str
    until: str
    recorded_since: str
    """The first instant of the file; empty if nothing is recorded."""
    resource: str = ""
    unit: str = ""
    resources: tuple[str, ...] = ()
    all: Plot | None = None
    plots: tuple[Plot, ...] = ()
    rows: tuple[Row, ...] = ()
    cut: bool = False
    """Whether a part of the time that was asked about is not recorded, and left out."""
    steps: tuple[str, ...] = ()
    """When the steps of time begin."""


def asked(form: Mapping[str, str], now: datetime) -> Asked:
    """The question of a form. Raises InvalidValue, naming the field."""
    by, span, label = form["by"] or "queue", form["span"] or "7d", form["label"]
    if by not in GROUPINGS:
        raise InvalidValue("by", by, f"give one of {', '.join(GROUPINGS)}")
    if "user" in by and not label:
        cure = "a user is known by a label of Workloads only: name the label that has it"
        raise InvalidValue("label", label, cure)
    if form["since"] or form["until"]:
        until = _day("until", form["until"]) + _DAY if form["until"] else now
        since = _day("since", form["since"]) if form["since"] else until - SPANS["7d"]
    elif span in SPANS:
        since, until = now - SPANS[span], now
    else:
        raise InvalidValue("span", span, f"give one of {', '.join(SPANS)}")
    until = min(until, now)
    if since >= until:
        raise InvalidValue("since", form["since"] or form["until"], "the first day is before the last, and not to come")
    return Asked(
        since=since,
        until=until,
        by=tuple(by.split(",")),
        resource=form["resource"],
        label=label,
        namespace=form["namespace"],
    )


def _day(name: str, given: str) -> datetime:
    try:
        return datetime.strptime(given, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidValue(name, given, "give a day as 2026-01-31") from None


async def answer(place: Location, beside: Beside, given: Asked, scope: Scope = EVERYTHING) -> Answer:
    """The records of Workloads that a scope shows. Raises Unanswered."""
    part = given.part(scope)

    def work(reader: Reader) -> Answer:
        fitted = given.recorded(reader.since())
        edges = fitted.edges
        found = reports(reader, given.by, edges, user_label=given.label, scope=part)
        resources = sorted({row.resource for each in found for row in each.rows})
        resource = given.resource or _usual(resources)
        quotas = nominals(reader, edges, resource) if part.whole else [{} for _ in found]
        answer = _answer(fitted, found, quotas, resources, resource)
        return replace(answer, cut=fitted != given)

    return await _read(place, beside, work, scope)


async def table(place: Location, beside: Beside, given: Asked, scope: Scope = EVERYTHING) -> str:
    """The same as CSV: a row for each step, group and resource."""
    part = given.part(scope)

    def work(reader: Reader) -> str:
        found = reports(reader, given.by, given.edges, user_label=given.label, scope=part, resource=given.resource)
        return as_csv(found, given.by)

    return await _read(place, beside, work, scope)


async def _read(place: Location, beside: Beside, work: Callable[[Reader], T], scope: Scope) -> T:
    def answers() -> Iterator[T]:
        with reading(place) as reader:
            yield work(reader)

    try:
        async with aclosing(beside.answers(answers)) as parts:
            (found,) = [part async for part in parts]
    except InvalidValue as error:
        raise Unanswered(f"The flight recorder cannot be read: {said(error, scope)}") from None
    return found


def _usual(resources: Sequence[str]) -> str:
    """The resource that is shown unless another one is asked for: GPUs, or else cores."""
    found = next((each for each in resources if "gpu" in each), "")
    return found or ("cpu" if "cpu" in resources else next(iter(resources), ""))


def _answer(
    given: Asked,
    found: Sequence[Report],
    quotas: Sequence[Mapping[str, float]],
    resources: Sequence[str],
    resource: str,
) -> Answer:
    empty = Answer(
        since=stamp(given.edges[0]),
        until=stamp(given.edges[-1]),
        recorded_since=found[0].recorded_since or "",
        resource=resource,
        resources=tuple(resources),
    )
    groups: dict[tuple[str, ...], list[Row | None]] = {}
    for number, each in enumerate(found):
        for row in each.rows:
            if row.resource == resource:
                groups.setdefault(tuple(row.keys.values()), [None] * len(found))[number] = row
    if not groups:
        return empty
    hours = [(end - begin) / 3600 for begin, end in pairwise(given.edges)]
    of_queue = given.by == ("queue",)
    plots = []
    for key, rows in groups.items():
        name = ", ".join(key)
        quota = [each.get(name) for each in quotas] if of_queue else [None] * len(found)
        plots.append(_plot(name, found, rows, hours, quota))
    plots.sort(key=lambda each: (-each.row.reserved, -(each.row.lent or 0), each.name))
    sums = [_sum(rows) for rows in zip(*groups.values(), strict=True)]
    everything = _plot("All together", found, sums, hours, [sum(each.values()) or None for each in quotas])
    top, bottom = max(map(_top, plots)), max(bar.lent for each in plots for bar in each.bars)
    return Answer(
        since=empty.since,
        until=empty.until,
        recorded_since=empty.recorded_since,
        resource=resource,
        unit=unit_of(resource)[0],
        resources=empty.resources,
        all=replace(everything, top=_top(everything)),
        plots=tuple(replace(each, top=top, bottom=bottom) for each in plots[:GROUPS]),
        rows=tuple(each.row for each in plots),
        steps=tuple(each.since for each in found),
    )


def _plot(
    name: str,
    found: Sequence[Report],
    rows: Sequence[Row | None],
    hours: Sequence[float],
    quota: Sequence[float | None],
) -> Plot:
    bars = tuple(
        Bar(
            each.since,
            row.reserved / length if row is not None else 0.0,
            (row.borrowed or 0.0) / length if row is not None else 0.0,
            (row.lent or 0.0) / length if row is not None else 0.0,
            nominal,
        )
        for each, row, length, nominal in zip(found, rows, hours, quota, strict=True)
    )
    total = _sum(rows)
    assert total is not None
    return Plot(name, bars, total)


def _sum(rows: Sequence[Row | None]) -> Row | None:
    """The sum of rows; None of none."""
    there = [row for row in rows if row is not None]
    if not there:
        return None
    borrowed = [row.borrowed for row in there if row.borrowed is not None]
    lent = [row.lent for row in there if row.lent is not None]
    first = there[0]
    return Row(
        first.keys,
        first.resource,
        first.unit,
        sum(row.reserved for row in there),
        sum(row.used for row in there),
        sum(row.idle for row in there),
        sum(borrowed) if borrowed else None,
        sum(lent) if lent else None,
        sum(row.preempted for row in there),
    )


def _top(plot: Plot) -> float:
    return max(max(bar.held, bar.nominal or 0.0) for bar in plot.bars)
