"""Questions about the future let the pods of Workloads that end or are preempted leave their nodes."""

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import PREEMPTION, workload
from tests.unit.insight.racks import racks, runs
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.insight.explain import explain
from turnstile.insight.near import Near
from turnstile.insight.simulation import Simulation
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import Fate, WhatIf


def full(*, priority: int = 0) -> Snapshot:
    """A rack that one Workload holds with all its pods, and another that wants it."""
    snapshot = racks({"r1": [4]}, b.queue("main", {"gpu": {"cpu": 100}}, preemption=PREEMPTION))
    runs(snapshot, "runs", {"r1-0": 4})
    snapshot.put(workload("waits", 4, priority=priority, second=2))
    return snapshot


def test_a_preemptor_gets_the_rack_of_its_victim() -> None:
    """The answer does not stop at pods that a preemption ends."""
    state, _ = full(priority=5).state(Options(), b.NOW)
    fates = [each for each in WhatIf(now=b.NOW).answer(state) if isinstance(each, Fate)]
    assert [(each.key, each.outcome) for each in fates] == [
        ("team/runs", "preempted"), ("team/waits", "admitted"), ("team/runs", "pending"),
    ]  # fmt: skip


def test_a_forecast_frees_the_nodes_of_a_run_that_ends() -> None:
    """The one that waits starts when the other has ended."""
    state, _ = full().state(Options(), b.NOW)
    simulation = Simulation(state, b.NOW, lambda workload, _: 60.0 if workload.metadata.name == "runs" else 600.0)
    simulation.until_admitted(["team/waits"])
    assert "team/waits" in simulation.admitted


def test_one_that_fits_alone_is_not_told_that_it_never_fits() -> None:
    """The pods of others are gone where it is asked whether it would fit without them."""
    answer = explain(full(), Options(), b.NOW, "team/waits", sees=lambda _: True)
    assert "Can never start" not in answer.sentence
    assert "All fit on r1 once team/runs has ended." in answer.sentence


def test_workloads_of_other_cohorts_hold_nodes_too() -> None:
    """A question about one tree of Cohorts counts with the Workloads of all that share its nodes."""
    snapshot = full()
    snapshot.put(b.queue("other", {"gpu": {"cpu": 100}}))
    snapshot.put(b.local("other", "other"))
    runs(snapshot, "elsewhere", {"r1-0": 1}, queue="other")
    waits = snapshot.get(Workload, "team/waits")
    assert waits is not None
    assert Near(snapshot, Options()).of(waits).get(Workload, "team/elsewhere") is not None
