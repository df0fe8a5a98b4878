"""Metrics as text: what Prometheus reads, without holding the event loop."""

import asyncio
import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from turnstile.controllers.metrics.series import Count, Times, exponential
from turnstile.http.exposition import Lazy, Steps, exposition

pytestmark = pytest.mark.asyncio


class Collected(Collector):
    """A collector of these families."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """The families."""
        return iter(self._families)


def registry(*families: Metric) -> CollectorRegistry:
    """A registry of these families."""
    made = CollectorRegistry()
    made.register(Collected(*families))
    return made


def parsed(text: bytes) -> list[object]:
    """What a scraper reads; the order of labels says nothing."""
    return [
        (family.name, family.documentation, family.type, [(s.name, sorted(s.labels.items()), str(s.value))])
        for family in text_string_to_metric_families(text.decode())
        for s in family.samples
    ]


async def test_lazy_families_are_rendered_as_others() -> None:
    """With the same heads, escapes and numbers."""
    count = Count("made", 'What was "made"\nhere.', ("name",))
    count.add(('a "b"\\\n',), 3)
    times = Times("waited", "Waits.", ("name",), exponential(3))
    for seconds in (-1.0, 1.0, 2.0, 100.0):
        times.add(("x",), seconds)
    values = (math.inf, -math.inf, math.nan, 1e20, 0.5)

    def gauges() -> Steps:
        for place, value in enumerate(values):
            yield Sample("kueue_now", {"place": str(place)}, value)
            yield None

    of_ours = registry(count.family(), times.family(), Lazy("kueue_now", "Now.", "gauge", gauges))
    assert parsed(await exposition(of_ours)) == parsed(generate_latest(of_ours))


async def test_a_histogram_counts_up_to_each_bound() -> None:
    """And the sum and number of all; less than nothing is nothing."""
    times = Times("waited", "Waits.", ("name",), exponential(3))
    for seconds in (-1.0, 1.0, 2.0, 100.0):
        times.add(("x",), seconds)
    found = registry(times.family())
    for bound, count in (("1.0", 2), ("2.5", 3), ("5.0", 3), ("+Inf", 4)):
        labels = {"name": "x", "replica_role": "leader", "le": bound}
        assert found.get_sample_value("kueue_waited_bucket", labels) == count
    assert found.get_sample_value("kueue_waited_sum", {"name": "x", "replica_role": "leader"}) == 103


async def test_many_series_hold_the_loop_for_a_moment_only() -> None:
    """Another task runs again and again meanwhile."""
    count = Count("made", "Made.", ("name",))
    for number in range(20_000):
        count.add((str(number),))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    text = await exposition(registry(count.family()))
    task.cancel()
    families = list(text_string_to_metric_families(text.decode()))
    assert len(families[0].samples) == 20_000
    assert turns > 20


async def test_families_of_the_library_are_rendered_by_it() -> None:
    """They exist beside the lazy ones."""
    found = CollectorRegistry()
    Counter("a", "A.", ["x"], registry=found).labels("1").inc()
    Gauge("b", "B.", registry=found).set(2)
    assert await exposition(found) == generate_latest(found)
