"""ResourceFlavor: a kind of node that quota is counted in."""

from typing import Annotated, ClassVar

import msgspec

from turnstile.api import names
from turnstile.api.meta import Kind, Object
from turnstile.api.pods import Taints, Tolerations
from turnstile.api.schema import Field, Rule, Subdomain


class ResourceFlavorSpec(Object):
    """Labels and taints of the flavor's nodes, and tolerations given to pods that get it."""

    RULES: ClassVar = (
        Rule(
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
            "at least one nodeLabel is required when topology is set",
        ),
        Rule(
            "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            "topologyName is immutable when topologyName is set",
        ),
    )

    node_labels: Annotated[
        dict[str, str],
        Field("Labels of the nodes; pods get them as node selector.", max_properties=8, map_type="atomic"),
    ] = {}
    node_taints: Annotated[Taints, Field("Taints of the nodes; a workload must tolerate them to get this flavor.")] = ()
    tolerations: Annotated[Tolerations, Field("Tolerations given to pods that get this flavor.")] = ()
    topology_name: Annotated[Subdomain | None, Field("Topology of the nodes.")] = None


class ResourceFlavor(Kind):
    """kueue.x-k8s.io ResourceFlavor. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "ResourceFlavor"
    PLURAL: ClassVar = "resourceflavors"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("flavor", "flavors", "rf")

    spec: ResourceFlavorSpec = msgspec.field(default_factory=ResourceFlavorSpec)
