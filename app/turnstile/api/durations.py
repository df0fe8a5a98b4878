"""Durations as Kubernetes writes them (`1h30m`, `250ms`), exact to the nanosecond. Must never read a clock."""

import re
from fractions import Fraction
from typing import Final

NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
SECOND: Final = NANOSECONDS["s"]
LIMIT: Final = 2**63
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse(text: str) -> int:
    """Nanoseconds of a duration. Raises ValueError, saying what would do, if it is none or longer than 292 years."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, at = Fraction(0), 0
    while match := _PART.match(rest, at):
        total += Fraction(match[1] if not match[1].endswith(".") else match[1][:-1]) * NANOSECONDS[match[2]]
        at = match.end()
    if not rest or at != len(rest):
        raise ValueError("is not a duration: write numbers with units, for example 30s, 5m or 1h30m")
    nanoseconds = sign * int(total)
    if not -LIMIT <= nanoseconds < LIMIT:
        raise ValueError("is too long: a duration is at most 292 years")
    return nanoseconds


def render(nanoseconds: int) -> str:
    """The text of a duration as Go prints it: `1m30s`, `1h0m0s`, `250ms`, `0s`."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left == 0:
        return "0s"
    if left < SECOND:
        unit = next(name for name in ("ms", "µs", "ns") if left >= NANOSECONDS[name])
        return f"{sign}{_number(left, NANOSECONDS[unit])}{unit}"
    hours, left = divmod(left, NANOSECONDS["h"])
    minutes, left = divmod(left, NANOSECONDS["m"])
    seconds = f"{_number(left, SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _number(amount: int, unit: int) -> str:
    whole, fraction = divmod(amount, unit)
    digits = str(fraction).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def seconds(nanoseconds: int) -> float:
    """Nanoseconds in seconds."""
    return nanoseconds / SECOND
