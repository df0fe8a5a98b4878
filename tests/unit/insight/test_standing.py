"""A preemptor whose victims leave, one that was preempted, and one that can never start are told so, without remedies
that change nothing."""

import msgspec

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.decisions import preempted_message
from turnstile.insight.consequences import Change
from turnstile.insight.difference import difference
from turnstile.insight.explain import Explanation, explain
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.standing import Leaving

URGENT = b.workload("urgent", cpu=3, priority=10, second=1)


def victim(of: Workload) -> Workload:
    """One that was preempted for another Workload, and whose pods have not ended."""
    body = msgspec.to_builtins(b.held("victim", "main", {"cpu": "4"}))
    reason, message = "InClusterQueue", preempted_message(of, "InClusterQueue", "/main", "/main")
    for kind, why in (("Evicted", "Preempted"), ("Preempted", reason)):
        body["status"]["conditions"].append(
            {"type": kind, "status": "True", "reason": why, "message": message, "lastTransitionTime": b.STAMP}
        )
    return msgspec.convert(body, Workload)


def world(*more: Workload) -> Snapshot:
    """A full queue of 4 cpus that preempts Workloads of lower priority."""
    policy = {"withinClusterQueue": "LowerPriority"}
    queue = b.queue("main", {"default": {"cpu": 4}}, preemption=policy)
    snapshot = Snapshot()
    for each in (team(), b.flavor(), queue, b.local("main", "main"), *more):
        snapshot.put(each)
    return snapshot


def told(snapshot: Snapshot, key: str) -> Explanation:
    """The explanation for one who sees everything."""
    return explain(snapshot, Options(), b.NOW, key, sees=lambda _: True)


def test_a_preemptor_whose_victims_leave() -> None:
    """It is told whom it preempts and since when; nothing has to be changed, so nothing is proposed."""
    answer = told(world(victim(URGENT), URGENT), "team/urgent")
    assert answer.sentence == (f"Preempts team/victim since {b.STAMP}, and starts when it has ended.")
    assert answer.leaving == (Leaving("team/victim", b.STAMP, lost="0.33 core-minutes"),)
    assert answer.remedies == ()


def test_one_that_waits_for_victims_of_another() -> None:
    """It fits beside the preemptor when the victim has ended."""
    small = b.workload("small", cpu=1, priority=1, second=2)
    answer = told(world(victim(URGENT), URGENT, small), "team/small")
    assert answer.sentence == "Starts when team/victim, which was evicted, has ended."
    assert answer.remedies == ()


def test_a_victim() -> None:
    """By whom, why and since when, and that it waits again."""
    answer = told(world(victim(URGENT), URGENT), "team/victim")
    assert answer.sentence == (
        f"Preempted at {b.STAMP} by team/urgent, which comes first in the same queue; it waits in its queue again when"
        " its pods have ended."
    )


def test_a_victim_that_waits_again() -> None:
    """The preemption is told beside what is short now."""
    gone = b.released(victim(URGENT))
    snapshot = world(gone, b.held("urgent", "main", {"cpu": "3"}, priority=10))
    answer = told(snapshot, "team/victim")
    assert answer.preempted is not None
    assert (answer.preempted.by, answer.preempted.at) == ("team/urgent", b.STAMP)
    assert answer.state == "pending"


def test_one_that_can_never_start() -> None:
    """Even with nothing else in the cluster."""
    answer = told(world(b.workload("wide", cpu=16)), "team/wide")
    assert answer.sentence == (
        "Can never start as it is: it asks for 16 CPUs on default nodes, where its queue can have 4 at most."
    )


def test_explain_and_what_if_tell_the_same_amount() -> None:
    """Quota that is promised to a preemptor of another ClusterQueue is not free for others."""
    wide = b.workload("p", "b", cpu=6, priority=10, second=1)
    body = msgspec.to_builtins(victim(wide))
    body["spec"]["queueName"], body["status"]["admission"]["clusterQueue"] = "b", "b"
    snapshot = Snapshot()
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    for each in (
        team(), b.flavor(), b.local("a", "a"), b.local("b", "b"), wide, msgspec.convert(body, Workload),
        *(b.queue(name, {"default": {"cpu": cpu}}, "root", preemption=policy) for name, cpu in (("a", 2), ("b", 6))),
    ):  # fmt: skip
        snapshot.put(each)
    asked = b.workload("asked", "a", cpu=5, second=2)
    (verdict,) = difference(snapshot, Options(), b.NOW, Change((asked,))).asked
    (blocker,) = told(snapshot.changed([asked]), "team/asked").blockers
    assert f": asks 5, {blocker.available} free" in verdict.explanation
