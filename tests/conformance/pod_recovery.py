"""Recorded looks of Kueue's controller of pods on unreachable nodes: which changes it follows, and what it writes."""

from datetime import datetime
from typing import Any

import msgspec

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import decode
from tests.unit.controllers.worlds import world as cluster_of
from turnstile.api.core import Node, Pod
from turnstile.controllers.podrecovery import decide, index_stuck, node_changed, pod_changed
from turnstile.controllers.runtime.actions import Delete, Emit, Patch, RequeueAfter

Json = Any


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The answer of each call of the recording."""
    found = list[str]()
    for step in run.get("trace") or ():
        args, call = step.get("args") or {}, step["op"].rpartition("failurerecovery.")[2]
        match call:
            case "TerminatingPodReconciler.Create":
                found += differs(call, step["results"], [_follows(None, args["e"]["Object"])])
            case "TerminatingPodReconciler.Update":
                found += differs(call, step["results"], [_follows(args["u"]["ObjectOld"], args["u"]["ObjectNew"])])
            case "TerminatingPodReconciler.Reconcile":
                found += _decided(case, run)
            case "nodeEventsPredicate.Create":
                found += differs(call, step["results"], [_wakes(None, args["e"]["Object"])])
            case "nodeEventsPredicate.Update":
                found += differs(call, step["results"], [_wakes(args["e"]["ObjectOld"], args["e"]["ObjectNew"])])
            case "nodeEventsPredicate.Delete" | "nodeEventsPredicate.Generic":
                found += differs(call, step["results"], [_wakes(None, None)])
            case _:
                pass
    return found


def _follows(old: Json, new: Json) -> bool:
    pods = (decode(Pod, each) if each is not None else None for each in (old, new))
    return bool(pod_changed("ns/pod", *pods))


def _wakes(old: Json, new: Json) -> bool:
    """A pod on the node that waits for it is looked at."""
    old, new = (decode(Node, each) if each is not None else None for each in (old, new))
    stuck = {
        "metadata": {
            "name": "pod", "namespace": "ns", "deletionTimestamp": world.NOW,
            "annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"},
        },
        "spec": {"nodeName": "node", "containers": []},
    }  # fmt: skip
    cluster = cluster_of(decode(Pod, stuck))
    index_stuck(cluster.pods)
    return bool(list(node_changed("node", old, new, cluster)))


def _decided(case: Case, run: dict[str, Json]) -> list[str]:
    """What becomes of the pod, what is told, and when it is looked at again."""
    table = case.body["case"]
    fixture = case.body["fixture"]
    pod, nodes = table["testPod"], [fixture["healthyNode"], fixture["unreachableNode"]]
    now = datetime.fromisoformat(fixture["now"])
    cluster = cluster_of(decode(Pod, pod), *(decode(Node, each) for each in nodes), now=now)
    decision = decide("ns/pod", cluster)
    patches = [each for each in decision.actions if isinstance(each, Patch)]
    status = dict(pod["status"])
    for each in patches:
        status |= msgspec.json.decode(each.body)["status"]
    for condition in status.get("conditions") or ():
        condition.pop("lastTransitionTime", None)
    want = (table["wantPod"] or {}).get("status") or {}
    for condition in want.get("conditions") or ():
        condition.pop("lastTransitionTime", None)
        condition.pop("lastProbeTime", None)
    told = [(each.reason, each.note) for each in decision.actions if isinstance(each, Emit)]
    theirs = [(each["Reason"], each["Message"]) for each in table["wantEvents"] or ()]
    later = [each.seconds for each in decision.actions if isinstance(each, RequeueAfter)]
    waits = table["wantResult"].get("RequeueAfter")
    return [
        *(differs("status", want, status) if want else []),
        *differs("events", theirs, told),
        *differs("deleted", bool(theirs), any(isinstance(each, Delete) for each in decision.actions)),
        *differs("looked at again", bool(waits), bool(later)),
    ]
