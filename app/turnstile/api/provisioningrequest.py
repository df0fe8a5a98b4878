"""ProvisioningRequest of the cluster autoscaler: a request for nodes on which all pods of some pod sets fit.

Not a kind of Kueue's: the autoscaler brings its definition. Only the fields that Turnstile writes or reads are here.
"""

from typing import ClassVar, Final

import msgspec

from turnstile.api.meta import Condition, Kind, Object

ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
FAILED: Final = "Failed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"

CONSUME_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Annotation of pods: the ProvisioningRequest whose nodes the pod may use."""
CLASS_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotation of pods: the class of that request."""


class PodTemplateRef(Object):
    """Name of a PodTemplate in the namespace of the request."""

    name: str = ""


class RequestedPodSet(Object):
    """A number of pods of one template."""

    pod_template_ref: PodTemplateRef = msgspec.field(default_factory=PodTemplateRef)
    count: int = 0


class ProvisioningRequestSpec(Object):
    """The request; the API server refuses changes."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] = {}
    pod_sets: list[RequestedPodSet] = []


class ProvisioningRequestStatus(Object):
    """The answer of the autoscaler."""

    conditions: list[Condition] = []
    provisioning_class_details: dict[str, str] = {}


class ProvisioningRequest(Kind):
    """autoscaling.x-k8s.io ProvisioningRequest."""

    GROUP: ClassVar = "autoscaling.x-k8s.io"
    VERSION: ClassVar = "v1"
    VERSIONS: ClassVar = ("v1", "v1beta1")
    KIND: ClassVar = "ProvisioningRequest"
    PLURAL: ClassVar = "provisioningrequests"
    NAMESPACED: ClassVar = True

    spec: ProvisioningRequestSpec = msgspec.field(default_factory=ProvisioningRequestSpec)
    status: ProvisioningRequestStatus = msgspec.field(default_factory=ProvisioningRequestStatus)
