"""A pod of a rollout takes the quota of an older pod of that rollout, and nobody else's."""

import pytest

from tests.unit.engine import builders as b
from turnstile.api import rollout
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, cycle
from turnstile.engine.options import FairSharing

LOWER_OWN = {"withinClusterQueue": "LowerPriority"}
SHARING = pytest.mark.parametrize("options", [Options(), Options(fair_sharing=FairSharing())], ids=["plain", "shares"])


def of(base: Workload, owner: str, stamp: str) -> Workload:
    """The Workload of a pod of that revision."""
    found = rollout.of_template(owner, stamp)
    return b.changed(base, metadata={"annotations": {rollout.WORKLOAD: found.text}})


def decide(running: list[Workload], incoming: Workload, options: Options) -> Decision:
    """What the first cycle decides about the incoming Workload. The quota is 2; lower priority is preempted."""
    state = b.world(b.queue("main", {"default": {"cpu": 2}}, preemption=LOWER_OWN), options=options)
    for each in (*running, incoming):
        state.put_workload(each, b.NOW)
    return next(decision for decision in cycle(state, b.NOW) if decision.key == incoming.metadata.key)


def victims(decision: Decision) -> list[str]:
    """Names of those that are preempted."""
    return [each.key.removeprefix("team/") for each in decision.victims]


def pod(name: str, *, priority: int = 0, second: int = 0) -> Workload:
    """The Workload of a pod that runs."""
    return b.held(name, "main", {"cpu": "1"}, priority=priority, second=second, at=second)


@SHARING
def test_a_new_pod_takes_the_place_of_an_old_one(options: Options) -> None:
    """Whatever their priorities are, and although a Workload of another job has a lower one."""
    running = [of(pod("old", priority=5), "deployment/web", ""), pod("other")]
    new = of(b.workload("new", priority=5, second=9), "deployment/web", "1:replaces")
    assert victims(decide(running, new, options)) == ["old"]


@SHARING
@pytest.mark.parametrize("stamp", ["1", "0:replaces"], ids=["goes on without", "older than what runs"])
def test_a_pod_of_a_rollout_preempts_nobody_else(options: Options, stamp: str) -> None:
    """Neither one whose rollout goes on without it, nor the old pod that is made in the place of one that gave way."""
    other = "0" if stamp == "1" else "1:replaces"
    running = [of(pod("same", priority=5), "deployment/web", other), pod("lower")]
    incoming = of(b.workload("in", priority=5, second=9), "deployment/web", stamp)
    assert victims(decide(running, incoming, options)) == []


@SHARING
def test_without_another_revision_the_policies_hold(options: Options) -> None:
    """A Deployment that is scaled up preempts as any other job, also beside another Deployment's revisions."""
    running = [of(pod("same", priority=5), "deployment/web", "1:replaces"), of(pod("lower"), "deployment/db", "0")]
    incoming = of(b.workload("in", priority=5, second=9), "deployment/web", "1:replaces")
    assert victims(decide(running, incoming, options)) == ["lower"]
