"""A workload counts as usage of its LocalQueue from the moment it is admitted, once."""

from tests.unit.engine import builders as b
from turnstile.engine import Options, State
from turnstile.engine.options import AdmissionFairSharing
from turnstile.engine.quota.info import Info

SCOPE = {"admissionMode": "UsageBasedAdmissionFairSharing"}


def state(**scope: object) -> State:
    """One queue, sharing by usage."""
    options = Options(admission_fair_sharing=AdmissionFairSharing(usage_half_life=10.0, usage_sampling_interval=1.0))
    return b.world(b.queue("a", **scope), options=options)


def test_an_admission_counts_at_once() -> None:
    """Its usage shows only after the next sample."""
    world = state(admissionScope=SCOPE)
    world.sharing.push_penalty(Info(b.workload("w", "a"), world.surroundings), world.cluster_queues["a"], b.NOW)
    assert list(world.sharing.usages["team/a"].penalties) == ["team/w"]


def test_one_that_held_quota_already_is_not_counted_twice() -> None:
    """It counted when it got its quota."""
    world = state(admissionScope=SCOPE)
    holding = b.with_conditions(b.workload("w", "a"), QuotaReserved=("True", "QuotaReserved"))
    world.sharing.push_penalty(Info(holding, world.surroundings), world.cluster_queues["a"], b.NOW)
    assert not world.sharing.usages


def test_a_queue_that_does_not_share_by_usage_counts_nothing() -> None:
    """Its line does not look at usage."""
    world = state()
    world.sharing.push_penalty(Info(b.workload("w", "a"), world.surroundings), world.cluster_queues["a"], b.NOW)
    assert not world.sharing.usages
