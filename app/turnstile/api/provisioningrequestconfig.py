"""ProvisioningRequestConfig: how capacity is asked for from a cluster autoscaler."""

from typing import Annotated, ClassVar, Literal

from turnstile.api import names
from turnstile.api.meta import Kind, Object
from turnstile.api.schema import NODE_KEY_PATTERN, Field, Subdomain

MergePolicy = Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"]


class ProvisioningRequestRetryStrategy(Object):
    """How often and when to ask again after a failure."""

    backoff_limit_count: Annotated[int, Field("Attempts after the first one.", defaulted=True)] = 3
    backoff_base_seconds: Annotated[int, Field("Wait before the second attempt; doubles.", defaulted=True)] = 60
    backoff_max_seconds: Annotated[int, Field("Longest wait.", defaulted=True)] = 1800


class ProvisioningRequestPodSetUpdatesNodeSelector(Object):
    """A node selector whose value comes from the provisioning class."""

    key: Annotated[str, Field("Node label.", min_length=1, max_length=317, pattern=NODE_KEY_PATTERN)]
    value_from_provisioning_class_detail: Annotated[
        str, Field("Detail of the ProvisioningRequest with the value.", min_length=1, max_length=32768)
    ]


class ProvisioningRequestPodSetUpdates(Object):
    """Additions to pods once there is capacity."""

    node_selector: Annotated[
        list[ProvisioningRequestPodSetUpdatesNodeSelector],
        Field("Node selectors.", max_items=8, list_type="map", map_keys=("key",)),
    ] = []


class ProvisioningRequestConfigSpec(Object):
    """Which class, for which resources, with which patience."""

    provisioning_class_name: Annotated[Subdomain, Field("Class of the requests.", min_length=1)]
    parameters: Annotated[
        dict[str, Annotated[str, Field(max_length=255)]], Field("Parameters of the class.", max_properties=100)
    ] = {}
    managed_resources: Annotated[
        list[str], Field("Resources that capacity is asked for; all if empty.", max_items=100, list_type="set")
    ] = []
    retry_strategy: Annotated[
        ProvisioningRequestRetryStrategy | None,
        Field(
            "What to do after a failure.",
            default={"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
        ),
    ] = None
    pod_set_updates: Annotated[ProvisioningRequestPodSetUpdates | None, Field("What pods get.")] = None
    pod_set_merge_policy: Annotated[MergePolicy | None, Field("Which pod sets share a request; none if absent.")] = None


class ProvisioningRequestConfig(Kind):
    """kueue.x-k8s.io ProvisioningRequestConfig. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "ProvisioningRequestConfig"
    PLURAL: ClassVar = "provisioningrequestconfigs"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("prc",)

    spec: Annotated[ProvisioningRequestConfigSpec | None, Field("What to ask for.")] = None
