"""Checks the annotations of ClusterQueues and WorkloadPriorityClasses that state a duration."""

from turnstile.api.meta import Kind
from turnstile.api.timeannotations import MINIMUM_RUN_TIME, NAMES, above_limit, fault, path
from turnstile.api.validation import FieldError
from turnstile.api.validation.errors import brought, invalid
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.webhooks.handlers import checking
from turnstile.webhooks.lookups import Lookups
from turnstile.webhooks.review import Handler


def validating(lookups: Lookups) -> Handler:
    """The handler of WorkloadPriorityClasses: it checks these annotations and nothing else."""
    return checking(
        WorkloadPriorityClass, lambda _, new, old: errors(new, old), warnings=lambda new, _: warnings(new, lookups)
    )


def errors(new: Kind, old: Kind | None) -> list[FieldError]:
    """The errors of values that cannot be read, unless they were there before."""
    return brought(_errors(new), lambda: _errors(old) if old is not None else [])


def _errors(given: Kind) -> list[FieldError]:
    found = ((name, fault(given.metadata, name)) for name in NAMES)
    return [invalid(path(name), given.metadata.annotations[name], why) for name, why in found if why]


def warnings(new: Kind, lookups: Lookups) -> tuple[str, ...]:
    """The warning of a minimum run time above the limit of the configuration, where that is known."""
    if lookups.offer is None:
        return ()
    why = above_limit(new.metadata, lookups.offer.state.options.longest_minimum_run_time)
    return (f"{path(MINIMUM_RUN_TIME)}: {new.metadata.annotations[MINIMUM_RUN_TIME]}: {why}",) if why else ()
