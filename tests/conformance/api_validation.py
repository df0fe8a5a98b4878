"""What the webhooks say of our own kinds, and objects turned into another version."""

import copy
import json
import math
import re
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from turnstile.api import gates, quantity
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import LimitRange
from turnstile.api.pods import PodSpec
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.v1beta1.conversion import convert
from turnstile.api.validation import (
    FieldError,
    template_digests,
    validate_cluster_queue,
    validate_resource_flavor,
    validate_workload,
)
from turnstile.api.workload import Workload
from turnstile.engine.quota import requests

Json = Any

_POINTER = re.compile(r"is not a multiple of .*")


def validation(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a validating webhook finds the recorded faults: the same fields, types, values and details."""
    chosen = _gates(case, run)
    found = []
    compared = False
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or []
        match step["op"].rsplit(".", 1)[-1]:
            case "ValidateClusterQueue":
                have = validate_cluster_queue(world.load(ClusterQueue, args["cq"]), gates=chosen)
            case "ValidateClusterQueueUpdate":
                pair = (world.load(ClusterQueue, args[name]) for name in ("newCQ", "oldCQ"))
                have = validate_cluster_queue(*pair, gates=chosen)
            case "ValidateResourceFlavor":
                have = validate_resource_flavor(world.load(ResourceFlavor, args["rf"]))
            case "ValidateCreate":
                have = validate_workload(world.load(Workload, args["wl"]), gates=chosen)
            case "ValidateUpdate":
                pair = (world.load(Workload, args[name]) for name in ("newWL", "oldWL"))
                digests = tuple(template_digests(json.dumps(args[name]).encode()) for name in ("newWL", "oldWL"))
                have = validate_workload(*pair, gates=chosen, templates=digests)
            case _:
                continue
        compared = True
        want = results[-1] if results else None
        errors = want.get("errors", [want]) if isinstance(want, dict) else want or []
        found += _compare([_recorded(error) for error in errors], [_told(error) for error in have])
    return found if compared else None


def _gates(case: Case, run: dict[str, Json]) -> set[str]:
    chosen = set(gates.ON_BY_DEFAULT)
    for each in (case.body.get("featureGates"), (case.body.get("case") or {}).get("featureGates"), run.get("gates")):
        for name, on in (each or {}).items():
            (chosen.add if on else chosen.discard)(name)
    return chosen


def _recorded(error: Json) -> tuple[str, str, str]:
    return error["field"], error["type"], _detail(error.get("detail", ""))


def _told(error: FieldError) -> tuple[str, str, str]:
    return error.path, error.type, _detail(error.detail)


def _detail(text: str) -> str:
    # Go prints a pointer there.
    return _POINTER.sub("is not a multiple", text)


def _compare(want: list[tuple[str, str, str]], have: list[tuple[str, str, str]]) -> list[str]:
    return [f"missing {error}" for error in want if error not in have] + [
        f"too much {error}" for error in have if error not in want
    ]


def conversion(case: Case, run: dict[str, Json]) -> list[str] | None:
    """An object in another version is as it was recorded; there and back it is what it was."""
    body = case.body.get("case") or {}
    if "input" not in body and not body.get("v1beta1Obj") and not body.get("v1beta2Obj"):
        return None
    if "input" in body:
        want = body["expected"]
        have = convert(copy.deepcopy(body["input"]), want["apiVersion"].partition("/")[2])
    else:
        want = body.get("v1beta1Obj") or body["v1beta2Obj"]
        here = want["apiVersion"].partition("/")[2]
        there = "v1beta2" if here == "v1beta1" else "v1beta1"
        have = convert(convert(copy.deepcopy(want), there), here)
    want, have = _plain(want), _plain(have)
    return [] if want == have else [f"want {json.dumps(want)}, have {json.dumps(have)}"]


def _plain(value: Json) -> Json:
    """Without what a Go program writes of fields that are not set."""
    if isinstance(value, dict):
        parts = {name: _plain(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part not in (None, "", [], {})}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def quantities(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Amounts as quantities, and quantities as numbers."""
    found = []
    compared = False
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        match step["op"].rsplit(".", 1)[-1]:
            case "ResourceQuantity":
                have: Json = quantity.from_int(args["name"], int(args["v"]))
            case "QuantityToFloat":
                have = float(quantity.parse(args["q"]))
                if isinstance(results[0], int | float) and math.isclose(have, results[0], rel_tol=1e-15):
                    have = results[0]  # the last digit depends on the order of the arithmetic
            case "ResourceListToSliceRequests" | "NewRequests" if "rl" in args:
                have = {name: quantity.to_int(name, amount) for name, amount in (args["rl"] or {}).items()} or None
            case "ToResourceList":
                amounts = args["$recv"] or {}
                have = {name: quantity.from_int(name, amount) for name, amount in amounts.items()} or None
            case "MergeResourceListKeepMax" | "MergeResourceListKeepMin" | "MergeResourceListKeepFirst" as merge:
                have, results = _in_a_range(merge, args), [_exact(results[0])]
            case "MergeResourceListKeepSum":
                have, results = _in_a_pod(args), [_exact(results[0])]
            case _:
                continue
        compared = True
        if have != results[0]:
            found.append(f"{step['op']}: want {results[0]!r}, have {have!r}")
    return found if compared else None


def _exact(amounts: Json) -> Json:
    return requests.exact(amounts or {})


def _pair(args: Json) -> list[Json]:
    """The two lists of a merge, the one that wins a tie first."""
    return [args.get(one, args.get(other)) or {} for one, other in (("a", "dst"), ("b", "src"))]


def _in_a_range(merge: str, args: Json) -> Json:
    """Several LimitRanges are one: the largest minimum, the smallest maximum and the first default count."""
    field = {"KeepMax": "min", "KeepMin": "max", "KeepFirst": "default"}[merge.removeprefix("MergeResourceList")]
    limits = [{"spec": {"limits": [{"type": "Container", field: amounts}]}} for amounts in _pair(args)]
    return getattr(requests.summarize(world.load(LimitRange, item) for item in limits)["Container"], field)


def _in_a_pod(args: Json) -> Json:
    """The containers of a pod ask for what they ask for together."""
    containers = [{"name": f"c{i}", "resources": {"requests": amounts}} for i, amounts in enumerate(_pair(args))]
    return requests.pod_requests(requests.effective_pod(world.load(PodSpec, {"containers": containers})))
