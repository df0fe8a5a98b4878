"""The kinds of Kueue's API that Turnstile serves, and the versions of each. The one list of them.

Must never hold what a kind is like: its own module does.
"""

from dataclasses import dataclass
from typing import Final

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueConfig
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass

V1BETA1: Final = "v1beta1"
V1ALPHA2: Final = "v1alpha2"
"""Only of ClusterQueue, with the shape of v1beta1: what old tutorials write."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind: the stored version, and the older ones that are served beside it.

    `converted`: the versions differ in more than their limits, so that the conversion webhook is needed.
    """

    stored: type[Kind]
    older: tuple[str, ...] = (V1BETA1,)
    converted: bool = False
    deprecated: bool = True

    @property
    def name(self) -> str:
        """metadata.name of the CRD."""
        return f"{self.stored.PLURAL}.{self.stored.GROUP}"


KINDS: Final = (
    Definition(AdmissionCheck),
    Definition(ClusterQueue, older=(V1BETA1, V1ALPHA2), converted=True),
    Definition(Cohort, converted=True),
    Definition(LocalQueue, converted=True),
    Definition(MultiKueueCluster, converted=True),
    Definition(MultiKueueConfig, deprecated=False),
    Definition(ProvisioningRequestConfig),
    Definition(ResourceFlavor),
    Definition(Topology),
    Definition(Workload, converted=True),
    Definition(WorkloadPriorityClass),
)
