"""The causes for which a Workload waits or loses its quota, and for which a ClusterQueue admits nothing, each with
Kueue's sentence for it.

Conditions carry these sentences to the letter, because people's tools match them. `turnstile.wording` reads them back
and says the same for people. Each sentence of the engine about a Workload is made here. Must never decide anything.
"""

from enum import Enum


class Sentence(Enum):
    """A cause; its value is Kueue's sentence with places for the data."""

    _value_: str

    def says(self, **data: object) -> str:
        """Kueue's sentence with its data."""
        return self._value_.format_map(data)


class Cause(Sentence):
    """Why a Workload is not admitted."""

    # Of one flavor, for one pod set
    QUOTA_IN_USE = "insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"
    BEYOND_MAXIMUM = (
        "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests"
        " ({assumed}) + current podset request ({asked}) > maximum capacity ({most})"
    )
    FLAVOR_MISSING = "flavor {flavor} not found"
    TAINT = "untolerated taint {{{key} {value} {effect} {added}}} in flavor {flavor}"
    AFFINITY = "flavor {flavor} doesn't match node affinity"
    AFFINITY_TOGETHER = "flavors {flavors} together don't match node affinity"
    CONTRADICTION = "flavor {flavor} contradicts flavor {other}: node label {key} is {ours} and {theirs}"
    ONLY_TOPOLOGY = 'Flavor "{flavor}" supports only TopologyAwareScheduling'
    NO_TOPOLOGY = 'Flavor "{flavor}" does not support TopologyAwareScheduling'
    TOPOLOGY_UNKNOWN = 'Flavor "{flavor}" information missing in TAS cache'
    LEVEL_MISSING = 'Flavor "{flavor}" does not contain the requested level'
    SLICE_FLAVOR = "could not assign {flavor} flavor since the original workload is assigned: {given}"
    CLAIM_FLAVOR = "could not assign {flavor} flavor since the devices of ResourceClaim {claim} are of flavor {given}"
    OTHER_NOMINATION = "skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
    VARIANT_FLAVOR = "skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"
    # Of one pod set
    NOT_COVERED = "resource {resource} unavailable in ClusterQueue"
    AFFINITY_MALFORMED = "failed to assign flavors to pod set {pod_set}: {error}"
    TOPOLOGY_FLAVORS = "more than one TAS flavor assigned: {flavors}"
    TOPOLOGY_NO_FLAVOR = "no TAS flavor assigned"
    PLACES_NONE = 'topology "{topology}" doesn\'t allow to fit any of {needed} {unit}(s)'
    PLACES_FEW = 'topology "{topology}" allows to fit only {fit} out of {needed} {unit}(s)'
    PLACES_BY_LAYER = 'topology "{topology}" doesn\'t allow to fit; {layers}'
    ROOM_FEW = "nodes of flavor {flavor} have room for {fit} out of {needed} pod(s)"
    ROOM_NO_NODE = "no node that is ready has the labels of flavor {flavor}"
    NODES_EXCLUDED = "Total nodes: {total}; excluded: {excluded}"
    DOMAINS_NONE = "no topology domains at level: {level}"
    SLICES_BROKEN = "{pods} pods make no whole slices of {size} pods"
    GROUP_TOO_LARGE = "pod set group {group} has {count} pod sets: only a leader and its workers fit together"
    PLACE_STALE = (
        "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain"
        " {domain}"
    )
    TOPOLOGY_LEVEL = "no requested topology level: {level}"
    SLICE_LEVEL = "no requested topology level for slices: {level}"
    SLICE_SIZE = "slice topology requested, but slice size not provided"
    SLICE_ABOVE = "podset slice topology {slice} is above the podset topology {level}"
    LAYER_LEVEL = "no requested topology level for additional slice layer: {level}"
    LAYER_ORDER = "additional slice layer topology {layer} must be at a lower level than {before}"
    LAYER_SIZE = "additional slice layer size {size} must evenly divide parent layer size {before}"
    # Of the Workload: what a cycle found
    FAULT = "The workload could not be looked at ({fault}): see the log of Turnstile"
    CHECKS_FAILED = "The workload has failed admission checks"
    NAMESPACE_MISSING = 'workload namespace "{namespace}" does not exist: namespaces "{namespace}" not found'
    NAMESPACE_NOT_SELECTED = "workload namespace doesn't match ClusterQueue selector"
    LIMITS_CONTRADICT = "resources validation failed: {violations}"
    LIMIT_RANGE = "resources didn't satisfy LimitRange constraints: {violations}"
    PREEMPTS = "Pending the preemption of {count} workload(s)"
    MIGRATES = "Pending the migration of {count} workload(s)"
    PROTECTED = "Workloads that could be preempted are protected by their minimum run time until {at}"
    KEPT = "ClusterQueue {queue} keeps quota that comes free for it since {at}"
    VICTIM_LATE = "{victim} was preempted for it at {at} and still holds quota"
    PREEMPTION_GATED = "Workload requires preemption, but it's gated"
    SHARED_VICTIMS_SUFFICE = (
        "Workload has overlapping preemption targets with another workload,"
        " but will fit after these preemptions complete"
    )
    SHARED_VICTIMS = "Workload has overlapping preemption targets with another workload"
    OVERTAKEN = "Workload no longer fits after processing another workload"
    BESIDE_PREEMPTOR = "Workload fits only after preempted workloads have released their quota"
    SLICE_STOPS = "the workload slice that it replaces is evicted: its pods have to go first"
    SLICE_PLACED = "a job whose pods have places in a topology cannot grow while it runs"
    PODS_NOT_READY = "waiting for all admitted workloads to be in PodsReady condition"
    BETTER_VARIANT_RUNS = "A more favorable variant is already admitted"
    VARIANT_NOT_ACCEPTABLE = "Target flavor is below LastAcceptableFlavorName"
    # Of the Workload: why no cycle looks at it
    LOCAL_QUEUE_MISSING = "LocalQueue {queue} doesn't exist"
    LOCAL_QUEUE_STOPPED = "LocalQueue {queue} is inactive"
    CLUSTER_QUEUE_MISSING = "ClusterQueue {queue} doesn't exist"
    CLUSTER_QUEUE_INACTIVE = "ClusterQueue {queue} is inactive"
    QUEUE_STOPPED = "{kind} {queue} is stopped"
    QUEUE_GONE = "{kind} {queue} is terminating or missing"
    ADMISSION_GATED = "Admission is gated by: {gates}"
    GATE_CLEARED = "AdmissionGatedBy cleared, waiting for quota reservation"
    EQUAL_FAILED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    KEPT_FOR_ANOTHER = "ClusterQueue {queue} keeps quota that comes free for a workload that has waited for long"
    NOT_TRIED = "Workload is pending evaluation in the scheduling queue"


class Eviction(Sentence):
    """Why a Workload has to give back the quota that it has. Several may stand in one message: a deactivation and its
    reason."""

    PREEMPTED = (
        "Preempted to accommodate a workload (UID: {uid}, JobUID: {job}) due to {why};"
        " preemptor path: {preemptor}; preemptee path: {preemptee}"
    )
    MIGRATED = "Evicted to accommodate a workload (UID: {uid}) due to migration to more favorable resource flavor"
    QUEUE_DRAINED = "The {kind} is stopped"
    PODS_LATE = "Exceeded the PodsReady timeout {workload}"
    PODS_IDLE = "None of its pods has run for {seconds}s"
    NODES_FAILED = "Workload eviction triggered due to multiple TAS assigned node failures, including: {hosts}"
    NODES_IRREPLACEABLE = "Workload was evicted as there was no replacement for unhealthy node(s): {hosts}"
    DEACTIVATED = "The workload is deactivated"
    RETRIES_USED_UP = "exceeding the maximum number of re-queuing retries"
    TIME_USED_UP = "exceeding the maximum execution time"
    CHECK_ANSWERED = "AdmissionCheck in {state} state: {answers}"
    CHECKS_ANSWERED = "AdmissionChecks in {state} state: {answers}"
    ON_MANAGER = "Evicted on manager"
    VARIANT_EVICTED = "Admitted variant was evicted"
    VARIANTS_GONE = "No variant is running"


class Inactive(Sentence):
    """Why a ClusterQueue admits nothing."""

    STOPPED = "is stopped"
    FLAVORS_MISSING = "references missing ResourceFlavor(s): {missing}"
    CHECKS_MISSING = "references missing AdmissionCheck(s): {named}"
    CHECKS_INACTIVE = "references inactive AdmissionCheck(s): {named}"
    SEVERAL_MULTIKUEUE = "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {named}"
    MULTIKUEUE_BY_FLAVOR = "Cannot specify MultiKueue AdmissionCheck per flavor, found: {named}"
    MULTIKUEUE_PROVISIONS = (
        "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {named}, {others}"
    )
    TOPOLOGY_MISSING = 'there is no Topology "{topology}" for TAS flavor "{flavor}"'
    COHORT_CYCLE = "the parents of its cohort form a cycle: {cohorts}"
    COHORTS_DEEP = "the tree of its cohort is more than {most} Cohorts deep"
    TERMINATING = "clusterQueue is terminating"
