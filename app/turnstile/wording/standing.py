"""Sentences about the standing of a Workload: what holds it back besides quota, whom it preempts, who preempted it.

They begin in small letters and have no full stop, so that they can stand in a list; `grammar.sentence` makes a headline
of one.
"""

from collections.abc import Sequence
from typing import Final

from turnstile.api import names
from turnstile.engine import reasons
from turnstile.wording.amounts import many, nodes
from turnstile.wording.grammar import clause, counted, listed, several

PREEMPTORS: Final = {
    reasons.IN_CLUSTER_QUEUE: "which comes first in the same queue",
    reasons.IN_COHORT_RECLAMATION: "whose queue takes back quota that it had lent",
    reasons.IN_COHORT_FAIR_SHARING: "whose queue has less than its fair share",
    reasons.IN_COHORT_RECLAIM_WHILE_BORROWING: "whose queue takes back quota that it had lent, and borrows besides",
}
NAMED: Final = 5
"""Workloads that a sentence names at most."""


# --- held back --------------------------------------------------------------------------------------------------------


def inactive() -> str:
    """Somebody set `spec.active: false`."""
    return "it is deactivated: its spec.active is false"


def gated(gates: str) -> str:
    """An annotation holds it."""
    return f"its admission is gated by {gates}: whoever set the annotation {names.ADMISSION_GATED_BY} removes it"


def backs_off(until: str, attempt: int | None) -> str:
    """It was evicted, and is requeued later."""
    return f"its back-off ends at {until}, after attempt {attempt}"


def may_not_preempt(gate: str) -> str:
    """A preemption gate is closed."""
    return f"preemption gate {gate} is not open: it may not preempt"


def missing_local_queue(name: str, namespace: str) -> str:
    """The queue name is wrong, or the LocalQueue is not made yet."""
    return f"LocalQueue {name or '(none)'} does not exist in namespace {namespace}"


def missing_cluster_queue(name: str) -> str:
    """The LocalQueue names one that is not there."""
    return f"ClusterQueue {name} does not exist"


def stopped(kind: str, name: str, policy: str | None) -> str:
    """A queue of it is stopped."""
    return f"{kind} {name} is stopped (stopPolicy {policy})"


def behind(count: int, cluster_queue: str) -> str:
    """It is not tried yet."""
    are = f"{counted(count, 'Workload')} {'is' if count == 1 else 'are'}"
    return f"{are} before it in ClusterQueue {cluster_queue}, which is StrictFIFO: it is not tried until then"


def devices_not_counted(why: str) -> str:
    """It is held while it cannot be charged for its devices."""
    return f"it cannot be charged for the devices that its pods ask for: {why}"


def kept_lent(resource: str, flavor: str, cluster_queue: str, borrowed: Sequence[str]) -> str:
    """A policy keeps it from taking back what its ClusterQueue lends; `borrowed` would have to be borrowed besides."""
    lent = f"ClusterQueue {cluster_queue} does not take back {many(resource)} on {nodes(flavor)} that it has lent"
    if not borrowed:
        return f"{lent}: reclaimWithinCohort is Never"
    more = listed([many(each) for each in borrowed])
    return f"{lent}, because it would have to borrow {more}: reclaimWithinCohort does not apply"


def kept_by_lower(resource: str, flavor: str, cluster_queue: str) -> str:
    """A policy keeps it from preempting in its own ClusterQueue."""
    what = f"{many(resource)} on {nodes(flavor)}"
    return f"Workloads of lower priority in ClusterQueue {cluster_queue} keep {what}: withinClusterQueue is Never"


def figures_are_old(cluster_queue: str) -> str:
    """The status of a ClusterQueue stands for Workloads that cannot be read, and follows them a moment later."""
    return f"the figures of ClusterQueue {cluster_queue} are older than the last decision: ask again in a moment"


def grows_later(pods: int, why: str) -> str:
    """An elastic job runs, and waits for more pods; `why` is a sentence."""
    return f"growth to {counted(pods, 'pod')}: {clause(why)}"


def cannot_start(why: str) -> str:
    """A pod of an admitted job cannot be given what it was admitted with."""
    return f"it cannot run where its job was admitted: {why}"


def cannot_preempt(cluster_queue: str) -> str:
    """The API server refuses an eviction. The refusal names the victim, which the owner of the preemptor may not be
    allowed to see."""
    return f"it cannot preempt in ClusterQueue {cluster_queue}: the API server refuses an eviction"


def nobody_leads(lease: str) -> tuple[str, str]:
    """The fault and its consequence: no process has the Lease."""
    return "No process leads.", f"Nothing is admitted until a process takes the Lease {lease}."


def leader_is_late() -> tuple[str, str]:
    """The fault and its consequence: the leader does not renew its Lease."""
    return (
        "The Lease was not renewed in time.",
        "Nothing is admitted until a process leads: look at the pods of the controller.",
    )


# --- it starts by itself ----------------------------------------------------------------------------------------------


def starts_now() -> str:
    """There is room for it."""
    return "nothing keeps it back: the next cycles of the scheduler admit it"


def preempts(victims: Sequence[str], since: str) -> str:
    """`victims` by the names that the reader may see, the first of them evicted at `since`."""
    they_have = "they have" if several(victims) else "it has"
    return f"preempts {listed(victims)} since {since}, and starts when {they_have} ended"


def starts_after(victims: Sequence[str]) -> str:
    """It waits for victims of others."""
    was, have = ("were", "have") if several(victims) else ("was", "has")
    return f"starts when {listed(victims)}, which {was} evicted, {have} ended"


def still_run(pods: Sequence[str], victim: str) -> str:
    """The pods of a victim that have not ended."""
    return (
        f"{counted(len(pods), 'pod')} of {victim} still {'runs' if len(pods) == 1 else 'run'}:"
        f" {listed(pods, most=NAMED)}"
    )


def loses(victim: str, lost: str) -> str:
    """The price of a preemption: `lost` is the run of the victim until then (`wording.lost`)."""
    return f"{victim} loses {lost} of its run by that"


def holds_still(seconds: float) -> str:
    """It was evicted, and its preemptor no longer waits for it."""
    return f"evicted, and still holds quota after {seconds:g}s: its pods have not ended or are not gone"


# --- what happened to it ----------------------------------------------------------------------------------------------


def preempted(by: str, reason: str, at: str = "") -> str:
    """`by` is the preemptor by the name that the reader may see; empty if it is gone."""
    when = f" at {at}" if at else ""
    return f"preempted{when} {by_whom(by, reason)}"


def by_whom(by: str, reason: str) -> str:
    """`by team-a/urgent, which comes first in the same queue`."""
    why = PREEMPTORS.get(reason, "")
    return f"by {by or 'a Workload that is gone'}" + (f", {why}" if why else "")


def goes_on(how: str) -> str:
    """It waits again after that."""
    return f"{how}; it waits in its queue again when its pods have ended"


def finished(message: str) -> str:
    """Its job ended."""
    return f"finished: {message}" if message else "finished"


def admitted() -> str:
    """Its job may run."""
    return "admitted: its pods may run"


def waits_for_checks(checks: Sequence[str]) -> str:
    """It holds quota, and is not admitted."""
    return f"holds its quota, and waits: {'; '.join(checks)}"


def check(name: str, state: str, message: str) -> str:
    """An admission check that is not ready."""
    return f"admission check {name} is {state}" + (f" ({message})" if message else "")
