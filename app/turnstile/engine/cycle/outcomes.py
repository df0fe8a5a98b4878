"""The outcome of an entry in a cycle, as the decision that is written out.

Expects the evictions it lists, so that no other cycle asks for them again. Must never choose.
"""

from collections.abc import Mapping, Sequence

from turnstile.engine.causes import Cause
from turnstile.engine.cycle import variants
from turnstile.engine.cycle.entries import Entry
from turnstile.engine.decisions import Decision, Outcome, Victim, preempted_message
from turnstile.engine.instants import Instant
from turnstile.engine.naming import name_for
from turnstile.engine.pace import AT_ONCE, Pace, Sliced
from turnstile.engine.preemption.targets import Targets
from turnstile.engine.queue.protections import runs_since
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import legacy
from turnstile.engine.reservations import Overdue
from turnstile.engine.state import State


def late_victims(message: str, info: Info, overdue: Mapping[str, Overdue]) -> str:
    """The message of a preemptor, and which of its victims did not go in time. A victim of another namespace is not
    named, because the condition with this message is read by users of the preemptor's namespace."""
    late = [
        Cause.VICTIM_LATE.says(victim=_sentence(name_for(info.namespace, key)), at=each.evicted_at)
        for key, each in overdue.items()
        if each.preemptor == info.uid
    ]
    if not late:
        return message
    more = f"; and {len(late) - 3} more" if len(late) > 3 else ""
    return f"{message.rstrip('. ')}. {'; '.join(late[:3])}{more}".removeprefix(". ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def evicts(entry: Entry) -> bool:
    """Whether its targets are to be evicted."""
    return entry.requeue_reason in {"PendingPreemption", "PendingMigration"} and bool(entry.targets)


def decision_on(entry: Entry, victims: Sequence[Victim], *, observable: bool) -> Decision:
    """The decision; `observable` if reasons are told apart (gate UnadmittedWorkloadsObservability)."""
    info, workload, assignment = entry.info, entry.info.workload, entry.assignment
    outcome: Outcome = "inadmissible" if assignment is None else "pending"
    if entry.held is not None:
        outcome, info = "admit", entry.held
    elif entry.status == "skipped":
        outcome = "skipped"
    elif entry.status == "preemptionGated":
        outcome = "gated"
    elif evicts(entry):
        outcome = "preempting" if entry.requeue_reason == "PendingPreemption" else "migrating"
    admitting = outcome == "admit"
    return Decision(
        key=info.key,
        uid=info.uid,
        generation=info.generation,
        cluster_queue=entry.queue.name,
        workload=workload,
        info=info,
        outcome=outcome,
        status=entry.status,
        mode=assignment.mode if assignment is not None else None,
        admitted=admitting and info.admitted,
        victims=victims,
        condition_reason=entry.quota_reason if admitting or observable else legacy(entry.quota_reason),
        message="" if admitting else entry.message,
        requeue_reason=entry.requeue_reason,
        assignment=assignment,
        borrowing=entry.rank[2] if entry.rank is not None else 0,
        recomputed=entry.recomputed,
    )


def reasons_of(targets: Targets, pace: Pace) -> Sliced[dict[str, str]]:
    """Why each target is preempted, by key."""
    reasons: dict[str, str] = {}
    for target in targets:
        pace.left -= 0.5
        if pace.left <= 0:
            yield
            pace.renew()
        reasons[target.info.key] = target.reason
    return reasons


def victims_of(entry: Entry, state: State, expected: list[str], now: Instant, pace: Pace) -> Sliced[list[Victim]]:
    """Its victims. Keys of those that were not on their way out yet are added to `expected`."""
    victims, chosen = [], []
    own = entry.queue.node.path()
    messages: dict[tuple[str, str], str] = {}
    for target in entry.targets:
        pace.left -= 2
        if pace.left <= 0:
            yield
            pace.renew()
        info, reason, name = target.info, target.reason, target.queue.name
        new = not state.reservations.is_evicted(info)
        if new:
            expected.append(info.key)
            chosen.append(info.key)
            state.reservations.expect_eviction(info.key, reason)
        message = messages.get((name, reason))
        if message is None:
            if len(messages) >= AT_ONCE:
                messages.clear()
            message = messages[name, reason] = (
                variants.migration_message(entry.info.uid)
                if reason == "FlavorMigration"
                else preempted_message(entry.info.workload, reason, own, target.queue.node.path())
            )
        since = runs_since(info) if new else None
        victims.append(
            Victim(
                key=info.key,
                uid=info.uid,
                cluster_queue=name,
                reason=reason,
                message=message,
                new=new,
                held=info.held if new else {},
                ran=0.0 if since is None else max(0.0, now - since),
            )
        )
    if chosen and entry.requeue_reason == "PendingPreemption":
        state.nominations.repeats.add(entry.queue, entry.info.key, chosen)
    return victims
