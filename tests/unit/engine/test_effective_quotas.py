"""The quota of a status holds in the place of the spec's, with the gate DynamicQuotaOrchestration and not without."""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.quota import EffectiveQuotas
from turnstile.engine.options import Gates, Options
from turnstile.engine.quota.tree import available
from turnstile.engine.state import State

REF = {"apiGroup": "example.com", "kind": "Schedule", "name": "nights"}


def effective(flavors: dict[str, dict[str, Any]] | None) -> EffectiveQuotas:
    """Quota that an orchestrator has written."""
    groups = b.quotas(flavors) if flavors else []
    return msgspec.convert({"orchestratorRef": REF, "resourceGroups": groups}, EffectiveQuotas)


def state(*, on: bool) -> State:
    """A ledger with or without the gate."""
    return State(Options(gates=Gates(dynamic_quota_orchestration=on)))


def cpus(found: State, queue: str = "cq") -> int:
    """Millis of CPU that a queue may have."""
    found.ledger.settle()
    node = found.cluster_queues[queue].node
    return available(node, found.surroundings.catalog.pair("default", "cpu"))


@pytest.mark.parametrize(("on", "expected"), [(True, 3000), (False, 10_000)])
def test_the_gate_decides(on: bool, expected: int) -> None:
    """An object that other programs write changes nothing where the gate is off."""
    found, queue = state(on=on), b.queue("cq")
    queue.status.effective_quotas = effective({"default": {"cpu": 3}})
    found.put_cluster_queue(queue, b.NOW)
    assert cpus(found) == expected


def test_a_change_of_the_status_alone_is_taken_over_and_back() -> None:
    """Nothing is quota too; the spec holds again when the status has none."""
    found, queue = state(on=True), b.queue("cq")

    def given(quota: EffectiveQuotas | None) -> ClusterQueue:
        return msgspec.structs.replace(queue, status=msgspec.structs.replace(queue.status, effective_quotas=quota))

    seen = []
    for quota in (None, effective({"default": {"cpu": 12}}), effective(None), None):
        found.put_cluster_queue(given(quota), b.NOW)
        seen.append(cpus(found))
    assert seen == [10_000, 12_000, 0, 10_000]
    assert queue.spec.resource_groups[0].flavors[0].resources[0].nominal_quota == "10"


def test_a_cohort_lends_what_its_status_says() -> None:
    """To the queues below it."""
    found, pool = state(on=True), b.cohort("pool")
    found.put_cohort(pool)
    found.put_cluster_queue(b.queue("cq", cohort="pool"), b.NOW)
    before = cpus(found)
    status = msgspec.structs.replace(pool.status, effective_quotas=effective({"default": {"cpu": 5}}))
    found.put_cohort(msgspec.structs.replace(pool, status=status))
    assert (before, cpus(found)) == (10_000, 15_000)
