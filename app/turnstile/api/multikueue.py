"""MultiKueue: which clusters a workload may be sent to, and how each is reached."""

from typing import Annotated, ClassVar, Literal

import msgspec

from turnstile.api import names
from turnstile.api.meta import Conditions, Kind, Object
from turnstile.api.schema import Column, Field, Rule, Text256


class MultiKueueConfigSpec(Object):
    """The clusters, in the order in which an incremental dispatcher tries them."""

    clusters: Annotated[
        list[Text256],
        Field(
            "MultiKueueClusters.",
            min_items=1,
            max_items=20,
            list_type="atomic",
            rules=(Rule("self.all(x, self.exists_one(y, x == y))", "must be unique"),),
        ),
    ]
    quota_management: Annotated[
        Literal["Manual", "Automated"] | None, Field("Whether quota follows that of the clusters; absent is Manual.")
    ] = None


class MultiKueueConfig(Kind):
    """kueue.x-k8s.io MultiKueueConfig. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "MultiKueueConfig"
    PLURAL: ClassVar = "multikueueconfigs"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("mkconf",)

    spec: Annotated[MultiKueueConfigSpec | None, Field("Which clusters.")] = None


class KubeConfig(Object):
    """A kubeconfig, in a Secret of our own namespace (key `kubeconfig`) or in a file."""

    location: Annotated[str, Field("Name of the Secret, or path of the file.", min_length=1, max_length=256)]
    location_type: Annotated[Literal["Secret", "Path"], Field("Where it is.", defaulted=True)] = "Secret"


class ClusterProfileReference(Object):
    """A ClusterProfile."""

    name: Annotated[str, Field("ClusterProfile.", min_length=1, max_length=256)]


class ClusterSource(Object):
    """One way to reach a cluster."""

    RULES: ClassVar = (
        Rule(
            "has(self.kubeConfig) != has(self.clusterProfileRef)",
            "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
        ),
    )

    kube_config: Annotated[KubeConfig | None, Field("By a kubeconfig.")] = None
    cluster_profile_ref: Annotated[ClusterProfileReference | None, Field("By a ClusterProfile.")] = None


class MultiKueueClusterSpec(Object):
    """How the cluster is reached."""

    cluster_source: Annotated[ClusterSource, Field("Kubeconfig or ClusterProfile.")]


class MultiKueueClusterStatus(Object):
    """Whether it is reached."""

    conditions: Conditions = ()


class MultiKueueCluster(Kind):
    """kueue.x-k8s.io MultiKueueCluster. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "MultiKueueCluster"
    PLURAL: ClassVar = "multikueueclusters"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("mkc",)
    COLUMNS: ClassVar = (
        Column("Connected", ".status.conditions[?(@.type=='Active')].status"),
        Column("Age", ".metadata.creationTimestamp", type="date"),
    )

    spec: Annotated[MultiKueueClusterSpec | None, Field("How to reach it.")] = None
    status: MultiKueueClusterStatus = msgspec.field(default_factory=MultiKueueClusterStatus)
