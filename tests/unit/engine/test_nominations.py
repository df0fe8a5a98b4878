"""What preemption leaves behind: the claim of a preemptor ends with it, and no preemptor has a victim twice."""

from tests.unit.engine import builders as b
from turnstile.engine import State, cycle_steps
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.queue.nominations import Claim

CLAIM = Claim("team/high", "4 cpu", ("team/low",))


def one_queue() -> State:
    """A ClusterQueue in which a preemptor waits."""
    state = b.world(b.queue("a", {"default": {"cpu": 0}}))
    state.put_workload(b.workload("high", "a"), b.NOW)
    return state


def test_a_claim_is_noted_once() -> None:
    """Another claim of the same preemptor makes Workloads inadmissible anew."""
    nominations = one_queue().nominations
    assert nominations.pass_over("a", CLAIM)
    assert not nominations.pass_over("a", CLAIM)
    assert nominations.pass_over("a", CLAIM._replace(usage="5 cpu"))


def test_a_claim_lasts_while_its_preemptor_is_active() -> None:
    """Then the Workloads that it left no room are tried again."""
    state = one_queue()
    state.retries.cluster_queues.clear()
    state.nominations.pass_over("a", CLAIM)
    state.nominations.end_claims()
    assert state.nominations.passed_over
    state.queues.leave("team/high")
    state.nominations.end_claims()
    assert not state.nominations.passed_over
    assert list(state.retries.cluster_queues) == ["a"]


def test_a_nomination_ends_when_its_preemptor_holds_quota() -> None:
    """Should the preemptor wait again, it has no precedence."""
    state = one_queue()
    pending = state.cluster_queues["a"].pending
    pending.nomination = Nomination("team/high")
    state.nominations.end("team/high")
    assert pending.nomination is not None
    state.put_workload(b.held("high", "a", {"cpu": "1"}), b.NOW)
    assert pending.nomination is None


def test_a_cycle_that_is_left_at_its_first_stop_leaves_claims_as_they_were() -> None:
    """Also where it is left while it still does what events left for later."""
    state = one_queue()
    state.nominations.pass_over("a", CLAIM)
    for index in range(50):
        state.put_cluster_queue(b.queue(f"q{index}", {"default": {"cpu": 1}}), b.NOW)
    state.put_flavor(b.flavor(nodeLabels={"zone": "a"}))
    steps = cycle_steps(state, b.NOW, stretch=1)
    next(steps)
    assert state.behind
    steps.close()
    assert state.nominations.passed_over == {"a": (CLAIM,)}
