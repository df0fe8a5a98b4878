"""Checks the minimum run time before preemption of ClusterQueues and WorkloadPriorityClasses, an annotation."""

from turnstile.api.meta import Kind
from turnstile.api.minimumruntime import MINIMUM_RUN_TIME, PATH, fault, minimum_run_time, too_long
from turnstile.api.validation import FieldError
from turnstile.api.validation.errors import brought, invalid
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.webhooks.handlers import checking
from turnstile.webhooks.lookups import Lookups
from turnstile.webhooks.review import Handler


def validating(lookups: Lookups) -> Handler:
    """The handler of WorkloadPriorityClasses, of which nothing else is checked."""
    return checking(
        WorkloadPriorityClass, lambda _, new, old: errors(new, old), warnings=lambda new, _: warnings(new, lookups)
    )


def errors(new: Kind, old: Kind | None) -> list[FieldError]:
    """The error of a value that cannot be read, unless it was there before."""
    return brought(_errors(new), lambda: _errors(old) if old is not None else [])


def _errors(given: Kind) -> list[FieldError]:
    why = fault(given.metadata)
    return [invalid(PATH, given.metadata.annotations[MINIMUM_RUN_TIME], why)] if why else []


def warnings(new: Kind, lookups: Lookups) -> tuple[str, ...]:
    """The warning of a value above the limit of the configuration, where that is known."""
    longest = lookups.offer.state.options.longest_minimum_run_time if lookups.offer is not None else None
    seconds = minimum_run_time(new.metadata)
    if longest is None or seconds is None or seconds <= longest:
        return ()
    return (f"{PATH}: {new.metadata.annotations[MINIMUM_RUN_TIME]}: {too_long(longest)}",)
