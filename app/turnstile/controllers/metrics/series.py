"""Counters and histograms of the leader: series by label values that can be forgotten, each a few numbers.

prometheus_client holds an object with a lock for each bucket of each series, ten times as much memory, for threads that
do not exist here. Must never know what is counted.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.samples import Sample

from turnstile.http.exposition import Lazy, Steps, number

ROLE: Final = "replica_role"
"""Label of Kueue for the role of the process that counts; here only a leader counts."""
LEADER: Final = "leader"

Values = tuple[str, ...]


def exponential(count: int) -> tuple[float, ...]:
    """Kueue's buckets: 1, then 2.5 doubled each time."""
    return 1.0, *(2.5 * 2**i for i in range(count - 1))


def labelled(names: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Labels of a sample, with the role."""
    labels = dict(zip(names, values, strict=True))
    labels[ROLE] = LEADER
    return labels


class _Series:
    """The parts that `Count` and `Times` share: a name, a text, label names, and forgetting."""

    def __init__(self, name: str, text: str, labels: Iterable[str]) -> None:
        self.name = name if name.startswith("multikueue_") else f"kueue_{name}"
        self.text = text
        self.labels = tuple(labels)

    def _matching(self, held: Mapping[Values, object], match: Mapping[str, str]) -> list[Values]:
        if not match.keys() <= set(self.labels):
            return []
        places = [(self.labels.index(name), value) for name, value in match.items()]
        return [values for values in held if all(values[place] == value for place, value in places)]


class Count(_Series):
    """A counter."""

    def __init__(self, name: str, text: str, labels: Iterable[str]) -> None:
        super().__init__(name, text, labels)
        self.held: dict[Values, float] = {}

    def add(self, values: Values, times: float = 1) -> None:
        """Count."""
        self.held[values] = self.held.get(values, 0) + times

    def forget(self, **match: str) -> None:
        """Remove the series with these label values; all without any."""
        for values in self._matching(self.held, match):
            del self.held[values]

    def family(self) -> Metric:
        """The counter as a registry has it."""
        return Lazy(self.name, self.text, "counter", self._steps)

    def _steps(self) -> Steps:
        for values, count in list(self.held.items()):
            yield Sample(f"{self.name}_total", labelled(self.labels, values), count)


class Times(_Series):
    """A histogram of seconds."""

    def __init__(self, name: str, text: str, labels: Iterable[str], buckets: Sequence[float]) -> None:
        super().__init__(name, text, labels)
        self._limits = tuple(buckets)
        self._bounds = (*map(number, buckets), "+Inf")
        self.held: dict[Values, list[float]] = {}
        """The sum, and then how many fell into each bucket."""

    def add(self, values: Values, seconds: float) -> None:
        """Observe a duration; less than nothing counts as nothing, as clocks of two machines differ."""
        seconds = max(0.0, seconds)
        observed = self.held.get(values)
        if observed is None:
            observed = self.held[values] = [0.0] * (len(self._limits) + 2)
        observed[0] += seconds
        observed[1 + bisect_left(self._limits, seconds)] += 1

    def forget(self, **match: str) -> None:
        """Remove the series with these label values; all without any."""
        for values in self._matching(self.held, match):
            del self.held[values]

    def family(self) -> Metric:
        """The histogram as a registry has it."""
        return Lazy(self.name, self.text, "histogram", self._steps)

    def _steps(self) -> Steps:
        for values, observed in list(self.held.items()):
            labels = labelled(self.labels, values)
            yield from histogram(self.name, labels, self._bounds, observed[1:], observed[0])


def histogram(
    name: str, labels: dict[str, str], bounds: Sequence[str], counts: Sequence[float], total: float
) -> Iterator[Sample]:
    """The samples of one series of a histogram, from how many fell into each bucket."""
    so_far = 0.0
    for bound, count in zip(bounds, counts, strict=True):
        so_far += count
        yield Sample(f"{name}_bucket", {**labels, "le": bound}, so_far)
    yield Sample(f"{name}_count", labels, so_far)
    yield Sample(f"{name}_sum", labels, total)
