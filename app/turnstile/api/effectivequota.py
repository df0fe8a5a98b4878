"""The quota that holds: that of the spec, or the one that another controller has written into the status."""

from typing import TypeVar

from msgspec.structs import replace

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort

Q = TypeVar("Q", bound=ClusterQueue | Cohort)


def with_effective_quota(given: Q) -> Q:
    """A ClusterQueue or Cohort with the quota that holds in its spec; itself if that is the quota of the spec."""
    effective = given.status.effective_quotas
    if effective is None:
        return given
    return replace(given, spec=replace(given.spec, resource_groups=effective.resource_groups))
