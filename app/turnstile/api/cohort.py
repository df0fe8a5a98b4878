"""Cohort: ClusterQueues (and Cohorts) that lend each other unused quota."""

from typing import Annotated, ClassVar

import msgspec

from turnstile.api import names
from turnstile.api.meta import Kind, Object
from turnstile.api.quota import EffectiveQuota, FairSharing, FairSharingStatus, ResourceGroups
from turnstile.api.schema import Field, Subdomain


class CohortSpec(Object):
    """Parent, own quota and weight."""

    parent_name: Annotated[Subdomain | None, Field("Cohort above; absent at the top.")] = None
    resource_groups: ResourceGroups = []
    fair_sharing: Annotated[FairSharing | None, Field("Weight among the members of the parent.")] = None


class CohortStatus(Object):
    """Only filled when fair sharing is on."""

    fair_sharing: Annotated[FairSharingStatus | None, Field("Share, while fair sharing is on.")] = None
    effective_quotas: EffectiveQuota = None


class Cohort(Kind):
    """kueue.x-k8s.io Cohort. Cluster-scoped; a cohort named by a member exists without an object."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "Cohort"
    PLURAL: ClassVar = "cohorts"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("co",)

    spec: CohortSpec = msgspec.field(default_factory=CohortSpec)
    status: CohortStatus = msgspec.field(default_factory=CohortStatus)
