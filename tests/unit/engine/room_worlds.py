"""Nodes without a Topology, ClusterQueues that ask for room there, and pods that take it."""

from typing import Any

import msgspec

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Node
from turnstile.api.topology import HOSTNAME
from turnstile.api.waitforroom import WAIT_FOR_ROOM
from turnstile.api.workload import Workload
from turnstile.engine import Options, State

PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def node(name: str, cpus: int, *, pods: int = 110, taints: list[dict[str, str]] | None = None, **labels: str) -> Node:
    """A node that is ready."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {HOSTNAME: name, **labels}},
            "spec": {"taints": taints or []},
            "status": {
                "allocatable": {"cpu": str(cpus), "pods": str(pods)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def asking(made: ClusterQueue, says: str = "true") -> ClusterQueue:
    """A ClusterQueue with the annotation."""
    made.metadata.annotations[WAIT_FOR_ROOM] = says
    return made


def queue(name: str = "main", cpu: Any = 100, **spec: Any) -> ClusterQueue:
    """A ClusterQueue that asks for room."""
    return asking(b.queue(name, {"default": {"cpu": cpu}}, **spec))


def world(
    *queues: ClusterQueue, nodes: dict[str, int] | list[int], options: Options | None = None, **named: Any
) -> State:
    """A state with nodes of so many cpus."""
    state = b.world(*(queues or (queue(),)), options=options, **named)
    for name, cpus in nodes.items() if isinstance(nodes, dict) else ((f"n{at}", each) for at, each in enumerate(nodes)):
        state.put_node(node(name, cpus))
    return state


def put(state: State, *workloads: Workload) -> None:
    """Workloads wait."""
    for each in workloads:
        state.put_workload(each, b.NOW)


def bind(state: State, workload: str, number: int, host: str, *, cpu: int = 1) -> str:
    """A pod of a Workload of namespace `team` is bound; its key."""
    key = f"team/{workload}-{number}"
    state.put_pod(key, host, {"cpu": cpu * 1000}, f"team/{workload}")
    return key


def why(state: State, name: str = "w") -> str:
    """Why a Workload waits, by the last decision."""
    found = state.questions.why(f"team/{name}")
    assert found is not None
    return found.message
