"""What nodes, pods and gangs cost where pods are placed by a Topology: `python -m tests.bench.topology`.

CPU time of the thread that decides, on 5,000 nodes in blocks of 50 racks of 20, and 50,000 pods of others.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from tests.bench.crowd import _steps_of
from tests.bench.engine import NOW, STAMP, _quiet_collector
from tests.bench.figures import HEADER, Figure, percentile
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace, Node, Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import HOSTNAME, Topology
from turnstile.api.topologyassignment import Domain, encode
from turnstile.api.waitforroom import WAIT_FOR_ROOM
from turnstile.api.workload import Workload
from turnstile.controllers.view.managed import keep_bound
from turnstile.engine import Options, State, cycle
from turnstile.engine.intake import FEEDING, PLACES

NODES, PODS, QUEUES, SHAPES, ROUNDS, CHURN = 5000, 50_000, 100, 20, 200, 50
TARGET_HEARTBEAT_US, TARGET_POD_US, TARGET_COLD_MS, TARGET_CYCLE_MS, TARGET_STEP_MS = 20.0, 30.0, 3.0, 150.0, 1.0
TARGET_NODE_BYTES, TARGET_POD_BYTES = 1000.0, 200.0
LEVELS = ("block", "rack", HOSTNAME)
QUOTA = {"name": "cpu", "nominalQuota": "1000000"}
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def _node(number: int) -> bytes:
    """A node as a kubelet writes it, with the images that it has."""
    labels = {"block": f"b{number // 1000}", "rack": f"r{number // 20}", HOSTNAME: f"node-{number}", "pool": "gpu"}
    has = {"cpu": "96", "memory": "2000Gi", "pods": "110", "nvidia.com/gpu": "8"}
    image = {"names": [f"registry.example/image@sha256:{'a' * 64}"], "sizeBytes": 123456}
    conditions = [
        {"type": each, "status": str(each == "Ready"), "lastHeartbeatTime": STAMP, "lastTransitionTime": STAMP}
        for each in _CONDITIONS
    ]
    status = {"capacity": has, "allocatable": has, "conditions": conditions, "images": [image] * 50}
    meta = {"name": f"node-{number}", "uid": f"uid-{number}", "resourceVersion": str(number + 1), "labels": labels}
    return orjson.dumps({"metadata": {**meta, "annotations": {"volumes": "x" * 300}}, "spec": {}, "status": status})


def _pod(number: int) -> bytes:
    """A pod of a Deployment, on a node."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": f"rs-{number // 10}"}
    meta = {"name": f"web-{number}-abcde", "namespace": f"ns-{number % 50}", "uid": f"{number:08x}-1111-2222-3333"}
    requests = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    container = {"name": "c", "image": "x", "resources": requests, "volumeMounts": [{"name": "t", "mountPath": "/v"}]}
    spec = {"nodeName": f"node-{number % NODES}", "containers": [container], "volumes": [{"name": "t"}]}
    more = {"resourceVersion": str(number + 1), "labels": {"app": "web"}, "ownerReferences": [owner]}
    return orjson.dumps({"metadata": {**meta, **more}, "spec": spec, "status": {"phase": "Running"}})


def _made(kind: type[Any], name: str, spec: Any, **metadata: Any) -> Any:
    meta = {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": STAMP, **metadata}
    return msgspec.convert({"metadata": meta, "spec": spec}, kind)


def _workload(name: str, queue: str, count: int, cpu: int, level: str) -> Workload:
    """A gang of `count` pods, in one domain of a level, if any."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}}
    pod_set = {"name": "main", "count": count, "template": template}
    if level:
        pod_set["topologyRequest"] = {"required": level}
    found: Workload = _made(Workload, name, {"queueName": queue, "podSets": [pod_set]}, namespace="ns")
    return found


def _world() -> State:
    """Queues over one flavor with a Topology, and no nodes."""
    state = State(Options())
    levels = [{"nodeLabel": level} for level in LEVELS]
    objects: list[Any] = [
        msgspec.convert({"metadata": {"name": "ns"}}, Namespace),
        _made(ResourceFlavor, "gpu", {"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"}),
        _made(Topology, "racks", {"levels": levels}),
    ]
    for number in range(QUEUES):
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "gpu", "resources": [QUOTA]}]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        objects.append(_made(ClusterQueue, f"q{number}", spec))
        objects.append(_made(LocalQueue, f"l{number}", {"clusterQueue": f"q{number}"}, namespace="ns"))
    for each in objects:
        FEEDING[type(each)].put(state, each, NOW)
    return state


def objects_of_nodes(state: State) -> Iterator[Figure]:
    """Nodes come and beat, pods are bound."""
    decode = msgspec.json.Decoder(Node).decode
    for each in map(_node, range(NODES)):
        PLACES[Node].put(state, decode(each), NOW)
    beat, taken = _node(7), []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(1000):
            PLACES[Node].put(state, decode(beat), NOW)
        taken.append(time.thread_time() - began)
    yield Figure(name="a heartbeat of a node", value=min(taken) * 1e3, unit="us CPU", target=TARGET_HEARTBEAT_US)
    read, seen = Pod.decoder(), list(map(_pod, range(PODS)))
    pods = [read(each) for each in seen]
    began = time.thread_time()
    for pod in pods:
        keep_bound(pod)
    kept = time.thread_time() - began
    yield Figure(name="a pod of others is kept", value=kept / PODS * 1e6, unit="us CPU")
    began = time.thread_time()
    for pod in pods:
        PLACES[Pod].put(state, pod, NOW)
    bound = time.thread_time() - began
    yield Figure(name="a bound pod", value=bound / PODS * 1e6, unit="us CPU", target=TARGET_POD_US)


def memory() -> Iterator[Figure]:
    """Bytes of a node and of a pod of others, in the store and in the state."""
    state, count = _world(), 2000
    decode, read = msgspec.json.Decoder(Node).decode, Pod.decoder()
    seen, pods = list(map(_node, range(count))), list(map(_pod, range(count)))
    PLACES[Node].put(state, decode(_node(NODES - 1)), NOW)
    tracemalloc.start()
    nodes = [decode(each) for each in seen]
    for node in nodes:
        PLACES[Node].put(state, node, NOW)
    gc.collect()
    of_nodes = tracemalloc.get_traced_memory()[0]
    held = [read(each) for each in pods]
    for pod in held:
        keep_bound(pod)
        PLACES[Pod].put(state, pod, NOW)
    gc.collect()
    of_pods = tracemalloc.get_traced_memory()[0] - of_nodes
    tracemalloc.stop()
    yield Figure(name="memory of a node", value=of_nodes / count, unit="bytes", target=TARGET_NODE_BYTES)
    yield Figure(name="memory of a pod of others", value=of_pods / count, unit="bytes", target=TARGET_POD_BYTES)


def gangs(state: State) -> Iterator[Figure]:
    """Gangs among all nodes: the first of its kind, and heads of many queues of some kinds."""
    state.put_workload(_workload("cold", "l0", 64, 40, "block"), NOW)
    took, longest, _ = _steps_of(state)
    name = "cycle that places the first gang of 64 pods"
    yield Figure(name=name, value=took, unit="ms CPU", target=TARGET_COLD_MS)
    yield Figure(name="its longest step", value=longest, unit="ms CPU", target=TARGET_STEP_MS)
    cycles, steps = [], []
    for turn in range(ROUNDS):
        names = [f"w{turn}-{number}" for number in range(QUEUES)]
        for number, each in enumerate(names):
            shape = (number + turn) % SHAPES
            state.put_workload(_workload(each, f"l{number}", 4 + shape, 1 + shape, "rack"), NOW)
        took, longest, _ = _steps_of(state)
        cycles.append(took)
        steps.append(longest)
        for each in names:
            state.drop_workload(f"ns/{each}")
    name = f"cycle of {QUEUES} gangs of {SHAPES} kinds: p99 of {ROUNDS}"
    yield Figure(name=name, value=percentile(cycles, 99), unit="ms CPU", target=TARGET_CYCLE_MS)
    yield Figure(name="its longest step: median", value=percentile(steps, 50), unit="ms CPU", target=TARGET_STEP_MS)


def _running(number: int, priority: int) -> Workload:
    """A gang on one half of a rack, of which it has all CPUs, since a while that differs from gang to gang."""
    hosts = [f"node-{number * 10 + at}" for at in range(10)]
    body = msgspec.to_builtins(_workload(f"runs-{number}", "l0", len(hosts), 96, "rack"))
    assigned = {
        "name": "main",
        "count": len(hosts),
        "flavors": {"cpu": "gpu"},
        "resourceUsage": {"cpu": str(96 * len(hosts))},
        "topologyAssignment": msgspec.to_builtins(encode((HOSTNAME,), [Domain((host,), 1) for host in sorted(hosts)])),
    }
    since = f"2026-01-02T03:00:{number * 7 % 60:02}Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": since}
        for kind in ("QuotaReserved", "Admitted")
    ]
    body["spec"]["priority"] = priority
    body["status"] = {"admission": {"clusterQueue": "q0", "podSetAssignments": [assigned]}, "conditions": conditions}
    return msgspec.convert(body, Workload)


def victims() -> Iterator[Figure]:
    """A gang that needs a whole rack where all racks are full: victims in Kueue's order, and of each rack alone."""
    taken = []
    for _ in range(3):
        state = _world()
        preemption = {"withinClusterQueue": "LowerPriority"}
        quota = {"name": "cpu", "nominalQuota": str(NODES * 96)}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "gpu", "resources": [quota]}]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
        FEEDING[ClusterQueue].put(state, _made(ClusterQueue, "q0", spec), NOW)
        for number in range(NODES):
            PLACES[Node].put(state, msgspec.json.decode(_node(number), type=Node), NOW)
        for number in range(NODES // 10):
            state.put_workload(_running(number, number % 3), NOW)
        head = _workload("head", "l0", 20, 96, "rack")
        head.spec.priority = 5
        state.put_workload(head, NOW)
        taken.append(_steps_of(state))
    assert all(found == 2 for _, _, found in taken)
    name = f"cycle of a gang that needs a rack, {NODES // 10} candidates"
    yield Figure(name=name, value=min(each[0] for each in taken), unit="ms CPU", target=TARGET_CYCLE_MS)
    yield Figure(name="its longest step", value=min(each[1] for each in taken), unit="ms CPU", target=TARGET_STEP_MS)


def room() -> Iterator[Figure]:
    """ClusterQueues that ask for room on nodes without a Topology: heads of some shapes, the first of their kinds, and
    then again; with room, and without."""
    state = State(Options())
    objects: list[Any] = [
        msgspec.convert({"metadata": {"name": "ns"}}, Namespace),
        _made(ResourceFlavor, "gpu", {"nodeLabels": {"pool": "gpu"}}),
    ]
    for number in range(QUEUES):
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "gpu", "resources": [QUOTA]}]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        objects.append(_made(ClusterQueue, f"q{number}", spec, annotations={WAIT_FOR_ROOM: "true"}))
        objects.append(_made(LocalQueue, f"l{number}", {"clusterQueue": f"q{number}"}, namespace="ns"))
    for each in objects:
        FEEDING[type(each)].put(state, each, NOW)
    decode, read = msgspec.json.Decoder(Node).decode, Pod.decoder()
    for number in range(NODES):
        PLACES[Node].put(state, decode(_node(number)), NOW)
    for number in range(PODS):
        PLACES[Pod].put(state, read(_pod(number)), NOW)
    for what, least in (("that have room", 2), ("that fit on no node", 97)):
        taken = []
        for turn in range(ROUNDS // 10):
            for number in range(QUEUES):
                each = _workload(f"w{number}", f"l{number}", 8, least + (number + turn) % SHAPES, "")
                state.put_workload(each, NOW)
            taken.append(_steps_of(state))
            for number in range(QUEUES):
                state.drop_workload(f"ns/w{number}")
        for when, some in (("the first of their kinds", taken[:1]), ("p99", taken[1:])):
            name = f"cycle of {QUEUES} heads of {SHAPES} shapes {what}: {when}"
            cycles = [each[0] for each in some]
            yield Figure(name=name, value=percentile(cycles, 99), unit="ms CPU", target=TARGET_CYCLE_MS)
        steps = [each[1] for each in taken]
        yield Figure(name="its longest step: median", value=percentile(steps, 50), unit="ms CPU", target=TARGET_STEP_MS)


def churn(state: State) -> Iterator[Figure]:
    """Small pods come and go while gangs of many kinds find no room: each time a cycle tries whom that wakes."""
    for number in range(QUEUES):
        each = _workload(f"stuck-{number}", f"l{number}", 30, 60 + number % SHAPES, "rack")
        state.put_workload(each, NOW)
    while state.has_work:
        cycle(state, NOW)
    began = time.thread_time()
    for number in range(CHURN):
        state.put_pod(f"churn/{number}", f"node-{number}", {"cpu": 100})
        state.drop_pod(f"churn/{number}")
        while state.has_work:
            cycle(state, NOW)
    took = (time.thread_time() - began) / CHURN * 1e3
    for number in range(QUEUES):
        state.drop_workload(f"ns/stuck-{number}")
    yield Figure(name=f"a small pod that comes and goes while {QUEUES} gangs wait", value=took, unit="ms CPU")


def main() -> None:
    """All figures."""
    print(HEADER)
    state = _world()
    with _quiet_collector():
        for figures in (objects_of_nodes(state), gangs(state), churn(state), victims(), room(), memory()):
            for figure in figures:
                print(figure, flush=True)


if __name__ == "__main__":
    main()
