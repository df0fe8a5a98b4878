"""`python -m tests.conformance.unread [SUITES...]`: what the recorded cases hold that no adapter ever looks at.

Every case is run with containers that remember which of their parts were asked for. A part counts as looked at once it
was in any case of its suite, a call once it was in any case of its adapter. What is left is printed: an input that
nobody reads is a rule that nobody checks, and a call that is passed over is a decision that nobody compared. Calls that
are passed over on purpose are listed, with the reason, in `passed_over.toml`.
"""

import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tests.conformance import cases, registry

Json = Any

Place = tuple[str, ...]

_NAMES = re.compile(r"[/.\-]|^[a-z0-9]*\d[a-z0-9]*$")
"""Keys that are names of objects, and not fields."""

_ABOUT = frozenset(("kind", "name", "source", "suite", "test", "variants", "gates", "featureGates"))
"""What a case tells of itself."""


class _Whole(ABC):
    """Who compares or copies a container has looked at all of it."""

    @abstractmethod
    def read_all(self) -> None:
        """All of it was looked at."""

    def __eq__(self, other: object) -> bool:
        self.read_all()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: object) -> Json:
        self.read_all()
        return plain(self)


class Watched(_Whole, dict[str, Json]):
    """A mapping that remembers which of its keys were asked for."""

    def __init__(self, value: dict[str, Json]) -> None:
        super().__init__({key: watched(part) for key, part in value.items()})
        self.read: set[str] = set()

    def read_all(self) -> None:
        """All of it was looked at."""
        self.read.update(dict.keys(self))
        for part in dict.values(self):
            if isinstance(part, Watched | WatchedList):
                part.read_all()

    def __getitem__(self, key: str) -> Json:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Json = None) -> Json:
        """As of any mapping; the key was asked for."""
        self.read.add(key)
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        for key in list(dict.keys(self)):
            if not isinstance(dict.__getitem__(self, key), Watched | WatchedList):
                self.read.add(key)
            yield key

    def keys(self) -> Json:
        """As of any mapping."""
        return dict.fromkeys(iter(self)).keys()

    def items(self) -> Json:
        """As of any mapping; what is scalar was read with it."""
        return [(key, self[key]) for key in dict.keys(self)]

    def values(self) -> Json:
        """As of any mapping."""
        return [self[key] for key in dict.keys(self)]

    def pop(self, key: str, *default: Json) -> Json:
        """As of any mapping."""
        self.read.add(key)
        return super().pop(key, *default)


class WatchedList(_Whole, list[Json]):
    """A list whose parts remember."""

    def __init__(self, value: list[Json]) -> None:
        super().__init__(watched(part) for part in value)
        self.read = False

    def __getitem__(self, index: Any) -> Json:
        self.read = True
        return super().__getitem__(index)

    def read_all(self) -> None:
        """All of it was looked at."""
        self.read = True
        for part in self:
            if isinstance(part, Watched | WatchedList):
                part.read_all()


def watched(value: Json) -> Json:
    """A plain value with containers that remember."""
    if isinstance(value, dict):
        return Watched(value)
    return WatchedList(value) if isinstance(value, list) else value


def plain(value: Json) -> Json:
    """The value as it was."""
    if isinstance(value, dict):
        return {key: plain(dict.__getitem__(value, key)) for key in dict.keys(value)}
    return [plain(part) for part in value] if isinstance(value, list) else value


def looked_at(value: Json) -> bool:
    """Whether any part of a value was asked for, but for the object that a call was made on."""
    if isinstance(value, Watched):
        return bool(value.read - {"$recv"}) or any(looked_at(part) for part in dict.values(value))
    return isinstance(value, WatchedList) and (value.read or any(looked_at(part) for part in value))


def parts(value: Json, place: Place = ()) -> Iterator[tuple[Place, bool]]:
    """Every part that says something, by its place, and whether it was looked at. A part that was not hides what is in
    it; a recorded call is told by its name."""
    if isinstance(value, Watched):
        op = dict.get(value, "op") or dict.get(value, "do")
        here = (*place[:-1], f"{place[-1]} {op}") if isinstance(op, str) and place else place
        for key in dict.keys(value):
            part = dict.__getitem__(value, key)
            if not (len(part) if isinstance(part, dict | list) else part) or (not place and key in _ABOUT):
                continue
            name = "*" if _NAMES.search(key) else key
            yield (*here, name), key in value.read
            if key in value.read:
                yield from parts(part, (*here, name))
    elif isinstance(value, WatchedList):
        for part in value:
            yield from parts(part, (*place, "[]") if not isinstance(part, Watched) else place)


class Unread(NamedTuple):
    """What was not looked at: parts by suite and place, calls by adapter and name; each with its number of cases."""

    parts: Counter[tuple[str, Place]]
    calls: Counter[tuple[str, str]]


def adapter_of(suite: str) -> str:
    """Name of the adapter that runs a suite; empty if there is none."""
    check = registry.adapter(suite)
    return f"{check.__module__.rpartition('.')[2]}.{check.__name__}" if check is not None else ""


class Watch:
    """Runs cases, and notes which calls of them are looked at, and which parts, if that is asked for."""

    def __init__(self, *, places: bool = False) -> None:
        self._places = places
        self._parts: dict[bool, Counter[tuple[str, Place]]] = {True: Counter(), False: Counter()}
        self._calls: dict[bool, Counter[tuple[str, str]]] = {True: Counter(), False: Counter()}

    def differences(self, case: cases.Case) -> list[str] | None:
        """As of the case alone."""
        body = Watched(case.body)
        found = registry.differences(case._replace(body=body))
        for place, read in set(parts(body)) if self._places else ():
            self._parts[read][case.suite, place] += 1
        adapter = adapter_of(case.suite)
        for run in dict.get(body, "runs") or ():
            for step in (*(dict.get(run, "trace") or ()), *(dict.get(run, "steps") or ())):
                call = dict.get(step, "op") or dict.get(step, "do") or ""
                read = looked_at(dict.get(step, "args")) or looked_at(dict.get(step, "results"))
                self._calls[read][adapter, call] += 1
        return found

    def unread(self) -> Unread:
        """What was looked at in no case so far."""
        parts_, calls = (
            Counter({key: count for key, count in each[False].items() if key not in each[True]})  # type: ignore[attr-defined]
            for each in (self._parts, self._calls)
        )
        return Unread(parts_, calls)


def unread(patterns: tuple[str, ...], *, places: bool = False) -> Unread:
    """Run the cases of these suites and watch."""
    rules = cases.exclusions()
    watch = Watch(places=places)
    for file in cases.suites(patterns):
        for case in cases.read(file) if adapter_of(file.stem) else ():
            if cases.excluded(case, rules) is None:
                with suppress(cases.NotRead):
                    watch.differences(case)
    return watch.unread()


def unjudged(found: Unread) -> list[str]:
    """Calls that are passed over, nobody knows why."""
    known = cases.passed_over()
    return [
        f"{adapter}: {call} ({count})"
        for (adapter, call), count in sorted(found.calls.items())
        if adapter in REPLAYS
        and not any(fnmatchcase(name, pattern) for pattern in known for name in (call, f"{adapter} {call}"))
    ]


REPLAYS = frozenset(
    (
        "core_objects.check",
        "engine_amounts.check",
        "engine_cache.check",
        "engine_cycles.check",
        "engine_preemption.check",
        "engine_queues.check",
        "engine_tables.calls_of_usage",
        "registry._by_kind",
        "workload_calls.check",
        "workload_reconcile.check",
    )
)
"""Adapters that make the recorded calls, in their order; the others take what they need from the table of the case."""


def main(patterns: list[str]) -> int:
    """Exit status: 1 if calls are passed over that nobody has judged. Parts are for people to judge."""
    found = unread(tuple(patterns) or ("*",), places=True)
    for (suite, place), count in sorted(found.parts.items()):
        print(f"{suite}: {'.'.join(place)} ({count})")
    calls = unjudged(found)
    for text in calls:
        print(f"PASSED OVER {text}")
    return 1 if calls else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
