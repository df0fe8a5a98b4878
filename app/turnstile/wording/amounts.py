"""Amounts of resources in words, and the order in which people think of resources: accelerators first.

Must never round: an amount that is shown can be written into a manifest.
"""

from decimal import Decimal
from typing import Final

from turnstile.api.quantity import MAX_INT64, from_int

_NAMES: Final = {
    "cpu": ("CPU", "CPUs"),
    "pods": ("pod", "pods"),
    "memory": ("memory", ""),
    "ephemeral-storage": ("ephemeral storage", ""),
}
"""One and many; resources without a plural are measured, not counted."""
_ACCELERATORS: Final = ("gpu", "tpu", "npu", "fpga")
_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMALS: Final = 6
"""Digits after the point with which an amount is still shown in the unit of another."""


def nodes(flavor: str) -> str:
    """The nodes of a flavor: `spot nodes`; of one that is called after nodes, `flavor any-node`."""
    return f"flavor {flavor}" if "node" in flavor else f"{flavor} nodes"


def rank(resource: str) -> tuple[int, str]:
    """The place of a resource in a list: devices first, then CPUs, memory and the others."""
    if "/" in resource:
        return 0, resource
    return {"cpu": 1, "memory": 2}.get(resource, 3), resource


def figure(resource: str, value: int, *, like: str = "") -> str:
    """An amount without its resource: `2`, `0.5`, `96Gi`; in the unit of the quantity `like`, if it is short there."""
    if value >= MAX_INT64:
        return "unlimited"
    if resource == "cpu":
        return _decimal(Decimal(value) / 1000)
    for power, unit in enumerate(_BINARY, 1):
        if like.endswith(unit):
            found = Decimal(value) / 1024**power
            return f"{_decimal(found)}{unit}" if found == round(found, _DECIMALS) else from_int(resource, value)
    return from_int(resource, value)


def amount(resource: str, value: int, *, more: bool = False, like: str = "") -> str:
    """An amount in words: `1 CPU`, `4 GPUs`, `96Gi of memory`; with `more`, `4 more GPUs`, `96Gi more memory`."""
    one, many = _noun(resource)
    number = figure(resource, value, like=like)
    noun = one if number == "1" or not many else many
    if more:
        return f"{number} more {noun}"
    return f"{number} {noun}" if many else f"{number} of {noun}"


def many(resource: str) -> str:
    """The resource in the plural, if it has one: `GPUs`, `memory`."""
    one, plural = _noun(resource)
    return plural or one


def is_counted(resource: str, value: int) -> bool:
    """Whether an amount is several things (`them`) and not a quantity of something, or one thing (`it`)."""
    return bool(_noun(resource)[1]) and figure(resource, value) != "1"


def _noun(resource: str) -> tuple[str, str]:
    if resource in _NAMES:
        return _NAMES[resource]
    if resource.startswith("hugepages-"):
        return resource, ""
    last = resource.rpartition("/")[2].lower()
    if last in _ACCELERATORS:
        return last.upper(), f"{last.upper()}s"
    return resource, resource


def _decimal(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
