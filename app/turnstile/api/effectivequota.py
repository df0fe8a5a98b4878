"""The quota that holds: that of the spec, or the one that another controller has written into the status."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.quota import ResourceGroup

Q = TypeVar("Q", bound=ClusterQueue | Cohort)


def with_effective_quota(given: Q) -> Q:
    """A ClusterQueue or Cohort with the quota that holds in its spec; itself if that is the quota of the spec."""
    effective = given.status.effective_quotas
    if effective is None:
        return given
    return replace(given, spec=replace(given.spec, resource_groups=effective.resource_groups))


def without_effective_quota(given: Q) -> Q:
    """A ClusterQueue or Cohort whose status has no quota, where such a quota means nothing."""
    if given.status.effective_quotas is None:
        return given
    return replace(given, status=replace(given.status, effective_quotas=None))


def with_groups(given: Q, groups: Sequence[ResourceGroup]) -> Q:
    """A ClusterQueue or Cohort with another quota: in its spec, and in its status if the quota that holds is there."""
    effective, held = given.status.effective_quotas, list(groups)
    given = replace(given, spec=replace(given.spec, resource_groups=held))
    if effective is None:
        return given
    effective = replace(effective, resource_groups=held)
    return replace(given, status=replace(given.status, effective_quotas=effective))


def set_by(given: ClusterQueue | Cohort) -> str:
    """Kind and name of the object whose controller has written the quota of a ClusterQueue or Cohort; empty if the
    quota is that of the spec."""
    effective = given.status.effective_quotas
    return f"{effective.orchestrator_ref.kind} {effective.orchestrator_ref.name}" if effective is not None else ""
