"""Rules of ClusterQueue: quota that adds up, limits that need a cohort, checks on flavors that are there."""

from collections.abc import Collection
from typing import Final

from turnstile.api import gates as known
from turnstile.api import names, quantity
from turnstile.api.clusterqueue import ClusterQueue, ClusterQueueSpec, ConcurrentAdmissionPolicy
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import ObjectMeta
from turnstile.api.quota import ResourceQuota
from turnstile.api.validation.errors import IMMUTABLE, FieldError, brought, forbidden, invalid, not_supported
from turnstile.api.validation.labels import selector_errors
from turnstile.api.validation.quota import GROUPS, resource_groups_errors, shown, weight_errors

_MAX_TOTAL: Final = 256
_MAX_PAIRS: Final = 512
_MAX_CONCURRENT_FLAVORS: Final = 16


def default_cluster_queue(meta: ObjectMeta) -> list[str] | None:
    """The finalizers a new ClusterQueue should have, or None if it has them already."""
    return None if names.RESOURCE_IN_USE in meta.finalizers else [*meta.finalizers, names.RESOURCE_IN_USE]


def validate_cluster_queue(
    new: ClusterQueue, old: ClusterQueue | None = None, *, gates: Collection[str] = known.ON_BY_DEFAULT
) -> list[FieldError]:
    """All faults of a ClusterQueue on create, or those that an update of `old` brings, with these feature gates on."""
    errors = _errors(new.spec, gates)
    if old is None:
        return errors + _on_flavors_errors(new.spec, None)
    errors = brought(errors, lambda: _errors(old.spec, gates))
    errors.extend(_on_flavors_errors(new.spec, None if known.REJECT_INVALID_ON_FLAVORS in gates else old.spec))
    if new.spec.concurrent_admission_policy != old.spec.concurrent_admission_policy:
        errors.append(invalid("spec.concurrentAdmissionPolicy", new.spec.concurrent_admission_policy, IMMUTABLE))
    return errors


def _errors(spec: ClusterQueueSpec, gates: Collection[str]) -> list[FieldError]:
    """Faults of a ClusterQueue, whatever it was before."""
    unlimited = "" if spec.cohort_name else "must be nil when cohort is empty"
    errors = resource_groups_errors(spec.resource_groups, unlimited=unlimited, rule=_lending_errors)
    errors.extend(_total_errors(spec))
    if spec.namespace_selector is not None:
        errors.extend(selector_errors("spec.namespaceSelector", spec.namespace_selector))
    errors.extend(_preemption_errors(spec))
    errors.extend(_fungibility_errors(spec))
    errors.extend(weight_errors(spec.fair_sharing))
    if known.CONCURRENT_ADMISSION in gates and spec.concurrent_admission_policy is not None:
        errors.extend(_concurrent_admission_errors(spec, spec.concurrent_admission_policy))
    return errors


def _lending_errors(path: str, quota: ResourceQuota) -> list[FieldError]:
    limit = quota.lending_limit
    if limit is None:
        return []
    try:
        if quantity.compare(limit, quota.nominal_quota) <= 0:
            return []
    except InvalidValue:  # said of the field that cannot be read
        return []
    return [invalid(f"{path}.lendingLimit", shown(limit), "must be less than or equal to the nominalQuota")]


def _total_errors(spec: ClusterQueueSpec) -> list[FieldError]:
    errors = []
    flavors = sum(len(group.flavors) for group in spec.resource_groups)
    resources = sum(len(group.covered_resources) for group in spec.resource_groups)
    for name, total in (("flavors", flavors), ("covered resources", resources)):
        if total > _MAX_TOTAL:
            detail = f"total number of {name} across all resourceGroups must be ≤ {_MAX_TOTAL}, got {total}"
            errors.append(invalid(GROUPS, total, detail))
    for i, group in enumerate(spec.resource_groups):
        pairs = len(group.flavors) * len(group.covered_resources)
        if pairs > _MAX_PAIRS:
            detail = f"number of flavor-resource combinations in a resourceGroup must be ≤ {_MAX_PAIRS}, got {pairs}"
            errors.append(invalid(f"{GROUPS}[{i}]", pairs, detail))
    return errors


def _preemption_errors(spec: ClusterQueueSpec) -> list[FieldError]:
    preemption = spec.preemption
    if preemption is None or preemption.reclaim_within_cohort != "Never":
        return []
    borrowing = preemption.borrow_within_cohort
    if borrowing is None or borrowing.policy == "Never":
        return []
    return [invalid("spec.preemption", preemption, "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never")]


def _fungibility_errors(spec: ClusterQueueSpec) -> list[FieldError]:
    fungibility = spec.flavor_fungibility
    if fungibility is None or fungibility.preference is None:
        return []
    if fungibility.when_can_borrow == fungibility.when_can_preempt == "TryNextFlavor":
        return []
    preference = fungibility.preference
    detail = f'preference "{preference}" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor'
    return [invalid("spec.flavorFungibility.preference", preference, detail)]


def _on_flavors_errors(spec: ClusterQueueSpec, tolerated: ClusterQueueSpec | None) -> list[FieldError]:
    """Checks may name flavors of the queue only.

    A fault that stood in `tolerated` already is let pass while the queue's flavors stay the same, so that a queue from
    before the rule can still be edited.
    """
    flavors = _flavors(spec)
    old_rules = {}
    if tolerated is not None and set(_flavors(tolerated)) == set(flavors) and tolerated.admission_checks_strategy:
        old_rules = {rule.name: set(rule.on_flavors) for rule in tolerated.admission_checks_strategy.admission_checks}
    strategy = spec.admission_checks_strategy
    errors = []
    for i, rule in enumerate(strategy.admission_checks if strategy is not None else ()):
        if old_rules.get(rule.name) == set(rule.on_flavors):
            continue
        for j, flavor in enumerate(rule.on_flavors):
            if flavor not in flavors:
                path = f"spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{j}]"
                errors.append(not_supported(path, flavor, sorted(flavors)))
    return errors


def _concurrent_admission_errors(spec: ClusterQueueSpec, policy: ConcurrentAdmissionPolicy) -> list[FieldError]:
    errors = []
    groups = spec.resource_groups
    given = "when ConcurrentAdmissionPolicy is defined"
    if len(groups) != 1:
        errors.append(invalid(GROUPS, len(groups), f"must have exactly one ResourceGroup {given}"))
    elif len(groups[0].flavors) > _MAX_CONCURRENT_FLAVORS:
        detail = f"cannot have more than {_MAX_CONCURRENT_FLAVORS} resource flavors in the ResourceGroup {given}"
        errors.append(invalid(f"{GROUPS}[0].flavors", len(groups[0].flavors), detail))
    mode, constraints = policy.migration.mode, policy.migration.constraints
    path = "spec.concurrentAdmissionPolicy.migration.constraints"
    if constraints is not None:
        if mode not in {None, "TryPreferredFlavors"}:
            detail = f'may only be set when migration.mode is "TryPreferredFlavors" (got "{mode}")'
            errors.append(forbidden(path, detail))
        last, flavors = constraints.last_acceptable_flavor_name, _flavors(spec)
        if last is not None and last not in flavors:
            detail = f"must be one of the flavors defined in the ClusterQueue: [{' '.join(flavors)}]"
            errors.append(invalid(f"{path}.lastAcceptableFlavorName", last, detail))
    if spec.queueing_strategy == "StrictFIFO":
        detail = f"StrictFIFO queueing strategy cannot be used {given}"
        errors.append(invalid("spec.queueingStrategy", spec.queueing_strategy, detail))
    return errors


def _flavors(spec: ClusterQueueSpec) -> list[str]:
    """Names of the queue's flavors, each once, in order of preference."""
    return list(dict.fromkeys(flavor.name for group in spec.resource_groups for flavor in group.flavors))
