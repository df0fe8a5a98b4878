"""Recorded looks of Kueue's controller of concurrent admission at a parent and its variants: what it writes."""

import copy
import json
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import decode
from tests.unit.controllers.worlds import world as cluster_of
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.patch import apply_merge_patch
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Create, Delete, Emit, Patch, RequeueAfter
from turnstile.controllers.workloads import variants
from turnstile.jobs.naming import MAX_NAME, SHORT_NAME, variant_name
from turnstile.jobs.options import JobOptions

Json = Any
_GRANULAR = "UnadmittedWorkloadsObservability"


def reconciled(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The objects, events and the wait after one look at a parent."""
    table, fixture = case.body["case"], case.body["fixture"]
    if table["parentWorkload"] is None:
        return differs("nothing is written", [], variants.decide("default/none", cluster_of()).actions)
    given = [table["parentWorkload"], *(table["variantWorkloads"] or ())]
    bodies = {each["metadata"]["name"]: copy.deepcopy(each) for each in given}
    queues = [(kind, each) for each in fixture.values() if (kind := _kind(each)) is not None]
    granular = (run.get("gates") or {}).get(_GRANULAR, True)
    options = JobOptions(concurrent_admission=True, granular_reasons=granular)
    known = [decode(Workload, each) for each in given]
    cluster = cluster_of(*(decode(kind, each) for kind, each in queues), *known, options=options)
    key = known[0].metadata.key
    events, again = [], None
    for action in variants.decide(key, cluster).actions:
        match action:
            case Create():
                made = json.loads(action.body)
                del made["metadata"]["finalizers"]  # Kueue's variants have none
                bodies[made["metadata"]["name"]] = made
            case Patch():
                bodies[action.name] = apply_merge_patch(bodies[action.name], json.loads(action.body))
            case Delete():
                del bodies[action.name]
            case Emit():
                about = action.regarding.metadata
                name = {"Name": about.name, "Namespace": about.namespace}
                told = {"EventType": action.type, "Key": name, "Message": action.note, "Reason": action.reason}
                events.append(told)
            case RequeueAfter(seconds=seconds):
                again = seconds
    want = [table["wantParentWorkload"], *_got(run, "wantVariantWorkloads")]
    seen = ({each["metadata"]["name"]: _seen(each) for each in some} for some in (want, bodies.values()))
    found = differs("objects", *seen)
    found += differs("events", _sorted(table["wantEvents"]), _sorted(events))
    wait = (table["wantResult"] or {}).get("RequeueAfter")
    return found + differs("again", world.seconds(wait) if wait else None, again)


def _got(run: Json, name: str) -> list[Json]:
    return next(each["got"] for each in run["checks"] if each["want"] == name) or []


def _sorted(events: Json) -> Json:
    return sorted(events or (), key=json.dumps)


def _kind(body: Json) -> type[ClusterQueue] | type[LocalQueue] | None:
    kinds = {"ClusterQueue": ClusterQueue, "LocalQueue": LocalQueue}
    return kinds.get(body.get("kind", "")) if isinstance(body, dict) else None


def _seen(body: Json) -> Json:
    """What is compared of a Workload."""
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    told = status.get("conditions") or ()
    conditions = {each["type"]: (each["status"], each["reason"], each.get("message", "")) for each in told}
    held = conditions.get("QuotaReserved", ("False",))[0] == "True"
    owners = [(each["kind"], each["name"], each.get("controller")) for each in meta.get("ownerReferences") or ()]
    gates = {each["name"]: each["position"] for each in status.get("preemptionGates") or ()}
    return {
        "labels": meta.get("labels") or {},
        "annotations": meta.get("annotations") or {},
        "owners": owners,
        "active": spec.get("active") is not False,
        "queue": spec.get("queueName"),
        "gates": [each["name"] for each in spec.get("preemptionGates") or ()],
        "open": gates,
        "conditions": conditions,
        "admission": status["admission"].get("podSetAssignments") if held else None,
    }


def named(case: Case, run: dict[str, Json]) -> list[str]:
    """Names of variants."""
    found = list[str]()
    chosen = {**case.body["featureGates"], **(case.body["case"].get("featureGates") or {}), **(run.get("gates") or {})}
    short = chosen.get("ShortWorkloadNames", False)
    for step in run["trace"]:
        if not step["op"].endswith("GetWorkloadNameForVariant"):
            continue
        args, gvk = step["args"], step["args"]["ownerGVK"]
        parts = {"kind": gvk["Kind"], "group": gvk["Group"], "longest": SHORT_NAME if short else MAX_NAME}
        name = variant_name(args["parentName"], args["ownerUID"], args["flavor"], **parts)
        found += differs("name", step["results"][0], name)
    return found


def generated(case: Case, run: dict[str, Json]) -> list[str] | None:
    """The variant that is made; one that exists is not made again."""
    found, compared = list[str](), False
    for step in run["trace"]:
        if step["op"].endswith("generateVariant"):
            compared = True
            made = variants.body(decode(Workload, step["args"]["parent"]), step["args"]["flavor"])
            made["metadata"].pop("ownerReferences")
            want = step["results"][0]
            found += differs(
                "variant", (want["metadata"]["name"], _seen(want)), (made["metadata"]["name"], _seen(made))
            )
    return found if compared else None


def flavors_changed(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether a change of a ClusterQueue has its Workloads reconciled."""
    table = case.body["case"]
    old, new = (decode(ClusterQueue, table[name]) if table.get(name) else None for name in ("old", "new"))
    return differs("changed", table["want"], variants.flavors_changed(old, new))
