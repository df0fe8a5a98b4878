"""Rules that ClusterQueue and Cohort share: resource groups and the weight of fair sharing."""

from collections.abc import Callable
from typing import Final

from turnstile.api import quantity
from turnstile.api.errors import InvalidValue
from turnstile.api.pods import Quantity
from turnstile.api.quota import FairSharing, FlavorQuotas, ResourceGroup, ResourceQuota
from turnstile.api.validation.errors import NEGATIVE, FieldError, duplicate, invalid
from turnstile.api.validation.labels import label_key_errors

GROUPS: Final = "spec.resourceGroups"
_SMALLEST_WEIGHT: Final = "1n"

QuotaRule = Callable[[str, ResourceQuota], list[FieldError]]
"""The rules of a kind for one quota beyond the common rules."""


def resource_groups_errors(
    groups: list[ResourceGroup], *, unlimited: str = "", rule: QuotaRule | None = None
) -> list[FieldError]:
    """All faults of the resource groups. `unlimited`, if not empty, is why nothing may limit borrowing and lending."""
    errors = []
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(groups):
        path = f"{GROUPS}[{i}]"
        for j, resource in enumerate(group.covered_resources):
            here = f"{path}.coveredResources[{j}]"
            errors.extend(label_key_errors(here, resource))
            if resource in resources:
                errors.append(duplicate(here, resource))
            resources.add(resource)
        for j, flavor in enumerate(group.flavors):
            here = f"{path}.flavors[{j}]"
            errors.extend(_flavor_errors(here, flavor, group.covered_resources, unlimited=unlimited, rule=rule))
            if flavor.name in flavors:
                errors.append(duplicate(f"{here}.name", flavor.name))
            flavors.add(flavor.name)
    return errors


def _flavor_errors(
    path: str, flavor: FlavorQuotas, covered: list[str], *, unlimited: str, rule: QuotaRule | None
) -> list[FieldError]:
    errors = []
    for k, quota in enumerate(flavor.resources):
        here = f"{path}.resources[{k}]"
        if k < len(covered) and quota.name != covered[k]:
            errors.append(invalid(f"{here}.name", quota.name, "must match the name in coveredResources"))
        errors.extend(amount_errors(f"{here}.nominalQuota", quota.nominal_quota))
        for name, limit in (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)):
            if limit is None:
                continue
            errors.extend(amount_errors(f"{here}.{name}", limit))
            if unlimited:
                errors.append(invalid(f"{here}.{name}", shown(limit), unlimited))
        if rule is not None:
            errors.extend(rule(here, quota))
    return errors


def amount_errors(path: str, value: Quantity) -> list[FieldError]:
    """The field must be a quantity of 0 or more."""
    try:
        return [invalid(path, shown(value), NEGATIVE)] if quantity.compare(value, 0) < 0 else []
    except InvalidValue as error:
        return [invalid(path, str(value), error.cure)]


def weight_errors(fair_sharing: FairSharing | None) -> list[FieldError]:
    """The weight must be 0, or large enough to divide by. Kueue's path is `spec.fairSharing`, not the weight."""
    if fair_sharing is None:
        return []
    path, weight = "spec.fairSharing", fair_sharing.weight
    if errors := amount_errors(path, weight):
        return errors
    if quantity.compare(weight, 0) > 0 and quantity.compare(weight, _SMALLEST_WEIGHT) <= 0:
        return [invalid(path, shown(weight), "When not 0, weight must be > 10e-9")]
    return []


def shown(value: Quantity) -> str:
    """A quantity as an error shows it: in canonical form, or as it is if it cannot be read."""
    try:
        return quantity.canonical(value)
    except InvalidValue:
        return str(value)
