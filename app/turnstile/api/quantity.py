"""Kubernetes quantities (`500m`, `1.5Gi`, `12e6`) as exact integers, and back.

Every amount of Turnstile is an int: milli for cpu, base units (bytes, devices, pods) for all else. A quantity is read
as a whole number of billionths, the finest step Kubernetes knows, so nothing here ever is a float or loses a digit.
Sources: the documentation of apimachinery's `resource.Quantity` for grammar, rounding and canonical form, Kueue's
`pkg/resources` for the unit and the format of each resource. Must never know a quota, a flavor or an object.
"""

import math
import re
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Final

from turnstile.api.errors import InvalidValue
from turnstile.api.pods import Quantity

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)

NANOS: Final = 10**9
"""Billionths in one unit."""
_MILLI: Final = NANOS // 1000

_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]+)"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)

_MAX_LENGTH: Final = 1000
_SHORT: Final = 32
_MAX_EXPONENT: Final = 1000
"""Past this an amount saturates or rounds to a billionth anyway; the bound keeps a hostile exponent cheap."""

_CURE: Final = "write a Kubernetes quantity: a number with an optional suffix, such as 2, 500m, 1.5Gi, 10k or 1e3"

_BINARY_RESOURCES: Final = frozenset(("memory", "ephemeral-storage"))
_BINARY_PREFIX: Final = "hugepages-"


class Family(Enum):
    """The suffixes a quantity was written with; its canonical form keeps to them."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


def parse(value: Quantity) -> Fraction:
    """The exact value. Digits beyond a billionth are rounded away from zero. Raises InvalidValue."""
    nanos, _ = _read(value)
    return Fraction(nanos, NANOS)


def compare(left: Quantity, right: Quantity) -> int:
    """-1, 0 or 1 as `left` is smaller than, equal to or larger than `right`. Raises InvalidValue."""
    first, second = _read(left)[0], _read(right)[0]
    return (first > second) - (first < second)


def to_float(value: Quantity) -> float:
    """The value of a quantity that is no amount of a resource, such as a weight; held within int64, so that it is
    finite. Raises InvalidValue."""
    nanos, _ = _read(value)
    return max(MIN_INT64 * NANOS, min(MAX_INT64 * NANOS, nanos)) / NANOS


def to_int(resource: str, value: Quantity) -> int:
    """Amount of a resource: milli for cpu, base units for all others; rounded away from zero, held within int64.

    Raises InvalidValue, which names the resource, the value and the cure.
    """
    try:
        return _to_int(_MILLI if resource == "cpu" else NANOS, value)
    except InvalidValue as error:
        raise InvalidValue(resource, value, error.cure) from None


def from_int(resource: str, amount: int) -> str:
    """The canonical quantity of an amount, as Kueue prints it; the inverse of `to_int`.

    Memory, ephemeral storage and huge pages get a binary suffix where the amount divides by 1024, else a decimal one:
    what was printed reads back as the same quantity in the same format.
    """
    if resource == "cpu":
        return _decimal(amount, -3)
    if amount % 1024 == 0 and (resource in _BINARY_RESOURCES or resource.startswith(_BINARY_PREFIX)):
        return _binary(amount)
    return _decimal(amount, 0)


def canonical(value: Quantity) -> str:
    """As the API server writes it: no fraction, the largest suffix of the family it came in. Raises InvalidValue."""
    nanos, family = _read(value)
    if family is Family.EXPONENT:
        return _decimal(nanos, -9, exponent=True)
    units, rest = divmod(nanos, NANOS)
    if family is Family.BINARY and not rest and abs(units) >= 1024:
        return _binary(units)
    return _decimal(nanos, -9)


def is_short(value: Quantity) -> bool:
    """Whether a quantity is written as people do, so that what it stands for is worth remembering: a thousand digits
    are of one object."""
    return not isinstance(value, str) or len(value) <= _SHORT


def _to_int(unit: int, value: Quantity) -> int:
    return _known(unit, value) if is_short(value) else _worked_out(unit, value)


@lru_cache(maxsize=1 << 14, typed=True)  # typed: 1, 1.0 and True are equal keys otherwise
def _known(unit: int, value: Quantity) -> int:
    return _worked_out(unit, value)


def _worked_out(unit: int, value: Quantity) -> int:
    nanos, _ = _read(value)
    return max(MIN_INT64, min(MAX_INT64, _divide_up(nanos, unit)))


def _read(value: Quantity) -> tuple[int, Family]:
    """Billionths, and the family of the suffix."""
    text = _text(value)
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise InvalidValue("quantity", value, _CURE)
    sign, whole, part, only, suffix = match.groups(default="")
    decimals = part or only
    digits = int(whole + decimals)
    if suffix in _BINARY:
        family, power, factor = Family.BINARY, 9, 1 << _BINARY[suffix]
    elif suffix in _DECIMAL:
        family, power, factor = Family.DECIMAL, _DECIMAL[suffix] + 9, 1
    else:
        exponent = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(suffix[1:])))
        family, power, factor = Family.EXPONENT, exponent + 9, 1
    power -= len(decimals)
    nanos = digits * factor * 10**power if power >= 0 else _divide_up(digits * factor, 10**-power)
    if family is Family.BINARY:
        nanos = min(nanos, MAX_INT64 * NANOS)
    return (-nanos if sign == "-" else nanos), family


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip(" \t\r\n\v\f")
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 3 * _MAX_LENGTH:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)  # the shortest text that reads as this float: what the JSON said, give or take zeros
    raise InvalidValue("quantity", value, _CURE)


def _divide_up(amount: int, by: int) -> int:
    """Quotient, rounded away from zero: who wants some gets some, and a debt never shrinks."""
    return -(-amount // by) if amount >= 0 else amount // by


def _decimal(amount: int, power: int, *, exponent: bool = False) -> str:
    """`amount * 10**power` with the largest power of a thousand that leaves a whole number."""
    if amount == 0:
        return "0"
    while amount % 1000 == 0 and (exponent or power < 18):
        amount //= 1000
        power += 3
    if exponent:
        return f"{amount}e{power}" if power else str(amount)
    return f"{amount}{_DECIMAL_SUFFIX[power]}"


def _binary(amount: int) -> str:
    """`amount` with the largest power of 1024 that leaves a whole number."""
    if amount == 0:
        return "0"
    power = 0
    while amount % 1024 == 0 and power < len(_BINARY):
        amount //= 1024
        power += 1
    return f"{amount}{_BINARY_SUFFIX[power]}"
