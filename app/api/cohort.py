"""Cohort: ClusterQueues (and Cohorts) that lend each other unused quota."""

from typing import ClassVar

import msgspec

from app.api import names
from app.api.meta import Kind, Object
from app.api.quota import FairSharing, FairSharingStatus, ResourceGroup


class CohortSpec(Object):
    """Parent, own quota and weight."""

    parent_name: str | None = None
    resource_groups: list[ResourceGroup] = []
    fair_sharing: FairSharing | None = None


class CohortStatus(Object):
    """Only filled when fair sharing is on."""

    fair_sharing: FairSharingStatus | None = None


class Cohort(Kind):
    """kueue.x-k8s.io Cohort. Cluster-scoped; a cohort named by a member exists without an object."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "Cohort"
    PLURAL: ClassVar = "cohorts"
    NAMESPACED: ClassVar = False

    spec: CohortSpec = msgspec.field(default_factory=CohortSpec)
    status: CohortStatus = msgspec.field(default_factory=CohortStatus)
