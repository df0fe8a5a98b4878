"""Filters of templates that write values for people."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup, escape

from turnstile.wording.grammar import sentence


def moment(value: str, classes: str = "") -> Markup:
    """A time as Kubernetes writes it; the page's script says how long ago that is, or of class `lasting` how long it
    has been."""
    if not value:
        return Markup("&ndash;")
    shown = value.replace("T", " ").removesuffix("Z")
    named = Markup(' class="{}"').format(classes) if classes else ""
    return Markup('<time{} datetime="{}">{} UTC</time>').format(named, value, shown)


def clock(value: str) -> Markup:
    """A time as Kubernetes writes it, to the second; the page's script shows it as the reader's own clock would."""
    try:
        shown = f"{datetime.fromisoformat(value):%d %b %H:%M:%S} UTC".removeprefix("0")
    except ValueError:  # none, or what only a dump can have
        return escape(value)
    return Markup('<time class="clock" datetime="{}">{}</time>').format(value, shown)


def ahead(value: str, classes: str = "ahead") -> Markup:
    """A time to come as Kubernetes writes it; the page's script says that it is `in 2 h`, or of class `until` `2 h`."""
    shown = value.replace("T", " ").removesuffix("Z")
    return Markup('<time class="{}" datetime="{}">{} UTC</time>').format(classes, value, shown)


def linked(text: str, keys: Iterable[str]) -> Markup:
    """A sentence in which Workloads, named by key, are links to their pages."""
    for key in sorted(keys, key=len, reverse=True):
        before, found, after = text.partition(key)
        if found:
            return linked(before, keys) + Markup('<a href="/workloads/{0}">{0}</a>').format(key) + linked(after, keys)
    return escape(text)


def seconds(value: float) -> str:
    """A duration in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= size:
            return f"{value / size:.0f} {unit}"
    return f"{value:.0f} s"


def percent(value: float) -> str:
    """A length within a drawing."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"


def figure(value: float | None) -> str:
    """An amount that was measured, in three or more digits; a dash if it has no meaning."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value else "0"


def day(value: str) -> str:
    """A time as Kubernetes writes it, for axes: `25 Nov 09:00`."""
    return datetime.fromisoformat(value).strftime("%d %b %H:%M").removeprefix("0")


def counted(count: int, one: str, many: str = "") -> str:
    """`1 Workload`, `2 Workloads`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def given(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters of an address that say anything."""
    return {name: value for name, value in parameters.items() if value}


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "moment": moment,
    "ahead": ahead,
    "clock": clock,
    "linked": linked,
    "seconds": seconds,
    "percent": percent,
    "counted": counted,
    "figure": figure,
    "given": given,
    "day": day,
    "sentence": sentence,
}
