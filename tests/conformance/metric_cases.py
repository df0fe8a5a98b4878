"""Replays recorded cases about metrics: custom labels, LocalQueues with metrics, buckets, pending requests, quotas."""

import math
from collections.abc import Iterator
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers import worlds
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import ObjectMeta
from turnstile.api.selectors import LabelSelector, LabelSelectorRequirement
from turnstile.api.workload import Workload
from turnstile.controllers.metrics.labels import CustomLabel, MetricOptions
from turnstile.controllers.metrics.queues import QueueMetrics
from turnstile.controllers.metrics.series import exponential
from turnstile.controllers.metrics.tallies import Tallies
from turnstile.controllers.metrics.workloadtimes import unadmitted
from turnstile.controllers.queues.statuses import CountedShares
from turnstile.controllers.view.ledgerfeed import follow
from turnstile.engine import State
from turnstile.kube.store import Store

Json = Any
_OPERATORS = {"=": "In", "==": "In", "in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


def labels(case: Case, _: dict[str, Json]) -> list[str]:
    """Names and values of custom labels."""
    given = case.body["case"]
    options = MetricOptions(custom=tuple(map(_label, given["entries"] or ())))
    sources = tuple(given["sourceKinds"])
    meta = ObjectMeta(labels=given["labels"] or {}, annotations=given["annotations"] or {})
    values = [value for source in sources for value in options.values(source, meta)]
    return [
        *differs("names", given["wantNames"] or [], list(options.names(*sources))),
        *differs("values", given["want"] or [], values),
    ]


def stored_labels(case: Case, _: dict[str, Json]) -> list[str]:
    """Values of an object, and then of its next version."""
    given = case.body["case"]
    options = MetricOptions(custom=tuple(map(_label, given["entries"])))
    found = []
    for what in ("initial", "changed"):
        meta = ObjectMeta(labels=given[f"{what}Labels"] or {}, annotations=given[f"{what}Annotations"] or {})
        sources = tuple(dict.fromkeys(label.source for label in options.custom))
        values = [value for source in sources for value in options.values(source, meta)]
        found += differs(what, given[f"want{what.capitalize()}"] or [], values)
    return found


def _label(entry: Json) -> CustomLabel:
    return CustomLabel(
        name=entry["name"],
        source=entry.get("sourceKind") or "ClusterQueue",
        key=entry.get("sourceLabelKey") or entry.get("sourceAnnotationKey") or entry["name"],
        from_annotation="sourceAnnotationKey" in entry,
        tracked=frozenset(entry.get("trackedValues") or ()),
    )


def shown(case: Case, _: dict[str, Json]) -> list[str]:
    """Which LocalQueues have metrics."""
    given = case.body["case"]
    config = given["cfg"] or {}
    selector = LabelSelector(
        match_expressions=[
            LabelSelectorRequirement(
                key=each["key"], operator=_OPERATORS[each["operator"]], values=each.get("strValues") or []
            )
            for each in config.get("QueueSelector") or ()
        ]
    )
    options = MetricOptions(local_queues=config.get("Enabled", False), selector=selector)
    return differs("shown", given["want"], options.shows(ObjectMeta(labels=given["lqLabels"] or {})))


def buckets(_: Case, run: dict[str, Json]) -> list[str]:
    """Of histograms."""
    (check,) = run["checks"]
    return differs("buckets", [float(each) for each in check["got"]], list(exponential(len(check["got"]))))


def why_unadmitted(case: Case, _: dict[str, Json]) -> list[str] | None:
    """Reason and cause for which a Workload counts as not admitted."""
    given = case.body["case"]
    if given is None:
        return None
    want = given.get("expectedStatus")
    expected = (want.get("Reason", ""), want.get("UnderlyingCause", "")) if want else None
    return differs("why", expected, unadmitted(world.load(Workload, given["workload"])))


class _Followed:
    """Stores, and the gauges of the ledger that follows them."""

    def __init__(self) -> None:
        self.cluster = worlds.world()
        self.state = State()
        follow(self.state, self.cluster, take=lambda change: change())
        shares, tallies = CountedShares(self.state), Tallies(self.cluster.workloads)
        self.metrics = QueueMetrics(self.cluster, self.state, shares, tallies, MetricOptions(resources=True))
        self._version = 100

    def observe(self, store: Store[Any], value: Any) -> None:
        """Store the next version of an object."""
        self._version += 1
        value.metadata.resource_version = str(self._version)
        store.observe(value)

    def samples(self, metric: str) -> Iterator[tuple[dict[str, str], float]]:
        """Labels but the role, and values."""
        for family in self.metrics.collect():
            if family.name == f"kueue_{metric}":
                for sample in family.samples:
                    yield {key: value for key, value in sample.labels.items() if key != "replica_role"}, sample.value

    def step(self, op: str, args: Json) -> bool:
        """Play a recorded call. False if it is unknown."""
        match op.rpartition(".")[2]:
            case "AddClusterQueue" | "UpdateClusterQueue":
                self.observe(self.cluster.cluster_queues, world.load(ClusterQueue, args["cq"]))
            case "AddLocalQueue" | "UpdateLocalQueue":
                self.observe(self.cluster.local_queues, world.load(LocalQueue, args["q"]))
            case "AddOrUpdateWorkload" | "UpdateWorkload":
                self.observe(self.cluster.workloads, world.load(Workload, args["w"]))
            case "DeleteWorkload" | "DeleteAndForgetWorkload":
                self.cluster.workloads.delete(args["wlKey"])
            case _:
                return False
        return True


def requested(case: Case, run: dict[str, Json]) -> list[str]:
    """What those that wait request together."""
    followed = _Followed()
    for step in run.get("trace") or ():
        followed.step(step["op"], step.get("args") or {})
    found = {each["resource"]: value for each, value in followed.samples("cluster_queue_resource_pending")}
    return differs("cpu", float(case.body["case"]["wantValue"]), found.get("cpu"))


_QUOTAS = {
    "NominalDPs": "cluster_queue_nominal_quota",
    "BorrowingDPs": "cluster_queue_borrowing_limit",
    "LendingDPs": "cluster_queue_lending_limit",
    "UsageDPs": "cluster_queue_resource_reservation",
}


def quotas(_: Case, run: dict[str, Json]) -> list[str]:
    """Quotas, limits and reservations of a ClusterQueue, before and after a change of it."""
    followed, found = _Followed(), []
    checks = {check["want"]: check["got"] for check in run["checks"]}
    for step in run["trace"]:
        op = step["op"].rpartition(".")[2]
        if op == "RecordClusterQueueResourceMetrics":
            found += _compared(followed, checks["tc.wantMetrics"])
        elif op == "updateResourceMetrics":
            found += _compared(followed, checks["tc.wantUpdatedMetrics"])
        else:
            followed.step(step["op"], step.get("args") or {})
    return found


def _compared(followed: _Followed, want: Json) -> list[str]:
    found = []
    for what, metric in _QUOTAS.items():
        expected = [
            ({k: v for k, v in each["Labels"].items() if k != "replica_role"}, _number(each.get("Value", 0)))
            for each in want.get(what) or ()
        ]
        have = list(followed.samples(metric))
        found += differs(what, sorted(expected, key=str), sorted(have, key=str))
    return found


def _number(value: Json) -> float:
    return math.inf if value == "+Inf" else float(value)
