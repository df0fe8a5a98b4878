"""Names of Kueue's feature gates that a rule of this floor asks for, and which of them are on by default.

A set of gates is the set of names that are on. Must never hold state: who reads the configuration passes the set down.
"""

from typing import Final

ADMISSION_GATED_BY: Final = "AdmissionGatedBy"
CONCURRENT_ADMISSION: Final = "ConcurrentAdmission"
ELASTIC_JOBS: Final = "ElasticJobsViaWorkloadSlices"
NON_NEGATIVE_RESOURCES: Final = "WorkloadValidateResourcesAreNonNegative"
PARTIAL_ADMISSION: Final = "PartialAdmission"
POD_SET_METADATA: Final = "WorkloadValidationForPodSetMetadata"
PRIORITY_BOOST: Final = "PriorityBoost"
REJECT_INVALID_ON_FLAVORS: Final = "RejectUpdatesToCQWithInvalidOnFlavors"
SLICE_SIZE: Final = "TASValidateWorkloadSliceSize"

ON_BY_DEFAULT: Final = frozenset(
    (ADMISSION_GATED_BY, ELASTIC_JOBS, NON_NEGATIVE_RESOURCES, PARTIAL_ADMISSION, POD_SET_METADATA, SLICE_SIZE)
)
