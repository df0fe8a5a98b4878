"""Recorded tables of Kueue's webhook integration tests, against a real API server with our CRDs and webhooks.

One server a process: it starts with the first case and ends with the process.
"""

import atexit
import base64
import contextlib
import copy
import datetime as dt
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from testbed import Api, ControlPlane
from testbed.client import wait_until
from testbed.errors import ApiError
from testbed.installation import MANAGED, Installation
from tests.conformance.cases import Case
from turnstile.api import quantity
from turnstile.api.errors import InvalidValue
from turnstile.http.certificates import make_ca, make_leaf

Json = Any

NAMESPACE = "core-ns"
TIME = "2026-01-02T03:04:05Z"
OUTCOMES = {403: "ForbiddenError", 404: "NotFoundError", 422: "InvalidError"}
_SUBSTRING = re.compile(r'ContainSubstring\("([^"]*)"\)')
CONTAINER = {"name": "c", "image": "pause"}


@cache
def server() -> Api:
    """A client of the API server, with all rights. No controller runs, so that objects stay as a case makes them."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    control_plane = stack.enter_context(ControlPlane(components=("etcd", "kube-apiserver")))
    now = dt.datetime.now(dt.UTC)
    authority = make_ca(now)
    leaf = make_leaf(authority, now, ["127.0.0.1"])
    certificate, key = (control_plane.directory / name for name in ("webhook.crt", "webhook.key"))
    certificate.write_bytes(leaf.certificate_pem)
    key.write_bytes(leaf.key_pem)
    bundle = base64.b64encode(authority.certificate.public_bytes(Encoding.PEM)).decode()
    installation = Installation(control_plane)
    certs = ("mode=existing", "secretName=unused", f"caBundle={bundle}")
    installation.install(*(f"webhook.certs.{setting}" for setting in certs))
    process = installation.start(role="webhook", arguments=("--tls-cert", str(certificate), "--tls-key", str(key)))
    wait_until(installation.ready, timeout=30, describe=lambda: f"not ready:\n{process.tail(20)}")
    api = control_plane.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": MANAGED}})
    return api


def check(case: Case, entry: dict[str, Json]) -> list[str] | None:
    """One entry of a table: what it does follows from the names of its arguments. None for a table of another make."""
    api, args = server(), entry["args"]
    try:
        return _entry(api, args)
    finally:
        _clean(api, args)


def _entry(api: Api, args: dict[str, Json]) -> list[str] | None:
    match sorted(args):
        case ["ac", "wantAC"] | ["cq", "wantCQ"] | ["rf", "wantRF"]:
            first, want = (args[name] for name in sorted(args))
            return _defaults(api.create(first), want)
        case ["isInvalid", "nodeSelectorCount", "taintsCount"]:
            return _differs(_expect(invalid=args["isInvalid"]), _outcome(lambda: api.create(_flavor(args))))
        case ["isInvalid", "podSetCount", "podSetsCapacity"]:
            workload = _workload(args["podSetsCapacity"], count=args["podSetCount"])
            return _differs(_expect(invalid=args["isInvalid"]), _outcome(lambda: api.create(workload)))
        case ["conditionCount", "matcher"]:
            cluster = api.create(CLUSTER)
            conditions = [_condition(f"Type{number}") for number in range(args["conditionCount"])]
            return _differs(args["matcher"], _outcome(lambda: _put_status(api, cluster, {"conditions": conditions})))
        case ["expectedOutcome", "tasAssignment"]:
            workload = api.create(_workload(1))
            assignment = {"name": "p0", "topologyAssignment": args["tasAssignment"]}
            status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}}
            return _differs(args["expectedOutcome"], _outcome(lambda: _put_status(api, workload, status)))
        case ["a", "matcher", "w"]:
            workload = api.create(args["w"])
            return _differs(args["matcher"], _outcome(lambda: _reserve(api, workload, args["a"])))
        case ["acs", "w"]:
            workload = api.create(args["w"])
            status = {"admissionChecks": [{"lastTransitionTime": TIME} | args["acs"]]}
            return _differs({"$expect": "ForbiddenError"}, _outcome(lambda: _put_status(api, workload, status)))
        case ["matcher", "setQuotaReservation", "updateWl", "w"]:
            return _update(api, args)
        case ["setupMatcher", "setupWlStatus", "updateMatcher", "updateWlStatus"]:
            workload = api.create(_workload(1))
            found = _differs(args["setupMatcher"], _outcome(lambda: _put_status(api, workload, args["setupWlStatus"])))
            outcome = _outcome(lambda: _put_status(api, workload, args["updateWlStatus"]))
            updated = _differs(args["updateMatcher"], outcome)
            return None if found is None or updated is None else found + updated
        case ["matcher", _] | [_, "matcher"]:
            (obj,) = (value for name, value in args.items() if name != "matcher")
            if not isinstance(obj, dict) or "kind" not in obj:
                return None
            return _differs(args["matcher"], _outcome(lambda: api.create(obj)))
        case _:
            return None


def _update(api: Api, args: dict[str, Json]) -> list[str] | None:
    if "$after" not in (args["updateWl"] or {}):
        return None
    workload = api.create(args["w"])
    if args["setQuotaReservation"]:
        assignments = [{"name": pod_set["name"], "count": pod_set["count"]} for pod_set in workload["spec"]["podSets"]]
        workload = _reserve(api, workload, {"clusterQueue": "cq", "podSetAssignments": assignments})
    after = args["updateWl"]["$after"]
    changed = copy.deepcopy(workload)
    changed["spec"] = after["spec"]
    for name in ("labels", "annotations"):
        if name in after["metadata"]:
            changed["metadata"][name] = after["metadata"][name]
    return _differs(args["matcher"], _outcome(lambda: api.replace(api.path_of(workload), changed)))


def _reserve(api: Api, workload: Json, admission: Json) -> Json:
    """As Kueue's tests set a reservation: no check is pending, so the Workload is admitted by it too."""
    conditions = [_condition("QuotaReserved"), _condition("Admitted")]
    return _put_status(api, workload, {"admission": admission, "conditions": conditions})


def _put_status(api: Api, obj: Json, status: Json) -> Json:
    current = api.get(api.path_of(obj))
    return api.replace(f"{api.path_of(obj)}/status", current | {"status": status})


def _outcome(act: Any) -> str:
    try:
        act()
    except ApiError as error:
        return f"{OUTCOMES.get(error.code, error.code)}: {error.message}"
    return "Succeed"


def _differs(want: Json, have: str) -> list[str] | None:
    """None if the recorded matcher is not known here."""
    kind, source = want["$expect"], want.get("source") or ""
    if kind == "Succeed" or kind in OUTCOMES.values():
        return [] if have.split(":")[0] == kind else [f"want {kind}, have {have}"]
    texts = _SUBSTRING.findall(source)
    if not texts:
        return None
    return [f"want an error with {text!r}, have {have}" for text in texts if have == "Succeed" or text not in have]


def _expect(*, invalid: bool) -> Json:
    return {"$expect": "InvalidError" if invalid else "Succeed"}


def _defaults(have: Json, want: Json) -> list[str]:
    asked = ("name", "finalizers", "labels", "annotations")
    pairs = {name: (want["metadata"].get(name), have["metadata"].get(name)) for name in asked}
    pairs["spec"] = want.get("spec"), have.get("spec")
    return [f"{name}: want {wanted}, have {had}" for name, (wanted, had) in pairs.items() if not _same(wanted, had)]


def _same(want: Json, have: Json) -> bool:
    """Quantities are the same by value: Go prints all as text, and the API server keeps a number of the schema."""
    if isinstance(want, dict) and isinstance(have, dict):
        return want.keys() == have.keys() and all(_same(want[name], have[name]) for name in want)
    if isinstance(want, list) and isinstance(have, list):
        return len(want) == len(have) and all(map(_same, want, have))
    if isinstance(want, str) and isinstance(have, int | float) and not isinstance(have, bool):
        try:
            return quantity.parse(want) == quantity.parse(have)
        except InvalidValue:
            return False
    return bool(want == have)


def _condition(kind: str) -> Json:
    return {"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": TIME}


def _head(kind: str, name: str) -> Json:
    metadata = {"name": name} | ({"namespace": NAMESPACE} if kind == "Workload" else {})
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata}


CLUSTER = _head("MultiKueueCluster", "worker") | {"spec": {"clusterSource": {"kubeConfig": {"location": "secret"}}}}


def _flavor(args: Json) -> Json:
    taints = [{"key": f"t{number}", "effect": "NoSchedule"} for number in range(args["taintsCount"])]
    labels = {f"l{number}": "v" for number in range(args["nodeSelectorCount"])}
    return _head("ResourceFlavor", "flavor") | {"spec": {"nodeTaints": taints, "nodeLabels": labels}}


def _workload(pod_sets: int, *, count: int = 1) -> Json:
    sets = [
        {"name": f"p{number}", "count": count, "template": {"spec": {"containers": [CONTAINER]}}}
        for number in range(pod_sets)
    ]
    return _head("Workload", "workload-test") | {"spec": {"podSets": sets}}


def _objects(args: dict[str, Json]) -> Iterator[Json]:
    made = [value for value in args.values() if isinstance(value, dict) and "metadata" in value]
    yield from made or [CLUSTER, _flavor({"taintsCount": 0, "nodeSelectorCount": 0}), _workload(1)]


def _clean(api: Api, args: dict[str, Json]) -> None:
    """Remove what the entry made, whatever finalizers it has."""
    for obj in _objects(args):
        if not obj["metadata"].get("name"):
            continue
        path = api.path_of(obj)
        if api.find(path) is not None:
            api.patch(path, {"metadata": {"finalizers": None}})
            api.delete(path, grace_seconds=0)
