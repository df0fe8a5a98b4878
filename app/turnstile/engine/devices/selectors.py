"""Which devices match which expression: found out in slices, and kept until the devices change.

Devices that an expression cannot tell apart are evaluated once. Must never decide what is charged.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from turnstile.api.resourceslice import ResourceSlice
from turnstile.engine.devices.expressions import Expression, Prepared, Unfit
from turnstile.engine.pace import Pace, Sliced

EXPRESSIONS: Final = 4096
"""The most expressions that are kept at a time."""
TOTAL_STEPS: Final = 2_000_000
"""The most steps that all devices together may take for one expression: about half a second, in slices."""
_EVALUATION: Final = 60.0
"""Work to evaluate a plain expression once."""
_LOOKUP: Final = 1.5
_SHAPES: Final = 65_536
"""Devices that an expression tells apart, of which is remembered whether they match."""
_MATCHES: Final = 200_000
"""The most matches that are kept of lists of expressions."""

Results = tuple[bool | str, ...]
"""For each device of a slice whether it matches, or why that cannot be said."""


Stages = tuple[tuple[str, tuple[str, ...]], ...]
"""Expressions by their part in the decision."""


class Match(NamedTuple):
    """A device that matches: its slice, and its place in the slice; or why that cannot be said of it, and of which
    stage."""

    key: str
    place: int
    stage: str = ""
    fault: str = ""


class Unsettled(Exception):
    """Raised where an expression is not evaluated yet for all devices."""


class _Kept:
    """An expression, and its results by slice. `fault` is why it has none."""

    __slots__ = ("by_key", "expression", "fault", "results")

    def __init__(self) -> None:
        self.expression: Expression | None = None
        self.fault = ""
        self.results: dict[str, Results] = {}
        self.by_key: dict[object, bool | str] = {}


class Selectors:
    """Results by expression."""

    __slots__ = ("_asked", "_kept", "_matched", "_matches", "_prepared", "due")

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._prepared: dict[str, tuple[Prepared, ...]] = {}
        self._asked: set[str] = set()
        self._matched: dict[object, list[Match]] = {}
        self._matches = 0
        self.due = False
        """Whether anything is to be evaluated."""

    def put(self, key: str, given: ResourceSlice | None) -> None:
        """A ResourceSlice exists as it is given, or does not."""
        self._matched.clear()
        self._matches = 0
        for kept in self._kept.values():
            kept.results.pop(key, None)
        if given is None:
            self._prepared.pop(key, None)
        else:
            self._prepared[key] = tuple(Prepared(given.spec.driver, device) for device in given.spec.devices)
            self.due = self.due or bool(self._kept)

    def fault(self, expression: str) -> str:
        """Why an expression is not evaluated; empty if it is."""
        kept = self._keep(expression)
        return kept.fault if kept is not None else f"there are more than {EXPRESSIONS} expressions"

    def matched(self, stages: Stages, keys: Iterable[str]) -> list[Match]:
        """The devices in these slices that match all expressions of all stages, up to the first of which that cannot be
        said. The slices are always the same for the same stages. Raises Unsettled."""
        known = self._matched.get(stages)
        if known is None:
            known = list(self._match(stages, keys))
            if self._matches > _MATCHES:
                self._matched.clear()
                self._matches = 0
            self._matches += len(known)
            self._matched[stages] = known
        return known

    def _match(self, stages: Stages, keys: Iterable[str]) -> Iterator[Match]:
        for key in keys:
            columns = [(name, self._results(each, key)) for name, expressions in stages for each in expressions]
            for index in range(len(self._prepared[key])):
                for name, column in columns:
                    found = column[index]
                    if isinstance(found, str):
                        yield Match(key, index, name, found)
                        return
                    if not found:
                        break
                else:
                    yield Match(key, index)

    def _results(self, expression: str, key: str) -> Results:
        kept = self._keep(expression)
        found = kept.results.get(key) if kept is not None else None
        if found is None:
            self.due = True
            raise Unsettled(expression)
        return found

    def _keep(self, text: str) -> _Kept | None:
        self._asked.add(text)
        kept = self._kept.get(text)
        if kept is None and len(self._kept) < EXPRESSIONS:
            kept = self._kept[text] = _Kept()
            try:
                kept.expression = Expression(text)
            except Unfit as error:
                kept.fault = str(error)
        return kept

    def forget_others(self) -> None:
        """Keep no expressions but those that were asked about since this was last called."""
        for text in self._kept.keys() - self._asked:
            del self._kept[text]
        self._asked.clear()

    def evaluating(self, pace: Pace) -> Sliced[None]:
        """Evaluate what is missing."""
        self.due = False
        for kept in list(self._kept.values()):
            expression = kept.expression
            if expression is None or kept.fault:
                continue
            if len(kept.by_key) > _SHAPES:
                kept.by_key.clear()
            steps = 0
            for key in [each for each in self._prepared if each not in kept.results]:
                found: list[bool | str] = []
                for device in self._prepared[key]:
                    pace.left -= _LOOKUP
                    if pace.left <= 0:
                        yield
                        pace.renew()
                    if device.fault:
                        found.append(device.fault)
                        continue
                    shape = device.key(expression.entries)
                    answer = kept.by_key.get(shape)
                    if answer is None:
                        steps += expression.steps
                        pace.left -= _EVALUATION + expression.steps / 10
                        answer = kept.by_key[shape] = expression.matches(device.variables(expression.entries))
                    found.append(answer)
                    if steps > TOTAL_STEPS:
                        kept.fault = f"the expression takes more than {TOTAL_STEPS} steps for the cluster's devices"
                        break
                if kept.fault:
                    break
                kept.results[key] = tuple(found)
