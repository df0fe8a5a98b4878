"""The run that a preempted Workload loses, in hours of the resource that people think of first."""

from collections.abc import Mapping
from typing import Final

from turnstile.wording.amounts import rank

_GIB: Final = 2**30
_UNITS: Final = {"cpu": ("core-hours", 1000), "memory": ("GiB-hours", _GIB), "ephemeral-storage": ("GiB-hours", _GIB)}


def unit_of(resource: str) -> tuple[str, int]:
    """The unit of an hour of a resource that is named beside it, and the amount that it is of."""
    return ("GiB-hours", _GIB) if resource.startswith("hugepages-") else _UNITS.get(resource, ("hours", 1))


def unit(resource: str) -> tuple[str, int]:
    """The unit of an hour of a resource, with the resource, and the amount that it is of."""
    words, size = unit_of(resource)
    if resource in _UNITS:
        return words, size
    if size == _GIB:
        return f"{words} of {resource}", size
    name = resource.rpartition("/")[2]
    return f"{name.upper() if name == 'gpu' else name}-{words}", size


def lost(held: Mapping[str, int], seconds: float) -> str:
    """`16.7 GPU-hours`, or `4 GPU-minutes`: those of accelerators, or else of CPUs, or of memory; empty if it held
    nothing, or has not run."""
    resource = min((each for each, amount in held.items() if amount > 0), key=rank, default="")
    if not resource or seconds <= 0:
        return ""
    name, size = unit(resource)
    hours = held[resource] / size * seconds / 3600
    return f"{hours:.3g} {name}" if hours >= 0.1 else f"{hours * 60:.2g} {name.replace('-hours', '-minutes')}"
