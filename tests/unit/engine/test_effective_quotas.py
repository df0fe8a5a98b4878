"""The quota of a status holds in the place of the spec's, with the gate DynamicQuotaOrchestration and not without."""

import pytest

from tests.unit.engine import builders as b
from turnstile.engine.options import Gates, Options
from turnstile.engine.quota.tree import available
from turnstile.engine.state import State


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
    found = state(on=on)
    found.put_cluster_queue(b.orchestrated(b.queue("cq"), {"default": {"cpu": 3}}), b.NOW)
    assert cpus(found) == expected


def test_a_change_of_the_status_alone_is_taken_over_and_back() -> None:
    """Nothing is quota too; the spec holds again when the status has none."""
    found, queue = state(on=True), b.queue("cq")
    seen = []
    for each in (queue, b.orchestrated(queue, {"default": {"cpu": 12}}), b.orchestrated(queue, None), queue):
        found.put_cluster_queue(each, b.NOW)
        seen.append(cpus(found))
    assert seen == [10_000, 12_000, 0, 10_000]
    assert queue.spec.resource_groups[0].flavors[0].resources[0].nominal_quota == "10"


def test_a_cohort_lends_what_its_status_says() -> None:
    """To the queues below it."""
    found, pool = state(on=True), b.cohort("pool")
    found.put_cohort(pool)
    found.put_cluster_queue(b.queue("cq", cohort="pool"), b.NOW)
    before = cpus(found)
    found.put_cohort(b.orchestrated(pool, {"default": {"cpu": 5}}))
    assert (before, cpus(found)) == (10_000, 15_000)
