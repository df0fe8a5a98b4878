"""Sets a condition or the state of an admission check in its list, and cuts texts to what the API server takes.

The rules are those of Kubernetes' `meta.SetStatusCondition` and Kueue's `SetAdmissionCheckState`. Must never read a
clock: the time comes from the caller.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from turnstile.api.meta import Condition, ConditionStatus
from turnstile.api.workload import AdmissionCheckState

MAX_MESSAGE: Final = 32768
"""Bytes of a condition's message."""
MAX_NOTE: Final = 1024
"""Bytes of an event's note."""

LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""The last time there is: that of the end of a span without an end."""
MOST_SECONDS: Final = 2**63 // 10**9
"""Seconds from which on a span counts as one without an end: Go's durations are 64 bits of nanoseconds, so that a time
which the API server has worked out from a longer span means nothing."""

_CUT: Final = " ..."


def timestamp(now: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as metav1.Time travels. Raises ValueError for a time without a zone."""
    if now.tzinfo is None:
        raise ValueError(f"now: {now.isoformat()}: give a time with a zone, such as datetime.now(UTC)")
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant(text: str | None) -> datetime | None:
    """A metav1.Time as a datetime with a zone; None if absent."""
    return datetime.fromisoformat(text) if text else None


def later(begin: datetime, seconds: float) -> datetime:
    """The time so many seconds after `begin`. The seconds may be any number that a tenant has written."""
    if seconds >= MOST_SECONDS:
        return LATEST
    try:
        return begin + timedelta(seconds=max(seconds, -MOST_SECONDS))
    except OverflowError:
        return LATEST


def set_condition(
    conditions: Iterable[Condition],
    *,
    type: str,  # noqa: A002
    status: ConditionStatus,
    reason: str,
    now: datetime | str,
    message: str = "",
    observed_generation: int | None = None,
) -> list[Condition]:
    """A new list with that condition set: in its place if it was there, else at the end; the others stay as they are.

    `lastTransitionTime` becomes `now` only if the status changes. The message is cut to what the API server takes.
    """
    entry = Condition(
        type=type,
        status=status,
        reason=reason,
        message=truncate_message(message),
        last_transition_time=now if isinstance(now, str) else timestamp(now),
        observed_generation=observed_generation,
    )
    result = []
    found = False
    for condition in conditions:
        if condition.type != type:
            result.append(condition)
        elif not found:
            found = True
            if condition.status == status and condition.last_transition_time:
                entry.last_transition_time = condition.last_transition_time
            result.append(entry)
    return result if found else [*result, entry]


def set_check_state(
    states: Iterable[AdmissionCheckState], new: AdmissionCheckState, *, now: datetime | str
) -> list[AdmissionCheckState]:
    """A new list with that check set: in its place if it was there, else at the end; the others stay as they are.

    The time of the transition is the one given, else `now`, and moves only when the state does.
    """
    states = list(states)
    old = next((state for state in states if state.name == new.name), None)
    if old is not None and old.state == new.state:
        since = old.last_transition_time
    else:
        since = new.last_transition_time or (now if isinstance(now, str) else timestamp(now))
    entry = msgspec.structs.replace(new, last_transition_time=since, message=truncate_message(new.message))
    return [*states, entry] if old is None else [entry if state is old else state for state in states]


def truncate_message(message: str) -> str:
    """A condition's message, cut to 32768 bytes."""
    return _cut(message, MAX_MESSAGE)


def truncate_note(note: str) -> str:
    """An event's note, cut to 1024 bytes."""
    return _cut(note, MAX_NOTE)


def _cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8; what is cut ends in an ellipsis and never in half a character."""
    if len(text) * 4 <= limit or len(encoded := text.encode(errors="replace")) <= limit:
        return text
    return encoded[: limit - len(_CUT)].decode(errors="ignore") + _CUT
