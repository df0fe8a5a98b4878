"""Recorded looks of Kueue's ungater at the pods of a Workload that has a topology assignment."""

import json
from collections import Counter
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import decode
from tests.unit.controllers.worlds import world as cluster_of
from turnstile.api.core import Pod
from turnstile.api.patch import apply_merge_patch
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.topology.ungater import Decided, decide
from turnstile.engine.pace import finish

Json = Any


def ungated(case: Case, run: dict[str, Json]) -> list[str] | None:
    """One look: which pods get which node selector, or how many pods each selector is given to."""
    table = case.body["case"]
    if table["expectUIDs"]:
        return None  # the store shows a write as soon as it is answered
    (workload,) = table["workloads"]
    pods = {each["metadata"]["name"]: each for each in table["pods"]}
    for name, each in pods.items():
        each["metadata"]["uid"] = name
    cluster = cluster_of(decode(Workload, workload), *(decode(Pod, each) for each in pods.values()))
    for action in finish(decide(world.key_of(workload), cluster, Decided())).actions:
        assert isinstance(action, Patch)
        pods[action.name] = apply_merge_patch(pods[action.name], json.loads(action.body))
    want = {each["metadata"]["name"]: each for each in table["wantPods"]}
    found = differs("gates", *({name: _gates(each) for name, each in given.items()} for given in (want, pods)))
    if table["nodeSelectorAssertMode"] == "Exact":
        return found + differs(
            "selectors", *({name: _selector(each) for name, each in given.items()} for given in (want, pods))
        )
    counted = {json.dumps(each["NodeSelector"], sort_keys=True): each["Count"] for each in table["wantCounts"] or ()}
    selectors = (_selector(each) for each in pods.values() if (each.get("status") or {}).get("phase") not in _OVER)
    have = Counter(json.dumps(each, sort_keys=True) for each in selectors if each)
    return found + differs("counts", counted, dict(have))


_OVER = ("Succeeded", "Failed")


def _gates(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates") or ()]


def _selector(pod: Json) -> Json:
    return pod["spec"].get("nodeSelector") or {}
