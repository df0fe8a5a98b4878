"""Renders metrics as text, in slices, so that a scrape of many series does not delay reviews or reconciling.

A `Lazy` family makes its samples while it is rendered; nothing holds them all at once.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.metrics_core import METRIC_TYPES
from prometheus_client.samples import Sample

Steps = Iterator[Sample | None]
"""Samples; None where the rendering may rest in between, for a sample that takes long to compute."""

_SLICE: Final = 0.0005
_BATCH: Final = 16


class Lazy(Metric):
    """A family whose samples `steps` makes one by one, each time it is read."""

    def __init__(self, name: str, documentation: str, typ: str, steps: Callable[[], Steps]) -> None:
        assert typ in METRIC_TYPES
        self.steps = steps
        super().__init__(name, documentation, typ)

    @property
    def samples(self) -> list[Sample]:
        """All samples at once, for readers of a registry other than `exposition`."""
        return [sample for sample in self.steps() if sample is not None]

    @samples.setter
    def samples(self, _: list[Sample]) -> None:
        """The base class begins with an empty list."""


class _Family:
    """One metric family as a collector that `generate_latest` can render."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


async def exposition(registry: CollectorRegistry) -> bytes:
    """The metrics as text. Families are read one after the other: each shows the figures of the moment it is read."""
    parts: list[bytes] = []
    pause = time.perf_counter() + _SLICE
    for metric in registry.collect():
        if not isinstance(metric, Lazy):
            parts.append(generate_latest(_Family(metric)))
        else:
            lines = [_head(metric)]
            for count, sample in enumerate(metric.steps()):
                if sample is not None:
                    lines.append(line(sample))
                if (count % _BATCH == 0 or sample is None) and time.perf_counter() > pause:
                    await asyncio.sleep(0)
                    pause = time.perf_counter() + _SLICE
            parts.append("".join(lines).encode())
        if time.perf_counter() > pause:
            await asyncio.sleep(0)
            pause = time.perf_counter() + _SLICE
    return b"".join(parts)


def _head(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    text = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {metric.type}\n"


def line(sample: Sample) -> str:
    """A sample as a line of the text format."""
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
    return (
        f"{sample.name}{{{labels}}} {number(sample.value)}\n" if labels else f"{sample.name} {number(sample.value)}\n"
    )


def _escaped(value: str) -> str:
    if '"' not in value and "\\" not in value and "\n" not in value:
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """A value, or the limit of a bucket, as the text format has it."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))
