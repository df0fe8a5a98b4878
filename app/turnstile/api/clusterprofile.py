"""multicluster.x-k8s.io ClusterProfile: a cluster of an inventory that another program keeps, as far as it is read."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from turnstile.api.meta import Kind, Object


class ClusterAccess(Object):
    """One way to reach the cluster: `cluster` is an entry as in a kubeconfig, the name says who gives credentials."""

    name: str = ""
    cluster: dict[str, Any] = {}


class ClusterProfileStatus(Object):
    """The ways to reach the cluster; `credential_providers` is the older name."""

    access_providers: Sequence[ClusterAccess] = ()
    credential_providers: Sequence[ClusterAccess] = ()


class ClusterProfile(Kind):
    """The fields of a ClusterProfile that are read."""

    GROUP: ClassVar = "multicluster.x-k8s.io"
    VERSION: ClassVar = "v1alpha1"
    KIND: ClassVar = "ClusterProfile"
    PLURAL: ClassVar = "clusterprofiles"
    NAMESPACED: ClassVar = True

    status: ClusterProfileStatus = msgspec.field(default_factory=ClusterProfileStatus)
