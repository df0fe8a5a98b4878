"""Rules of objects beyond their schema: those that Kueue's webhooks hold.

Pure functions from an object (and, on update, the one before) to a list of `FieldError`, in the order of the fields. A
rule that CEL can say is in the schema, beside its field; only those that Kueue answers in the webhook too are said
twice, so that clients see its texts. Imports nothing above `turnstile.api`; may never read the cluster.
"""

from turnstile.api.validation.clusterqueue import default_cluster_queue, validate_cluster_queue
from turnstile.api.validation.cohort import validate_cohort
from turnstile.api.validation.errors import FieldError, format_errors
from turnstile.api.validation.resourceflavor import default_resource_flavor, validate_resource_flavor
from turnstile.api.validation.workload import default_workload, template_digests, validate_workload

__all__ = [
    "FieldError",
    "default_cluster_queue",
    "default_resource_flavor",
    "default_workload",
    "format_errors",
    "template_digests",
    "validate_cluster_queue",
    "validate_cohort",
    "validate_resource_flavor",
    "validate_workload",
]
