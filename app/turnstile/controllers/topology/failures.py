"""Which nodes of a Workload's topology assignment have failed, so that the engine replaces them: all of them at once.

A node has failed if it is gone, not ready, tainted for a pod set that has places on it, or if a condition that the
configuration names says that it does not work. Pods that still run on a node that is not ready or tainted are waited
for: the node may come back. A pod that selects a node on which it cannot start is failed, so that its controller makes
another one. Only assignments to hosts are looked at. Must never choose another node. Source: Kueue's
pkg/controller/tas, which replaces one node of a Workload, and evicts the Workload if a second one fails meanwhile.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final

from turnstile.api import names
from turnstile.api.conditions import instant, timestamp
from turnstile.api.core import Node, Pod
from turnstile.api.errors import PermanentError
from turnstile.api.pods import Taint, Toleration
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import HOSTNAME
from turnstile.api.topologyassignment import hosts
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.runtime.actions import Action, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, Dispatch, Target, Watch, every
from turnstile.controllers.topology import ungater
from turnstile.controllers.topology.ungater import assigned_pod_sets
from turnstile.controllers.view.clusterview import NODES_BY_HOST, ClusterView
from turnstile.engine.causes import Eviction
from turnstile.engine.topology.eligibility import tolerates
from turnstile.jobs import pods
from turnstile.jobs.integration import Change
from turnstile.jobs.options import NodeFailureOptions

NAME: Final = "node-failures"
NOT_READY_SECONDS: Final = 30.0
"""How long a node is not ready until it has failed, where pods that run on it are not waited for."""
MOST_FAILED: Final = 8
"""Nodes that the status of a Workload can name."""
NODE_FAILURES: Final = "NodeFailures"
_TERMINATED: Final = "Pod terminated by Kueue NodeController due to node taint"
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_STEP: Final = 100
"""Hosts or pods that are looked at before other tasks may run."""
_NO_FLAVOR: Final = ResourceFlavor()


class _Verdict(Enum):
    """The fate of the places of a Workload on a node."""

    SOUND = auto()
    WAITED_FOR = auto()
    """The node does not work, and pods of the Workload still run on it."""
    FAILED = auto()
    BROKEN = auto()
    """Failed by a condition of its own: pods that run on it do not work either."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The pods of a Workload by host: those that run on it, and those that select it and have no node."""

    running: Mapping[str, Sequence[Pod]]
    selecting: Mapping[str, Sequence[Pod]]


def decide(key: str, cluster: ClusterView) -> Generator[None, None, ReconcileResult]:
    """The writes about the nodes of one Workload."""
    workload = cluster.workloads.get(key)
    if workload is None or not workload.admitted or workload.evicted or workload.finished:
        return ReconcileResult(why="it is not admitted")
    assigned: dict[str, list[str]] = {}
    placed = assigned_pod_sets(workload)
    for name, given in placed.items():
        for number, host in enumerate(hosts(given.topology_assignment)):
            assigned.setdefault(host, []).append(name)
            if number % _STEP == _STEP - 1:
                yield
    if not assigned or not (cluster.nodes.complete and cluster.pods.complete):
        return ReconcileResult(why="it has no places on hosts, or not all nodes and pods are known")
    found = yield from _pods_by_host(workload, cluster)
    failed, actions, wake = list[str](), list[Action](), list[float]()
    for number, (host, pod_sets) in enumerate(assigned.items()):
        verdict, seconds = _judge(workload, cluster, host, pod_sets, runs=bool(found.running.get(host)))
        if verdict in (_Verdict.FAILED, _Verdict.BROKEN):
            failed.append(host)
            actions += _ended(found.selecting.get(host, ()), cluster)
        if verdict is _Verdict.BROKEN:
            actions += [patience.deletion(pod, at_most=patience.SHORT) for pod in found.running.get(host, ())]
        if seconds:
            wake.append(seconds)
        if number % _STEP == _STEP - 1:
            yield
    if len(failed) > MOST_FAILED:
        return _evicted(workload, failed, cluster)
    for host in sorted(found.selecting.keys() - assigned.keys()):
        actions += _ended(found.selecting[host], cluster)
    actions = [*_marked(workload, failed, cluster), *actions, *([RequeueAfter(min(wake))] if wake else [])]
    return ReconcileResult(actions, why=f"failed nodes: {', '.join(failed)}" if failed else "its nodes work")


def _judge(
    workload: Workload, cluster: ClusterView, host: str, pod_sets: Sequence[str], *, runs: bool
) -> tuple[_Verdict, float]:
    """The fate of the places on a host, and the seconds until it may change without any other change."""
    options, node = cluster.options.node_failures, _node_of(host, cluster)
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None) if node is not None else None
    if node is None or ready is None:
        return _Verdict.FAILED, 0.0
    if node.is_broken(options.conditions):
        return _Verdict.BROKEN, 0.0
    if ready.status != "True":
        if options.on_pod_termination:
            return _Verdict.WAITED_FOR if runs else _Verdict.FAILED, 0.0
        left = cluster.left(instant(ready.last_transition_time), NOT_READY_SECONDS)
        return (_Verdict.WAITED_FOR, left) if left else (_Verdict.FAILED, 0.0)
    taints = _keeping_away(node) if options.on_taints else []
    if not taints:
        return _Verdict.SOUND, 0.0
    tolerated = [
        (taint, [each for each in tolerations if tolerates(each, taint)])
        for tolerations in _tolerations(workload, cluster, pod_sets)
        for taint in taints
    ]
    if all(any(each.toleration_seconds is None for each in by) for _, by in tolerated):
        return _Verdict.SOUND, 0.0
    at_once = not options.on_pod_termination and any(taint.effect == "NoExecute" and not by for taint, by in tolerated)
    return _Verdict.WAITED_FOR if runs and not at_once else _Verdict.FAILED, 0.0


def _tolerations(workload: Workload, cluster: ClusterView, pod_sets: Sequence[str]) -> list[list[Toleration]]:
    """The tolerations of each of these pod sets, with those that its flavors and admission checks add."""
    try:
        added = {each.name: each.tolerations for each in cluster.infos_of(workload, instead=_NO_FLAVOR)}
    except PermanentError:
        added = {}
    return [
        [*each.template.spec.tolerations, *added.get(each.name, ())]
        for each in workload.spec.pod_sets
        if each.name in pod_sets
    ]


def _node_of(host: str, cluster: ClusterView) -> Node | None:
    """The node of a host name."""
    return next(iter(cluster.nodes.by_index(NODES_BY_HOST, host)), None)


def _keeping_away(node: Node) -> list[Taint]:
    """The taints that keep pods from a node."""
    return [each for each in node.spec.taints if each.effect in _KEEPS_AWAY]


def _pods_by_host(workload: Workload, cluster: ClusterView) -> Generator[None, None, _Found]:
    running: dict[str, list[Pod]] = {}
    selecting: dict[str, list[Pod]] = {}
    for number, pod in enumerate(charges.claimants(workload, cluster)):
        if pod.metadata.deletion_timestamp is None and charges.may_belong(pod, workload, cluster.registry):
            if name := pods.node_name(pod):
                running.setdefault(_host_of(name, cluster), []).append(pod)
            elif (host := pods.node_selector(pod).get(HOSTNAME)) and not pods.gates(pod):
                selecting.setdefault(host, []).append(pod)
        if number % _STEP == _STEP - 1:
            yield
    return _Found(running, selecting)


def _host_of(name: str, cluster: ClusterView) -> str:
    node = cluster.nodes.get(name)
    return node.metadata.labels.get(HOSTNAME, name) if node is not None else name


def _marked(workload: Workload, failed: Sequence[str], cluster: ClusterView) -> list[Action]:
    """The patch of the status, if it does not name these nodes yet."""
    if set(failed) == {each.name for each in workload.status.unhealthy_nodes}:
        return []
    draft = cluster.draft(workload)
    draft.field("unhealthyNodes", [{"name": host} for host in failed] or None)
    return [draft.patch()]


def _evicted(workload: Workload, failed: Sequence[str], cluster: ClusterView) -> ReconcileResult:
    """Evict a Workload of which more nodes have failed than its status can name."""
    some = ", ".join(failed[:MOST_FAILED])
    message = Eviction.NODES_FAILED.says(hosts=some)
    draft = cluster.draft(workload)
    draft.evict(NODE_FAILURES, message)
    event = Emit(workload, "Normal", f"EvictedDueTo{NODE_FAILURES}", message)
    return ReconcileResult([draft.patch(), event], why=message)


def _ended(waiting: Iterable[Pod], cluster: ClusterView) -> list[Action]:
    """The patches that fail pods which cannot start on the node that they select."""
    actions: list[Action] = []
    for pod in waiting:
        condition = {
            "type": "TerminatedByKueue",
            "status": "True",
            "reason": "UnschedulableOnAssignedNode",
            "message": _TERMINATED,
            "lastTransitionTime": timestamp(cluster.now),
        }
        body: dict[str, Any] = {
            "metadata": {"uid": pod.metadata.uid},
            "status": {"phase": "Failed", "conditions": [condition]},
        }
        actions.append(job_patch(Pod, pod, Change(body, subresource="status", strategic=True, target=pod)))
        actions.append(Emit(pod, "Normal", "PodTerminatedByKueue", _TERMINATED))
    return actions


def controller(cluster: ClusterView) -> Controller:
    """The controller that reconciles the Workloads that have places on nodes which change."""

    def workload_changed(key: str, old: Workload | None, new: Workload | None) -> Iterable[str]:
        before = old.status.admission if old is not None else None
        changed = new is not None and new.status.admission is not before and assigned_pod_sets(new)
        return (key,) if changed else ()

    def node_changed(_: str, old: Node | None, new: Node | None) -> Iterator[str | None] | None:
        present = [each for each in (old, new) if each is not None]
        health = [_health(each, cluster.options.node_failures) for each in present]
        if len(health) == 2 and health[0] == health[1]:
            return None
        return _placed_on({each.metadata.labels.get(HOSTNAME, each.metadata.name) for each in present}, cluster)

    def pod_changed(_: str, old: Pod | None, new: Pod | None) -> Iterable[str]:
        pod = new or old
        name = pod.metadata.annotations.get(names.WORKLOAD) if pod is not None else None
        if pod is None or not name or names.PODSET_LABEL not in pod.metadata.labels:
            return ()
        workload = cluster.workloads.get(f"{pod.metadata.namespace}/{name}")
        if workload is None or not assigned_pod_sets(workload):
            return ()
        host = pods.node_selector(pod).get(HOSTNAME) or _host_of(pods.node_name(pod), cluster)
        node = _node_of(host, cluster)
        sound = node is not None and _health(node, cluster.options.node_failures) == _SOUND
        return () if sound or not host else (workload.metadata.key,)

    return Controller(
        name=NAME,
        kind=Workload,
        decide=partial(decide, cluster=cluster),
        watches=[
            Watch(cluster.workloads, workload_changed),
            Watch(cluster.nodes, many=node_changed),
            Watch(cluster.pods, pod_changed),
        ],
        initial=lambda: every(cluster.workloads),
    )


def dispatch(cluster: ClusterView) -> Dispatch:
    """Once all pods or all nodes are known, Workloads that were left undecided until then are decided about: a pod that
    is gated, or a node that is gone, may never change again."""

    def placed(*controllers: str) -> Iterator[Target | None]:
        for workload in cluster.workloads.values():
            found = bool(assigned_pod_sets(workload))
            for name in controllers:
                yield (name, workload.metadata.key) if found else None

    return Dispatch(
        complete={
            cluster.pods: partial(placed, ungater.NAME, NAME),
            cluster.nodes: partial(placed, NAME),
        }
    )


_SOUND: Final = (True, (), False)


def _health(node: Node, options: NodeFailureOptions) -> tuple[bool, tuple[tuple[str, str, str], ...], bool]:
    """The facts of a node that decisions here read: readiness, taints, and whether it is broken."""
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    taints = tuple((each.key, each.value or "", each.effect) for each in _keeping_away(node))
    return ready, taints, node.is_broken(options.conditions)


def _placed_on(named: Collection[str], cluster: ClusterView) -> Iterator[str | None]:
    """Keys of the Workloads that have places on hosts; a step for each Workload that has any places."""
    for workload in cluster.workloads.values():
        assigned = assigned_pod_sets(workload)
        if any(host in named for each in assigned.values() for host in hosts(each.topology_assignment)):
            yield workload.metadata.key
        elif assigned:
            yield None
