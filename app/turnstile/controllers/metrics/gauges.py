"""Parts of the gauges of queues and of LocalQueues: their sources, series in steps, and rests."""

import math
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.samples import Sample

from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.meta import ObjectMeta
from turnstile.api.quantity import MAX_INT64
from turnstile.controllers.metrics.labels import MetricOptions
from turnstile.controllers.metrics.series import Values, labelled
from turnstile.controllers.metrics.tallies import Tallies
from turnstile.controllers.queues.statuses import CountedShares
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import State
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.http.exposition import Lazy, Steps

Row = tuple[Values, float] | None
"""Label values and value of a series; None to rest."""
Rows = Callable[[], Iterator[Row]]

REST: Final = 256
"""Workloads that are looked at between two rests."""


def amount(resource: str, value: int) -> float:
    """An amount of the engine as metrics have it: cores of cpu, infinite if it is unlimited."""
    if value >= MAX_INT64:
        return math.inf
    return value / 1000 if resource == "cpu" else float(value)


class Gauges:
    """The sources of the gauges of one term of leadership."""

    def __init__(
        self, cluster: ClusterView, state: State, shares: CountedShares, tallies: Tallies, options: MetricOptions
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._counted = shares
        self._tallies = tallies
        self._options = options

    def _queues(self) -> Iterator[tuple[str, ClusterQueue, Values]]:
        """Name, queue and custom label values of each ClusterQueue."""
        for name in list(self._state.cluster_queues):
            queue = self._state.cluster_queues.get(name)
            if queue is not None:
                meta = meta_of(self._cluster.cluster_queues.get(name)) or queue.api.metadata
                yield name, queue, self._options.values("ClusterQueue", meta)

    def _admits(self, name: str) -> bool:
        return self._state.questions.active_reason(name)[0]


def gauge_of(name: str, text: str, labels: Values, rows: Rows) -> Metric:
    """The gauge `kueue_NAME`, whose series are computed while a scrape writes them."""
    name = f"kueue_{name}"

    def steps() -> Steps:
        for row in rows():
            yield Sample(name, labelled(labels, row[0]), row[1]) if row is not None else None

    return Lazy(name, text, "gauge", steps)


def resting(infos: tuple[Info, ...]) -> Iterator[Info | None]:
    """The Workloads, with a rest after every few."""
    for count, info in enumerate(infos, 1):
        yield info
        if count % REST == 0:
            yield None


def meta_of(value: ApiClusterQueue | Cohort | None) -> ObjectMeta | None:
    """The metadata of an object, if there is one."""
    return value.metadata if value is not None else None
