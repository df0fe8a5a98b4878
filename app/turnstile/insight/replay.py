"""Makes the decisions of a decision log again, by the engine's own code, from what the log says the leader took in.

The engine is deterministic: a state that takes the same events and runs its cycles at the same times decides the same.
A log that differs was made by another version, or shows a fault. Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind
from turnstile.api.workload import DigestedTemplate, Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.intake import FEEDING, PLACES
from turnstile.engine.logformat import Line, decided

_KINDS: Final[dict[str, type[Kind]]] = {kind.KIND: kind for kind in (*FEEDING, *PLACES)}
_CURE: Final = "replay a log that was written with --decision-log-objects"


# --- what a log needs for that ----------------------------------------------------------------------------------------


def _from_text(kind: type[Any], value: Any) -> Any:
    return kind(value)


def _argument(value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {"kind", "object"}:
        return value
    made = msgspec.convert(value["object"], _KINDS[value["kind"]])
    if isinstance(made, Workload):  # the digests tell which Workloads are equal
        for pod_set, given in zip(made.spec.pod_sets, value["object"]["spec"]["podSets"], strict=True):
            pod_set.template = msgspec.convert(given.get("template", {}), DigestedTemplate)
    return made


def take_event(state: State, line: Line) -> None:
    """Give a state the event that a line of the log records. Raises InvalidValue if the state refuses it."""
    apply: Callable[..., object] = getattr(state, line["event"])
    apply(*(_argument(each) for each in line["args"]), **line["named"])


# --- the replay -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Replayed:
    """A term of leadership that was replayed: `difference` says where it decided something else, if it did."""

    identity: str
    epoch: int
    cycles: int = 0
    decisions: int = 0
    difference: str = ""
    unfinished: str = ""
    """Why the rest of the term was not replayed."""


def replay(lines: Iterable[Line]) -> Iterator[Replayed]:
    """Replay the terms of a log, one after the other. Lines before the first whole term are passed over. Raises
    InvalidValue for a log without objects."""
    term: _Term | None = None
    for line in lines:
        if "leading" in line:
            if term is not None:
                yield term.result
            if "options" not in line:
                raise InvalidValue("LOG", f"term {line.get('epoch')} of {line['leading']}", f"has no objects: {_CURE}")
            options = msgspec.convert(line["options"], Options, dec_hook=_from_text)
            term = _Term(State(options), Replayed(line["leading"], line["epoch"]))
        elif term is not None and not (term.result.difference or term.result.unfinished):
            term.take(line)
    if term is not None:
        yield term.result


class _Term:
    """The state of a leader, made again."""

    def __init__(self, state: State, result: Replayed) -> None:
        self._state = state
        self._expected: list[Line] = []
        self.result = result

    def take(self, line: Line) -> None:
        """The next line of the log."""
        if "event" in line:
            try:
                take_event(self._state, line)
            except InvalidValue as error:  # one that the leader refused is not in the log
                self.result.difference = f"{line['event']} of {line['key']} is refused now: {error}"
        elif "cycle" in line:
            self._expected.append({name: value for name, value in line.items() if name != "cycle"})
        elif "unrecorded" in line:
            self.result.unfinished = f"{line['unrecorded']} lines are missing"
        elif "abandoned" in line:
            self.result.unfinished = f"cycle {line['abandoned']} was left before its end"
        elif "cycled" in line:
            made = [decided(each) for each in cycle(self._state, line["now"])]
            self.result.cycles += 1
            self.result.decisions += len(made)
            self.result.difference = _difference(line["cycled"], self._expected, made)
            self._expected.clear()


def _difference(number: int, expected: list[Line], made: list[Line]) -> str:
    for one, other in zip(expected, made, strict=False):
        for name, value in one.items():
            if other.get(name, value) != value:  # a field of another version is not compared
                return f"cycle {number}, Workload {one['key']}: {name} was {value!r} and is now {other[name]!r}"
    if len(expected) != len(made):
        return f"cycle {number}: it made {len(expected)} decisions, and now makes {len(made)}"
    return ""
