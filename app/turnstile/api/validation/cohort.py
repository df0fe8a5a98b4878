"""Rules of Cohort: quota as in a ClusterQueue, where limits need a parent to borrow from and lend to."""

from turnstile.api.cohort import Cohort
from turnstile.api.validation.errors import FieldError, brought
from turnstile.api.validation.quota import resource_groups_errors, weight_errors


def validate_cohort(new: Cohort, old: Cohort | None = None) -> list[FieldError]:
    """All faults of a Cohort on create, or those that an update brings. A cycle is not refused: it takes its members
    out of use."""
    errors = _errors(new)
    return errors if old is None else brought(errors, lambda: _errors(old))


def _errors(new: Cohort) -> list[FieldError]:
    unlimited = "" if new.spec.parent_name else "must be nil when parent is empty"
    return resource_groups_errors(new.spec.resource_groups, unlimited=unlimited) + weight_errors(new.spec.fair_sharing)
