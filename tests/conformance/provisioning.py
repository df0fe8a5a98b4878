"""Replays recorded looks of Kueue's provisioning controller: the world as the recording built it, our decisions until
nothing is left to write, and what is there afterwards.

Compared are the states of the checks, the requests, the templates and the events.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.workload_calls import bare, gates_of, merged
from tests.conformance.workload_reconcile import Objects
from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.core import PodTemplate
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig, ProvisioningRequestConfigSpec
from turnstile.api.workload import Workload
from turnstile.api.workload import decode as decode_workload
from turnstile.controllers.checks import checks, requests, workloads
from turnstile.controllers.runtime.actions import Action, Create, Delete, Emit, Patch
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.provisioning import Provisioning, configs_in, index_provisioning, is_ours
from turnstile.jobs.options import JobOptions
from turnstile.kube.store import Store

Json = Any
Run = dict[str, Json]
_NOW = datetime.fromisoformat(world.NOW)
_KEY = "ns/wl"


class _World(Objects):
    """Also with the objects of this controller."""

    def seen(self, options: JobOptions, now: datetime) -> ClusterView:
        """As reconcilers see it."""
        made = super().seen(options, now)
        provisioning: Provisioning = Provisioning()
        stores: dict[str, tuple[Store[Any], type[Kind]]] = {
            "ProvisioningRequestConfig": (provisioning.configs, ProvisioningRequestConfig),
            "ProvisioningRequest": (provisioning.requests, ProvisioningRequest),
            "PodTemplate": (provisioning.templates, PodTemplate),
        }
        for (kind, _), item in self.all():
            if kind in stores:
                store, struct = stores[kind]
                loaded = _config(item) if struct is ProvisioningRequestConfig else world.load(struct, item)
                store.observe(_numbered(loaded))
            elif kind == "Workload":
                made.workloads.observe(_numbered(_workload(item)))
        index_provisioning(provisioning.requests, made.admission_checks, made.workloads)
        made.provisioning = provisioning
        return made


def _numbered(obj: Any) -> Any:
    obj.metadata.resource_version = obj.metadata.resource_version or "1000000"
    return obj


def _built(run: Run, table: Json) -> _World:
    objects = _World()
    for step in run.get("trace") or ():
        if step["op"] == "client.build":
            for item in (step.get("args") or {}).get("objects") or ():
                objects.put(_owned(item))
    for name in ("checks", "configs", "flavors", "requests", "templates"):
        for item in table.get(name) or ():
            objects.put(_owned(item))
    return objects


def _owned(item: Json) -> Json:
    """A request that names its owner without a kind belongs to the Workload."""
    meta = item.get("metadata") or {}
    owners = [each | {"kind": each.get("kind") or "Workload"} for each in meta.get("ownerReferences") or ()]
    return item | {"metadata": meta | {"ownerReferences": owners}} if owners else item


# Controller.Reconcile


def reconcile(case: Case, run: Run) -> list[str] | None:
    """One look at a Workload."""
    table = case.body["case"]
    objects = _built(run, table)
    cleanup = gates_of(case, run).get("CleanupProvisioningRequestsOnEviction", True)
    options = JobOptions(provisioning_cleanup=cleanup)
    refusal = _refusal(table)
    events: list[tuple[str, str]] = []
    for _ in range(4):
        actions = workloads.decide(_KEY, objects.seen(options, _NOW)).actions
        events += _carry_out(actions, objects, refusal)
        if not actions or refusal is not None:
            break
    want = [(each["reason"], each["message"]) for each in run.get("recordedEvents") or ()]
    return [
        *differs("events", sorted(want), sorted(events)),
        *_states(table, objects),
        *_requests(table, objects),
        *_templates(table, objects),
    ]


def _refusal(table: Json) -> tuple[str, str] | None:
    """The kind that cannot be created, and what the API server says; no text for one that exists already."""
    if not table.get("interceptorFuncsCreate"):
        return None
    error = table["wantReconcileError"]
    kind = "PodTemplate" if "PodTemplate" in error["message"] else "ProvisioningRequest"
    return kind, "" if error.get("reason") == "AlreadyExists" else error["message"]


def _carry_out(actions: list[Action], objects: _World, refusal: tuple[str, str] | None) -> list[tuple[str, str]]:
    """Apply actions as the executor does; the events."""
    events: list[tuple[str, str]] = []
    for action in actions:
        match action:
            case Emit():
                events.append((action.reason, action.note))
            case Create() if refusal is not None and refusal[0] == action.kind.KIND:
                if refusal[1] and action.refused is not None:
                    events += _carry_out(action.refused(refusal[1]), objects, None)
                break
            case Create():
                objects.put(orjson.loads(action.body))
            case Delete():
                item = objects.get(action.kind.KIND, f"{action.namespace}/{action.name}")
                objects.drop(item)
            case Patch():
                key = f"{action.namespace}/{action.name}"
                body = orjson.loads(action.body)
                body.get("metadata", {}).pop("resourceVersion", None)
                objects.put(merged(objects.get(action.kind.KIND, key), body))
            case _:
                pass
    return events


def _states(table: Json, objects: _World) -> list[str]:
    wanted = (table.get("wantWorkloads") or {}).get("wl")
    if wanted is None:
        return []
    have = objects.get("Workload", _KEY)
    return differs("checks", *([_bare(each) for each in item["status"]["admissionChecks"]] for item in (wanted, have)))


def _bare(state: Json) -> Json:
    return {key: value for key, value in state.items() if value and key != "lastTransitionTime"}


def _requests(table: Json, objects: _World) -> list[str]:
    found = []
    for name, want in (table.get("wantRequests") or {}).items():
        have = objects.get("ProvisioningRequest", f"ns/{name}")
        made = want if want["metadata"] else None  # what Go's test got where there is none
        found += differs(f"request {name}", *(_request(each) for each in (made, have)))
    for name in table.get("wantRequestsNotFound") or ():
        found += differs(f"request {name}", None, objects.get("ProvisioningRequest", f"ns/{name}"))
    return found


def _request(item: Json) -> Json:
    return item and (item["metadata"].get("labels"), bare(item["spec"]))


def _templates(table: Json, objects: _World) -> list[str]:
    found = []
    for name, want in (table.get("wantTemplates") or {}).items():
        have = objects.get("PodTemplate", f"ns/{name}")
        found += differs(f"template {name}", *(_template(each) for each in (want, have)))
    return found


def _template(item: Json) -> Json:
    if item is None:
        return None
    meta, template = item["metadata"], item["template"]
    owners = [(each["kind"], each["name"]) for each in meta.get("ownerReferences") or ()]
    spec = {key: value for key, value in template["spec"].items() if key != "restartPolicy"}
    return meta.get("labels"), owners, template.get("metadata"), spec


# The rest


def check_active(case: Case, run: Run) -> list[str] | None:
    """The condition Active of an AdmissionCheck."""
    table = case.body["case"]
    objects = _built(run, table | {"checks": [table["check"]]})
    decision = checks.decide(table["check"]["metadata"]["name"], objects.seen(JobOptions(), _NOW))
    patches = (orjson.loads(action.body) for action in decision.actions if isinstance(action, Patch))
    [have] = next((patch["status"]["conditions"] for patch in patches), [{}])
    want = table["wantCondition"] or {}
    return differs("condition", *({**each, "lastTransitionTime": ""} for each in (want, have)))


def check_calls(case: Case, run: Run) -> list[str] | None:
    """Calls of parts."""
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or [None]
        error = next((each["message"] for each in results if isinstance(each, dict) and "$error" in each), None)
        match step["op"].rpartition("/")[2]:
            case "provisioning.reqIsNeeded":
                spec = _config(args["prc"]).spec
                have = _or_error(partial(requests.is_needed, _workload(args["wl"]), spec))
                found += differs("needed", error or bool(results[0]), have)
            case "provisioning.mergePodSets":
                spec = _config({"metadata": {"name": "c"}, "spec": args["prcSpec"]}).spec
                have = _or_error(partial(_merged, _workload(args["wl"]), spec))
                want = [(each["Name"], each["Count"]) for each in results[0] or ()]
                found += differs("pod sets", error or want, have)
            case "provisioning.Controller.activeOrLastPRForChecks":
                found += _current(run, args, results[0])
            case "admissioncheck.ConfigHelper.ConfigForAdmissionCheck":
                found += _configured(case.body["case"], args, results[0], error)
            case "admissioncheck.FilterForController":
                given = case.body["case"].get("admissionchecks") or ()
                ours = {each["metadata"]["name"]: _answered(each, args["controllerName"]) for each in given}
                have = [each["name"] for each in args["states"] or () if is_ours(ours.get(each["name"]))]
                found += differs("checks", results[0] or [], have)
            case "admissioncheck.IndexerByConfigFunction":
                given = case.body["case"]["admissioncheck"]
                have = configs_in(_answered(given, args["controllerName"])) if given else []  # stores hold no nulls
                found += differs("indexed", case.body["case"]["wantResult"] or [], have)
            case _:
                continue
        compared = True
    return found if compared else None


def _workload(item: Json) -> Workload:
    """As it is read from the API server, with its templates."""
    return decode_workload(orjson.dumps(world.without_nulls(item)))


def _merged(workload: Workload, spec: ProvisioningRequestConfigSpec) -> Json:
    return [(each.pod_set.name, each.count) for each in requests.asks(workload, spec)]


def _config(item: Json) -> ProvisioningRequestConfig:
    """A configuration, also without the class that the API server asks for."""
    spec = {"provisioningClassName": "", **(item.get("spec") or {})}
    loaded: ProvisioningRequestConfig = world.load(ProvisioningRequestConfig, {**item, "spec": spec})
    return loaded


def _or_error(call: Callable[[], Json]) -> Json:
    """What a call returns, or the message of its error."""
    try:
        return call()
    except PermanentError as error:
        return str(error)


def _answered(check: Json, controller: str) -> AdmissionCheck:
    """A check, of this controller if it is one of the recorded controller."""
    spec = check["spec"]
    ours = names.PROVISIONING_CONTROLLER if spec["controllerName"] == controller else "example.com/other"
    loaded: AdmissionCheck = world.load(AdmissionCheck, check | {"spec": spec | {"controllerName": ours}})
    return loaded


def _current(run: Run, args: Json, result: Json) -> list[str]:
    """The request that counts for each check: no other is deleted or replaced."""
    objects = _built(run, {})
    for item in args["ownedPRs"] or ():
        objects.put(_owned(item))
    for config in (args["checkConfig"] or {}).values():
        objects.put(config)
    actions = workloads.decide(_KEY, objects.seen(JobOptions(), _NOW)).actions
    gone = {action.name for action in actions if isinstance(action, Delete) and action.kind is ProvisioningRequest}
    have = {item["metadata"]["name"] for item in args["ownedPRs"] or ()} - gone
    return differs("requests that count", {each["metadata"]["name"] for each in (result or {}).values()}, have)


def _configured(table: Json, args: Json, result: Json, error: str | None) -> list[str]:
    """The configuration of a check."""
    check = table.get("admissioncheck")
    if check is None or check["metadata"]["name"] != args["checkName"]:
        return []
    configs: Store[ProvisioningRequestConfig] = Store()
    if table.get("config"):
        configs.observe(_numbered(_config(table["config"])))
    given = check["spec"].get("parameters")
    named = {**check["spec"], "parameters": {"name": "", **given}} if given else check["spec"]
    spec = world.load(AdmissionCheck, {**check, "spec": named}).spec
    have = _or_error(lambda: checks.config_of(spec.parameters, configs).metadata.name)
    return differs("configuration", error or (result or {}).get("metadata", {}).get("name"), have)
