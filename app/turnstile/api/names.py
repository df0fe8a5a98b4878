"""Well-known strings of Kueue's API: groups, labels, annotations, finalizers, gates, managers.

One name a line, under the word people know it by. Source: Kueue's API packages. Nothing here is ours to rename, but
the group of the page.
"""

from typing import Final

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
MUTATING_CONFIGURATION: Final = "mutating-webhook-configuration"
VALIDATING_CONFIGURATION: Final = "validating-webhook-configuration"
"""The end of the names of a release's webhook configurations, after its full name and a hyphen."""
VISIBILITY_GROUP: Final = "visibility.kueue.x-k8s.io"
VISIBILITY_VERSIONS: Final = ("v1beta2", "v1beta1")
"""The preferred one first."""
INSIGHT_GROUP: Final = "insight.turnstile.dev"
INSIGHT_VERSION: Final = "v1alpha1"
"""The API group below which the API server passes requests on to the page in the cluster."""
API_SERVICES: Final = (
    *(f"{version}.{VISIBILITY_GROUP}" for version in VISIBILITY_VERSIONS),
    f"{INSIGHT_VERSION}.{INSIGHT_GROUP}",
)
"""The APIServices of an installation."""

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
MANAGED_LABEL: Final = "kueue.x-k8s.io/managed"
PODSET_LABEL: Final = "kueue.x-k8s.io/podset"
WORKLOAD: Final = "kueue.x-k8s.io/workload"
"""Annotation of pods: the Workload by whose admission they run."""
CLUSTER_QUEUE_LABEL: Final = "kueue.x-k8s.io/cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = "kueue.x-k8s.io/local-queue-name"
POD_GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"

POD_GROUP_TOTAL_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
POD_GROUP_FAST_ADMISSION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
POD_GROUP_SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
POD_GROUP_POD_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
POD_GROUP_POD_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
POD_INDEX_OFFSET: Final = "kueue.x-k8s.io/pod-index-offset"
IS_GROUP_WORKLOAD: Final = "kueue.x-k8s.io/is-group-workload"
JOB_OWNER_GVK: Final = "kueue.x-k8s.io/job-owner-gvk"
"""Annotation of a group's Workload that was made for the owner of the pods, not for the pods: `apps/v1, Kind=…`."""
JOB_OWNER_NAME: Final = "kueue.x-k8s.io/job-owner-name"
COMPONENT_WORKLOAD_INDEX: Final = "kueue.x-k8s.io/component-workload-index"
POD_SUSPENDING_PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
RETRIABLE_IN_GROUP: Final = "kueue.x-k8s.io/retriable-in-group"
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
JOB_MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
JOB_COMPLETIONS_EQUAL_PARALLELISM: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
JOB_STOPPING: Final = "kueue.x-k8s.io/stopping"
SAFE_TO_FORCEFULLY_DELETE: Final = "kueue.x-k8s.io/safe-to-forcefully-delete"
PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"
SLICE_NAME: Final = "kueue.x-k8s.io/workload-slice-name"
SLICE_REPLACEMENT_FOR: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
ELASTIC_JOB: Final = "kueue.x-k8s.io/elastic-job"
PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"

RESOURCE_IN_USE: Final = "kueue.x-k8s.io/resource-in-use"
"""Finalizer on Workloads, ClusterQueues and ResourceFlavors."""
POD_FINALIZER: Final = "kueue.x-k8s.io/managed"
"""Finalizer on plain pods; spelled like the label."""
ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
"""Scheduling gate on pods that wait for quota."""
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
ELASTIC_GATE: Final = "kueue.x-k8s.io/elastic-job"
"""Scheduling gates that Kueue leaves in the templates of jobs with a topology and of elastic jobs."""

DEFAULT_LOCAL_QUEUE: Final = "default"
DEFAULT_PRIORITY_CLASS: Final = "default"
DEFAULT_PODSET: Final = "main"

FIELD_MANAGER: Final = "turnstile"
"""The one field manager of everything Turnstile writes."""
MULTIKUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""Controller of admission checks, and the value of a job's `managedBy` that has its copy run on another cluster."""
MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""Label of everything that a manager created on a worker cluster: the only proof that the manager may delete it."""
MULTIKUEUE_ORIGIN_UID: Final = "kueue.x-k8s.io/multikueue-origin-uid"
"""Annotation of such an object: uid of the object on the manager."""
PROVISIONING_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
