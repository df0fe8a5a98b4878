"""Evaluates CEL expressions over devices, with Kubernetes' quantities and versions.

A tenant may write an expression, so it is evaluated only if the most steps that it may take are few. A quantity or
version is a string for the library, which knows neither. Must never keep a result.
"""

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final

from turnstile.api import cel
from turnstile.api.errors import InvalidValue
from turnstile.api.quantity import NANOS, parse
from turnstile.api.resourceslice import Device

STEPS: Final = 10_000
"""The most steps of one evaluation: about a millisecond."""
LENGTH: Final = 10 << 10
"""The most characters of an expression, as in Kubernetes."""
FIELDS: Final = ("allowMultipleAllocations", "attributes", "capacity", "driver")
_MAPS: Final = ("attributes", "capacity")
_QUANTITY: Final = "quantity:"
_VERSION: Final = "semver:"
_SEMVER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")

Values = Mapping[str, Mapping[str, object]]
"""Values by domain and name."""


@cache
def _library() -> ModuleType:
    """The library, for processes that evaluate expressions. Its package imports a command line of its own, which would
    take a second of CPU and 30 MiB."""
    sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))
    return importlib.import_module("cel")


class Unfit(Exception):
    """Raised for an expression that is not evaluated: why."""


class Expression:
    """A compiled expression. `entries` are the values that it reads; None if it may read any."""

    __slots__ = ("_program", "entries", "steps")

    def __init__(self, text: str) -> None:
        """Compile. Raises Unfit."""
        if len(text) > LENGTH:
            raise Unfit(f"the expression has more than {LENGTH} characters")
        found = cel.cost(text, variables={"device": FIELDS})
        if found.fault:
            raise Unfit(found.fault)
        if found.steps > STEPS:
            raise Unfit(f"the expression may take {found.steps} steps for one device, more than {STEPS}")
        try:
            self._program = _library().compile(text)
        except ValueError as error:
            raise Unfit(str(error)) from None
        named = {name for name in self._program.functions() if name.isidentifier()}  # the others are operators
        unknown = sorted(named - _KNOWN - _FUNCTIONS.keys())
        if unknown:
            raise Unfit(f"undeclared reference to '{unknown[0]}'")
        self.steps = found.steps
        self.entries = cel.entries(text, "device", _MAPS)

    def matches(self, variables: Mapping[str, object]) -> bool | str:
        """Whether a device matches; a text why that cannot be said."""
        context = _library().Context()
        for name, function in _FUNCTIONS.items():
            context.add_function(name, function)
        context.add_variable("device", variables)
        try:
            found = self._program.execute(context)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            return f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error)
        return found if isinstance(found, bool) else f"result of type {type(found).__name__}, not bool"


class Prepared:
    """A device as expressions see it. `fault` is why none can be evaluated for it."""

    __slots__ = ("attributes", "capacity", "driver", "fault", "shared")

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.shared = bool(device.allow_multiple_allocations)
        self.fault = ""
        self.attributes: dict[str, dict[str, object]] = {}
        self.capacity: dict[str, dict[str, object]] = {}
        try:
            for name, given in device.attributes.items():
                self._put(self.attributes, name, _attribute(name, given))
            for name, amount in device.capacity.items():
                self._put(self.capacity, name, quantity(str(amount.value)))
        except InvalidValue as error:
            self.fault = str(error)
        except ValueError as error:
            self.fault = str(error)

    def _put(self, into: dict[str, dict[str, object]], name: str, value: object) -> None:
        domain, slash, rest = name.partition("/")
        into.setdefault(domain if slash else self.driver, {})[rest if slash else name] = value

    def key(self, entries: frozenset[tuple[str, str, str]] | None) -> object:
        """Equal for devices that an expression, which reads these entries, cannot tell apart."""
        if entries is None:
            return self.driver, self.shared, repr(self.attributes), repr(self.capacity)
        maps: dict[str, dict[str, dict[str, object]]] = {"attributes": self.attributes, "capacity": self.capacity}
        return self.driver, self.shared, *(maps[part].get(domain, _NONE).get(name) for part, domain, name in entries)

    def variables(self, entries: frozenset[tuple[str, str, str]] | None) -> dict[str, object]:
        """The variable `device`. A domain that it has nothing of is empty."""
        attributes, capacity = dict(self.attributes), dict(self.capacity)
        for part, domain, _ in entries or ():
            (attributes if part == "attributes" else capacity).setdefault(domain, {})
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.shared,
            "attributes": attributes,
            "capacity": capacity,
        }


_NONE: Final[dict[str, object]] = {}


def _attribute(name: str, given: Mapping[str, Any]) -> object:
    for kind in ("int", "bool", "string"):
        if given.get(kind) is not None:
            return given[kind]
    if given.get("version") is not None:
        return semver(given["version"])
    raise ValueError(f"attribute {name}: unsupported attribute value")


# Functions of Kubernetes


def quantity(text: str) -> str:
    """A quantity, as expressions carry it."""
    exact = parse(text) * NANOS
    return f"{_QUANTITY}{exact.numerator // exact.denominator}"


def semver(text: str) -> str:
    """A semantic version, as expressions carry it."""
    if _SEMVER.fullmatch(text) is None:
        raise ValueError(f"parse semantic version: {text}")
    return _VERSION + text.partition("+")[0]


def _order(value: str) -> tuple[Any, ...]:
    """A key by which quantities, or versions, are ordered."""
    if value.startswith(_QUANTITY):
        return (_QUANTITY, int(value.removeprefix(_QUANTITY)))
    match = _SEMVER.fullmatch(value.removeprefix(_VERSION)) if value.startswith(_VERSION) else None
    if match is None:
        raise ValueError(f"no quantity and no version: {value}")
    parts = [(0, int(each), "") if each.isdigit() else (1, 0, each) for each in (match[4] or "").split(".")]
    return (_VERSION, int(match[1]), int(match[2]), int(match[3]), match[4] is None, parts)


def _compare(left: str, right: str) -> int:
    first, second = _order(left), _order(right)
    if first[0] != second[0]:
        raise ValueError("a quantity is not compared with a version")
    return (first > second) - (first < second)


def _readable(read: Callable[[str], str]) -> Callable[[str], bool]:
    def answer(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return answer


def _whole(value: str) -> int:
    nanos = _order(value)[1]
    if not value.startswith(_QUANTITY) or nanos % NANOS:
        raise ValueError("cannot convert value to integer")
    return int(nanos // NANOS)


_FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "quantity": quantity,
    "isQuantity": _readable(quantity),
    "semver": semver,
    "isSemver": _readable(semver),
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "asInteger": _whole,
    "major": lambda version: _order(version)[1],
    "minor": lambda version: _order(version)[2],
    "patch": lambda version: _order(version)[3],
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
}
_KNOWN: Final = frozenset(
    ("bool", "bytes", "contains", "double", "dyn", "endsWith", "int", "matches", "max", "min", "size", "startsWith",
     "string", "type", "uint")
)  # fmt: skip
"""Functions of the library."""
