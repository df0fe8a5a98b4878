"""Recorded looks of Kueue's node controller at the nodes on which Workloads have places.

Kueue looks at one node, here a Workload and all its nodes are looked at. So what became of Workloads and pods is
compared.
"""

import json
from datetime import datetime
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import decode
from tests.unit.controllers.worlds import world as cluster_of
from turnstile.api import names
from turnstile.api.core import Node, Pod
from turnstile.api.meta import Kind
from turnstile.api.patch import apply_merge_patch
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topologyassignment import hosts
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Emit, Patch, RequeueAfter
from turnstile.controllers.topology.failures import decide
from turnstile.controllers.topology.ungater import assigned_pod_sets
from turnstile.engine.pace import finish
from turnstile.jobs.options import JobOptions, NodeFailureOptions

Json = Any
_KINDS = {"Workload": Workload, "Pod": Pod, "Node": Node, "ResourceFlavor": ResourceFlavor}


def reconciled(case: Case, run: dict[str, Json]) -> list[str] | None:
    """What becomes of the Workload, of its unhealthy nodes, and of its pods. A pod that selects a node that is gone is
    failed here, where Kueue leaves it pending for ever."""
    if not any(step["op"].endswith(".Reconcile") for step in run.get("trace") or ()):
        return None
    table = case.body["case"]
    before = {(each["kind"], each["metadata"]["name"]): each for each in table["initObjs"] or ()}
    after, told = _settled(before, case, run)
    theirs = before | {(each["kind"], each["metadata"]["name"]): each for each in run.get("finalObjects") or ()}
    found = []
    for kind, name in sorted(before):
        if kind == "Workload":
            want, have = theirs[kind, name].get("status") or {}, after[kind, name].get("status") or {}
            if not table["ignoreUnhealthyNodes"]:
                found += differs("unhealthy nodes", table["wantUnhealthyNodes"] or [], have.get("unhealthyNodes") or [])
            found += differs("evicted", _evicted(want), _evicted(have))
        if kind == "Pod" and (host := _selected(before[kind, name])) and ("Node", host) in before:
            found += differs(f"pod {name}", _ended(theirs[kind, name]), _ended(after[kind, name]))
    if table["ignoreUnhealthyNodes"] and not table["wantEvictedCond"]:
        (workload,) = (each for (kind, _), each in after.items() if kind == "Workload")
        found += differs("unhealthy nodes", [], workload["status"].get("unhealthyNodes") or [])
    events = [(each["reason"], each["message"]) for each in run.get("recordedEvents") or ()]
    return found + differs("events", sorted(events), sorted(told))


def judged(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Whether the node is to be replaced, and which pods are failed."""
    table = case.body["case"]
    objects = [*(table["initObjs"] or ()), *([table["node"]] if table["node"] else [])]
    before = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    after, _ = _settled(before, case, run)
    workload: Json = next((each for (kind, _), each in after.items() if kind == "Workload"), {})
    unhealthy = {each["name"] for each in (workload.get("status") or {}).get("unhealthyNodes") or ()}
    found = differs("unhealthy", table["wantStatus"] == 1, table["nodeName"] in unhealthy)
    ended = sorted(name for (kind, name), each in after.items() if kind == "Pod" and _ended(each))
    return found + differs("failed pods", sorted(table["wantDeleted"] or ()), ended)


def _settled(
    objects: dict[tuple[str, str], Json], case: Case, run: dict[str, Json]
) -> tuple[dict[tuple[str, str], Json], list[tuple[str, str]]]:
    """The objects when nothing more is written, and the events on the way."""
    chosen = {**(case.body.get("featureGates") or {}), **(case.body["case"]["featureGates"] or {})}
    chosen |= run.get("gates") or {}
    failures = NodeFailureOptions(
        on_pod_termination=chosen.get("TASReplaceNodeOnPodTermination", True),
        on_taints=chosen.get("TASReplaceNodeOnNodeTaints", True),
    )
    options, told = JobOptions(node_failures=failures), list[tuple[str, str]]()
    for (kind, name), each in objects.items():
        each["metadata"].setdefault("uid", name)
        if kind == "Pod":  # every start adds the label
            each["metadata"]["labels"] = {names.PODSET_LABEL: "main"} | (each["metadata"].get("labels") or {})
    given = [decode(_KINDS[kind], each) for (kind, _), each in objects.items() if kind in _KINDS]
    given += _others(
        given, {each["NamespacedName"]["Name"] for each in case.body["case"].get("reconcileRequests") or ()}
    )
    cluster = cluster_of(*given, now=datetime.fromisoformat(world.NOW), options=options)
    after = dict(objects)
    for key in [world.key_of(each) for (kind, _), each in objects.items() if kind == "Workload"]:
        for action in finish(decide(key, cluster)).actions:
            if isinstance(action, Emit):
                about = objects[action.regarding.KIND, action.regarding.metadata.name]
                if about["kind"] != "Pod" or ("Node", _selected(about)) in objects:
                    told.append((action.reason, action.note))
            elif isinstance(action, Patch):
                at = (action.kind.KIND, action.name)
                after[at] = apply_merge_patch(after[at], json.loads(action.body))
            else:
                assert isinstance(action, RequeueAfter)
    return after, told


def _others(given: list[Kind], asked: set[str]) -> list[Kind]:
    """The nodes that Kueue was not asked about, which work."""
    known = {each.metadata.name for each in given if isinstance(each, Node)} | asked
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assigned = (pod_set for each in given if isinstance(each, Workload) for pod_set in assigned_pod_sets(each).values())
    named = {host for each in assigned for host in hosts(each.topology_assignment)} - known
    return [decode(Node, {"metadata": {"name": name}, "status": ready}) for name in sorted(named)]


def _evicted(status: Json) -> Json:
    conditions = (each for each in status.get("conditions") or () if each["type"] == "Evicted")
    return [(each["status"], each["reason"], each["message"]) for each in conditions]


def _ended(pod: Json) -> Json:
    status = pod.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if each["type"] == "TerminatedByKueue"]
    return [(status.get("phase"), each["status"], each["reason"], each["message"]) for each in conditions]


def _selected(pod: Json) -> str:
    return (pod["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname", "")
