"""How objects of each kind enter and leave the state of the engine: the only list of the kinds that feed a state.

The order of `FEEDING` is the order in which a state is filled: a Workload finds its queues, and these their flavors.
`PLACES` are the kinds that a state needs besides while there is a Topology, or a ClusterQueue that waits for room on
nodes, after those.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.pods import PodSpec
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.topology import Topology
from turnstile.api.waitforroom import asks_for_room
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.instants import Instant
from turnstile.engine.quota import requests
from turnstile.engine.state import State


class Feed(NamedTuple):
    """Puts an object of a kind into a state, and takes the object with a key out of a state, at an instant.

    Both raise InvalidValue if the state cannot interpret the object; the object counts as it was before then.
    """

    put: Callable[[State, Any, Instant], object]
    drop: Callable[[State, str, Instant], object]


def _put_check(state: State, check: AdmissionCheck, _: Instant) -> None:
    controller = check.spec.controller_name if check.spec is not None else ""
    state.put_admission_check(check.metadata.name, active=check.active, controller=controller)


def _put_topology(state: State, topology: Topology, _: Instant) -> None:
    if topology.levels:
        state.put_topology(topology.metadata.name, topology.levels)
    else:
        state.drop_topology(topology.metadata.name)


def _put_node(state: State, node: Node, _: Instant) -> None:
    state.put_node(node)


def workload_of(pod: Kind) -> str:
    """The Workload (`namespace/name`) that a pod names; empty if it names none."""
    name = pod.metadata.annotations.get(names.WORKLOAD)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def node_of(pod: Pod) -> str:
    """The node to which a pod is bound; empty if it is bound to none."""
    return msgspec.json.decode(pod.spec, type=PodSpec).node_name or ""


def _put_pod(state: State, pod: Pod, _: Instant) -> None:
    """A pod counts on its node from when it is bound until it has ended."""
    spec = msgspec.json.decode(pod.spec, type=PodSpec)
    if not spec.node_name or pod.status.phase in {"Succeeded", "Failed"}:
        state.drop_pod(pod.metadata.key)
        return
    asked = requests.amounts(requests.pod_requests(requests.effective_pod(spec)))
    first = pod.metadata.annotations.get(names.SLICE_NAME)
    run = f"{pod.metadata.namespace}/{first}" if first else workload_of(pod)
    state.put_pod(pod.metadata.key, spec.node_name, asked, run)


FEEDING: Final[dict[type[Kind], Feed]] = {
    Namespace: Feed(
        lambda state, given, now: state.put_namespace(given.metadata.name, given.metadata.labels),
        lambda state, key, now: state.drop_namespace(key),
    ),
    ResourceFlavor: Feed(
        lambda state, given, now: state.put_flavor(given), lambda state, key, now: state.drop_flavor(key)
    ),
    DeviceClass: Feed(
        lambda state, given, now: state.put_device_class(given.metadata.name, given, now),
        lambda state, key, now: state.put_device_class(key, None, now),
    ),
    ResourceClaimTemplate: Feed(
        lambda state, given, now: state.put_claim(given.KIND, given.metadata.key, given.spec.spec, now),
        lambda state, key, now: state.put_claim(ResourceClaimTemplate.KIND, key, None, now),
    ),
    ResourceClaim: Feed(
        lambda state, given, now: state.put_claim(given.KIND, given.metadata.key, given.spec, now),
        lambda state, key, now: state.put_claim(ResourceClaim.KIND, key, None, now),
    ),
    ResourceSlice: Feed(
        lambda state, given, now: state.put_resource_slice(given.metadata.name, given, now),
        lambda state, key, now: state.put_resource_slice(key, None, now),
    ),
    Topology: Feed(_put_topology, lambda state, key, now: state.drop_topology(key)),
    AdmissionCheck: Feed(_put_check, lambda state, key, now: state.drop_admission_check(key)),
    LimitRange: Feed(State.put_limit_range, State.drop_limit_range),
    RuntimeClass: Feed(State.put_runtime_class, State.drop_runtime_class),
    WorkloadPriorityClass: Feed(
        lambda state, given, now: state.put_workload_priority_class(given),
        lambda state, key, now: state.drop_workload_priority_class(key),
    ),
    Cohort: Feed(lambda state, given, now: state.put_cohort(given), lambda state, key, now: state.drop_cohort(key)),
    ClusterQueue: Feed(State.put_cluster_queue, lambda state, key, now: state.drop_cluster_queue(key)),
    LocalQueue: Feed(State.put_local_queue, lambda state, key, now: state.drop_local_queue(key)),
    Workload: Feed(State.put_workload, lambda state, key, now: state.drop_workload(key)),
}


def placing(*, wait_for_room: bool) -> dict[type[Kind], Callable[[Any], bool]]:
    """Objects that make nodes matter to decisions: Topologies, and ClusterQueues that admit only with room on nodes, or
    do not say while the configuration does."""
    return {Topology: lambda _: True, ClusterQueue: lambda queue: asks_for_room(queue.metadata, wait_for_room)}


PLACES: Final[dict[type[Kind], Feed]] = {
    Node: Feed(_put_node, lambda state, key, now: state.drop_node(key)),
    Pod: Feed(_put_pod, lambda state, key, now: state.drop_pod(key)),
}
