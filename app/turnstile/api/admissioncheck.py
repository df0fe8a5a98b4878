"""AdmissionCheck: something that must agree before a workload is admitted, answered by a controller of its own."""

from typing import Annotated, ClassVar

import msgspec

from turnstile.api import names
from turnstile.api.meta import Conditions, Kind, Object, is_true
from turnstile.api.schema import Field, Label, Rule, Subdomain


class AdmissionCheckParametersReference(Object):
    """Object with the parameters of the check."""

    api_group: Annotated[Subdomain, Field("API group of the parameters.", min_length=1)]
    kind: Annotated[
        str, Field("Kind of the parameters.", min_length=1, max_length=63, pattern=r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$")
    ]
    name: Annotated[Label, Field("Name of the parameters.", min_length=1)]


class AdmissionCheckSpec(Object):
    """The controller that performs the check, and its parameters."""

    controller_name: Annotated[
        str,
        Field(
            "Controller that performs the check, such as kueue.x-k8s.io/provisioning-request.",
            min_length=1,
            max_length=253,
            rules=(Rule("self == oldSelf", "field is immutable"),),
        ),
    ]
    parameters: Annotated[AdmissionCheckParametersReference | None, Field("Parameters for the controller.")] = None


class AdmissionCheckStatus(Object):
    """Whether a controller performs the check."""

    conditions: Conditions = ()


class AdmissionCheck(Kind):
    """kueue.x-k8s.io AdmissionCheck. Cluster-scoped."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "AdmissionCheck"
    PLURAL: ClassVar = "admissionchecks"
    NAMESPACED: ClassVar = False
    SHORT_NAMES: ClassVar = ("ac",)

    spec: Annotated[AdmissionCheckSpec | None, Field("Controller and parameters.")] = None
    status: AdmissionCheckStatus = msgspec.field(default_factory=AdmissionCheckStatus)

    @property
    def active(self) -> bool:
        """Whether its controller reports that it performs the check."""
        return is_true(self.status.conditions, "Active")
