"""Recorded tables of what all job kinds share: names, the table of kinds, ancestors, pod sets, topology requests.

Every call is dispatched by its name; one that has no counterpart here is passed over. A kind that a case names and
Turnstile does not have is stood in for by a kind of that group and name from the configuration.
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_webhooks import Cluster
from tests.conformance.workload_calls import bare
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.config.frameworks import group_kind, is_kind
from turnstile.api.config.kinds import FRAMEWORKS
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, OwnerReference
from turnstile.jobs.ancestors import Ancestor, managed_ancestor
from turnstile.jobs.bases.configured import ConfiguredJobs
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.naming import MAX_NAME, SHORT_NAME, workload_name
from turnstile.jobs.options import JobOptions
from turnstile.jobs.podsets import JobPodSet
from turnstile.jobs.registry import ALL, Registry
from turnstile.jobs.topologyrequest import PodIndex, topology_errors, topology_request

Json = Any
_OP = "controller/jobframework."


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found: list[str] = []
    compared = False
    want: Json
    have: Json
    for step in run.get("trace") or ():
        if not step["op"].startswith(_OP):
            continue
        args, results = step.get("args") or {}, step.get("results") or [None]
        name = step["op"].removeprefix(_OP).rpartition(".")[2]
        match name:
            case "GenerateWorkloadNameWithExtra":
                want, have = results[0], _name(args, args["extra"], run)
            case "GenerateWorkloadNamePrefix":
                want, have = results[0], _name(args, "", run).rpartition("-")[0]
            case "GetWorkloadNameForOwnerWithGVK":
                want, have = results[0], _name(args, "", run)
            case "GetWorkloadNameForOwnerWithGVKAndGeneration":
                want, have = results[0], _name(args, str(args["generation"]), run)
            case "getJobTypeForOwner":
                want, have = bool(results[0]), _registry_of(case.body["fixture"]["mgr"]).manages(_owner(args))
            case "registerExternal":
                want, have = results[0] is None, is_kind(args["kindArg"])
            case "getExternal":
                want, have = bool(results[-1]), is_kind(args["kindArg"])
                if want and have:
                    found += _queued_elsewhere(args["kindArg"], results[0])
            case "collectImplicitlyEnabledIntegrations":
                want, have = sorted(results[0] or ()), _implied(case.body["case"])
            case "FindAncestorJobManagedByKueue":
                want, have = _wanted_ancestor(results), _ancestor(case.body["case"])
            case "SanitizePodSets":
                want = bare(case.body["case"]["expectedPodSets"])
                have = [bare(_written(each)) for each in args["podSets"]]
            case "Build":
                want, have = _wanted_request(results), _request(case.body["case"])
            case "ValidateTASPodSetRequest":
                want, have = _told(results[0]), _topology(args)
            case "ValidateSliceSizeAnnotationUpperBound":
                counted = _topology(args, count=args["podSet"]["count"])
                want, have = _told(results[0]), [each for each in counted if each not in _topology(args)]
            case _:
                continue
        compared = True
        found += differs(name, want, have)
    return found if compared else None


# Names.


def _kind(group: str, version: str, kind: str) -> type[Any]:
    names = {"GROUP": group, "VERSION": version, "KIND": kind, "PLURAL": f"{kind.lower()}s"}
    return msgspec.defstruct(kind, [], bases=(Kind,), namespace=names)


def _name(args: Json, extra: str, run: dict[str, Json]) -> str:
    owner = args["ownerGVK"]
    longest = SHORT_NAME if (run.get("gates") or {}).get("ShortWorkloadNames") else MAX_NAME
    kind = _kind(owner.get("Group", ""), owner["Version"], owner["Kind"])
    return workload_name(kind, args["ownerName"], args["ownerUID"], extra=extra, longest=longest)


# The table of kinds.


class _MadeUp(BatchJob):
    """A kind that only a test has."""

    def __init__(self, framework: str, *, kind: type[Any] | None = None, needs: Iterable[str] = ()) -> None:
        self.framework = framework
        self.kind = kind or _kind("test-group", "v1", framework)
        self.needs = tuple(needs)  # type: ignore[misc]  # each of these kinds has its own


def _registry_of(manager: Json) -> Registry:
    """The table that a recorded integration manager holds."""
    kinds = [
        _MadeUp(name, kind=_kind(gvk["Group"], gvk["Version"], gvk["Kind"]) if (gvk := each.get("GVK")) else None)
        for name, each in manager["integrations"].items()
    ]
    external = [
        (each["apiVersion"].rpartition("/")[0], each["kind"])
        for each in (manager.get("externalIntegrations") or {}).values()
    ]
    return Registry(manager["enabledIntegrations"], kinds=kinds, external=external)


def _owner(args: Json) -> OwnerReference:
    owner: OwnerReference = world.load(OwnerReference, args["ownerRef"])
    return owner


def check_owner(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether an owner's kind is one that is queued by itself; the calls of this test were not recorded."""
    enabled = case.body["fixture"]["integrationManager"]["enabledIntegrations"]
    owner = world.load(OwnerReference, case.body["case"]["ownerReference"])
    return differs("managed", case.body["case"]["wantRes"], Registry(enabled, kinds=stand_ins()).manages(owner))


def _queued_elsewhere(name: str, recorded: Json) -> list[str]:
    """An owner of an external kind is one that another controller manages."""
    owner = OwnerReference(api_version=recorded["apiVersion"], kind=recorded["kind"], name="owner", uid="owner")
    return differs("external", True, Registry(external={group_kind(name)}).is_external(owner))


def _implied(table: Json) -> list[str]:
    needed = {name: needs or () for name, needs in (table["integrationsImplicit"] or {}).items()}
    enabled = table["enabled"] or []
    names = {*enabled, *needed, *(name for needs in needed.values() for name in needs)}
    registry = Registry(enabled, kinds=[_MadeUp(name, needs=needed.get(name, ())) for name in sorted(names)])
    return sorted({each.framework for each in registry.enabled} - set(enabled))


# Ancestors.


def stand_ins() -> list[Integration[Any]]:
    """All kinds that Kueue has: ours, and for each other one a kind from the configuration."""
    ours = {each.framework for each in ALL}
    others = []
    for framework, gvk in FRAMEWORKS.items():
        group, kind = group_kind(gvk)
        if framework not in ours:
            version = gvk.removeprefix(f"{kind}.").removesuffix(f".{group}")
            entry = CustomKind(framework=framework, group=group, version=version, kind=kind, plural=f"{kind.lower()}s")
            others.append(ConfiguredJobs(entry))
    return [*ALL, *others]


def _ancestor(table: Json) -> Json:
    """What the search finds: the kind and name of an ancestor, nothing, or the kind of error."""
    enabled = table.get("integrations") or ()
    external = {group_kind(name) for name in table.get("externalFrameworks") or ()}
    registry = Registry(enabled, kinds=stand_ins(), external=external)
    cluster = Cluster(
        JobOptions(manage_jobs_without_queue_name=bool(table["manageJobsWithoutQueueName"])),
        registry,
        objects=[*(table.get("ancestors") or ()), table["job"]],
    )
    job = decoded(BatchJob(), table["job"])
    try:
        found: Ancestor | None = managed_ancestor(job, cluster.find, options=cluster.options, registry=registry)
    except LookupError:
        return "owner not found"
    except PermanentError:
        return "no end of owners"
    return found and (found.kind, found.name)


def _wanted_ancestor(results: Json) -> Json:
    error = results[-1] if len(results) > 1 else None
    if error:
        return "owner not found" if error["message"].startswith("workload owner not found") else "no end of owners"
    found = results[0]
    return (found["kind"], found["metadata"]["name"]) if found else None


def decoded(integration: Integration[Any], body: Json) -> Any:
    """An object of a job kind."""
    return integration.kind.decoder()(json.dumps(body).encode())


# Pod sets.


def _written(pod_set: Json) -> Json:
    """As it stands in a new Workload."""
    return JobPodSet(pod_set["name"], pod_set["count"], json.dumps(pod_set["template"]).encode()).body(topologies=True)


# Topology requests.


def _wanted_request(results: list[Json]) -> Json:
    return "refused" if any(results[1:]) else bare(results[0])


def _request(table: Json) -> Json:
    """The request of a table of annotations and labels, or that it is refused."""
    index = PodIndex(table["podIndexLabel"] or "", table["subGroupIndexLabel"] or "", table["subGroupCount"] or 0)
    try:
        return bare(topology_request(table["meta"].get("annotations") or {}, index)) or None
    except PermanentError:
        return "refused"


def _topology(args: Json, *, count: int | None = None) -> list[tuple[str, str]]:
    """Errors, but that slices leave a remainder, which Kueue allows."""
    annotations = args["replicaMetadata"].get("annotations") or {}
    errors = topology_errors(annotations, f"{args['replicaPath']}.annotations", count=count)
    return sorted((each.path, each.type) for each in errors if "the pod set's" not in each.detail)


def _told(errors: Json) -> list[tuple[str, str]]:
    return sorted((each["field"], each["type"]) for each in errors or ())
