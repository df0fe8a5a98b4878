"""ResourceFlavor: a kind of node that quota is counted in."""

from typing import ClassVar

import msgspec

from app.api import names
from app.api.meta import Kind, Object
from app.api.pods import Taint, Toleration


class ResourceFlavorSpec(Object):
    """Labels and taints of the flavor's nodes, and tolerations given to pods that get it."""

    node_labels: dict[str, str] = {}
    node_taints: list[Taint] = []
    tolerations: list[Toleration] = []
    topology_name: str | None = None


class ResourceFlavor(Kind):
    """kueue.x-k8s.io ResourceFlavor. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "ResourceFlavor"
    PLURAL: ClassVar = "resourceflavors"
    NAMESPACED: ClassVar = False

    spec: ResourceFlavorSpec = msgspec.field(default_factory=ResourceFlavorSpec)
