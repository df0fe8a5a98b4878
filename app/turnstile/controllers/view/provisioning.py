"""The stores that the provisioning controller reads beside those of `ClusterView`, and their indexes. Read-only."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.core import PodTemplate
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig
from turnstile.api.workload import Workload
from turnstile.kube.store import Store

REQUESTS_BY_WORKLOAD = "workload"
"""Index of ProvisioningRequests by `namespace/name` of the Workload that owns them."""
WORKLOADS_BY_CHECK = "check"
"""Index of Workloads by each AdmissionCheck in their status."""
CHECKS_BY_CONFIG = "config"
"""Index of AdmissionChecks by the ProvisioningRequestConfig that they name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """`served` returns whether the cluster has the kind ProvisioningRequest: an autoscaler brings it."""

    configs: Store[ProvisioningRequestConfig] = field(default_factory=Store)
    requests: Store[ProvisioningRequest] = field(default_factory=Store)
    templates: Store[PodTemplate] = field(default_factory=Store)
    """Those that Turnstile has made."""
    served: Callable[[], bool] = lambda: True

    @property
    def complete(self) -> bool:
        """Whether what is missing in the stores is missing in the cluster."""
        return self.requests.complete and self.templates.complete


def index_provisioning(
    requests: Store[ProvisioningRequest], checks: Store[AdmissionCheck], workloads: Store[Workload]
) -> None:
    """Declare the indexes."""
    requests.add_index(REQUESTS_BY_WORKLOAD, lambda request: list(workloads_of(request)))
    checks.add_index(CHECKS_BY_CONFIG, configs_in)
    workloads.add_index(WORKLOADS_BY_CHECK, lambda workload: [each.name for each in workload.status.admission_checks])


def workloads_of(request: ProvisioningRequest) -> Iterator[str]:
    """Keys of the Workloads that own a request."""
    for owner in request.metadata.owner_references:
        if owner.kind == Workload.KIND:
            yield f"{request.metadata.namespace}/{owner.name}"


def is_ours(check: AdmissionCheck | None) -> bool:
    """Whether this controller answers a check."""
    return check is not None and check.spec is not None and check.spec.controller_name == names.PROVISIONING_CONTROLLER


def configs_in(check: AdmissionCheck) -> list[str]:
    """Name of the ProvisioningRequestConfig that a check of this controller names; no name if it names another kind."""
    found = check.spec.parameters if is_ours(check) and check.spec is not None else None
    wanted = ProvisioningRequestConfig.GROUP, ProvisioningRequestConfig.KIND
    return [found.name] if found is not None and found.name and (found.api_group, found.kind) == wanted else []
