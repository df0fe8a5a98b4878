"""Objects of every registered kind, drawn from what its integration reads.

A kind that is built is drawn field by field from its struct; one that the configuration file describes has its strategy
here.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations, product
from typing import Any, Final

from hypothesis import strategies as st
from msgspec import inspect as mi

from tests.unit.jobs.samples import SAMPLES
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.meta import Kind
from turnstile.jobs.bases.configured import ConfiguredJobs
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.kinds.ray.base import ClusterSpec
from turnstile.jobs.kinds.trainjob import TrainJob
from turnstile.jobs.registry import ALL, Registry

Json = dict[str, Any]

ENTRY: Final = CustomKind.model_validate(
    {
        "framework": "example.com/simulation",
        "group": "example.com",
        "version": "v1",
        "kind": "Simulation",
        "plural": "simulations",
        "suspend": "spec.run.suspend",
        "podSets": [
            {
                "name": "leader",
                "template": "spec.leader.template",
                "optional": True,
                "reclaimable": "status.leadersDone",
            },
            {
                "each": "spec.groups",
                "nameFrom": "name",
                "template": "template",
                "count": [{"path": "replicas"}, {"path": "size", "default": 2, "atMost": "limit"}],
            },
        ],
        "finished": {
            "success": {"condition": "Complete", "reasons": ["Done"]},
            "failure": {"field": "status.phase", "values": ["Failed"]},
            "message": "status.message",
        },
        "active": {
            "counts": ["status.running", "status.stopping"],
            "when": [{"field": "status.phase", "values": ["Busy"]}],
            "observedGeneration": "status.observedGeneration",
        },
        "ready": {"counts": ["status.ready"]},
        "managedBy": "spec.managedBy",
        "priorityClass": "spec.priorityClassName",
    }
)
CONFIGURED: Final = ConfiguredJobs(ENTRY)
REGISTRY: Final = Registry(kinds=(*ALL, CONFIGURED))

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("a", "b", "c"),
    "status": ("True", "False"),
    "type": (
        "Complete",
        "Completed",
        "Succeeded",
        "Failed",
        "Other",
        "PodsReady",
        "QuotaReserved",
        "RayClusterSuspended",
        "Ready",
        "ResourcesDeployed",
        "Suspended",
        "TerminationTarget",
    ),
    "phase": ("Pending", "Running", "Busy", "Succeeded", "Failed"),
    "reason": ("Done", "Why"),
    "action": ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
    "completionMode": ("Indexed", "NonIndexed"),
    "completedIndexes": ("0", "0-1", "1,3"),
    "failedIndexes": ("0", "1-2", "2"),
    "groupName": ("workers", "more", "Others"),
    "submissionMode": ("K8sJobMode", "SidecarMode", "HTTPMode"),
    "state": (
        *("ready", "suspended", "failed"),
        *("", "RUNNING", "SUSPENDED", "SUBMITTED", "COMPLETED", "FAILED", "SUBMISSION_FAILED"),
    ),
    "jobDeploymentStatus": ("Initializing", "Running", "Suspending", "Suspended", "ValidationFailed", "Complete"),
    "jobStatus": ("RUNNING", "SUCCEEDED", "FAILED"),
    "manager": ("kueue.x-k8s.io/manager", "example.com/other"),
    "startTime": ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
}
WORDS: Final = {name: list(texts) for name, texts in _WORDS.items()}
for _sample in SAMPLES.values():
    for _name, _texts in _sample.words.items():
        WORDS[_name] = list(dict.fromkeys([*WORDS.get(_name, ()), *_texts]))
"""Texts by the name of their field, those of the samples of all kinds with them."""
REPLICA_TYPES: Final = ("Master", "worker", "PS", "Other")
"""Keys of maps of structs: of the replica types of training operators, known and unknown ones."""
LEFT_OUT: Final = ("submitterPodTemplate",)
"""Templates that a job need not have; a start writes them, and a stop leaves them."""
RAW: Final = {"rayClusterConfig": ClusterSpec}
"""What is in fields that stay JSON; in all others there is a pod template."""
KEYS: Final = st.sampled_from(["a", "b", "c"])
MAPS: Final = st.dictionaries(KEYS, st.sampled_from(["x", "y"]), max_size=2)
SMALL: Final = st.sampled_from([2, 4, 1, 3, 0])


def _choices(keys: Sequence[str]) -> list[tuple[str, ...]]:
    """Up to two of the keys, in any order; none of them a third of the time."""
    some = [each for length in (1, 2) for each in permutations(keys, length)]
    return [()] * (len(some) // 2) + some


_SOME_MAPS: Final = [
    dict(zip(keys, values, strict=True)) for keys in _choices("abc") for values in product("xy", repeat=len(keys))
]
_SPECS: Final = list(product("12", _SOME_MAPS, _choices("abc"), _choices(["g/1", "g/2"]), [None, None, "low", "high"]))
_MAPS_OR_NONE: Final = [*[None] * len(_SOME_MAPS), *_SOME_MAPS]
_METADATA: Final = [*[None] * len(_MAPS_OR_NONE) ** 2, *product(_MAPS_OR_NONE, repeat=2)]


def _pod_spec(number: int) -> Json:
    cpu, selector, keys, gates, priority = _SPECS[number]
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec: Json = {"containers": [container], "restartPolicy": "Never"}
    if selector:
        spec["nodeSelector"] = dict(selector)
    if keys:
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in keys]
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    if priority:
        spec["priorityClassName"] = priority
    return spec


def _pod_template(spec: int, metadata: int) -> Json:
    template: Json = {"spec": _pod_spec(spec)}
    if (given := _METADATA[metadata]) is not None:
        named = zip(("labels", "annotations"), given, strict=True)
        template["metadata"] = {name: dict(found) for name, found in named if found is not None}
    return template


def pod_specs() -> st.SearchStrategy[Json]:
    """The spec of a pod, with and without directives. One number says all of it: a job has many, and each draw takes
    hypothesis far longer than the test that needs it."""
    return st.integers(0, len(_SPECS) - 1).map(_pod_spec)


def pod_templates() -> st.SearchStrategy[Json]:
    """A pod template; metadata and its maps may be absent."""
    return st.builds(_pod_template, st.integers(0, len(_SPECS) - 1), st.integers(0, len(_METADATA) - 1))


def fields(info: mi.Type, name: str, raw: st.SearchStrategy[Json]) -> st.SearchStrategy[Any]:
    """Values of a field by its type; texts by its name."""
    match info:
        case mi.UnionType():
            return st.one_of([fields(each, name, raw) for each in info.types if not isinstance(each, mi.NoneType)])
        case mi.BoolType():
            return st.booleans()
        case mi.IntType():
            return SMALL
        case mi.StrType():
            return st.sampled_from(WORDS.get(name, ("x", "y")))
        case mi.RawType():
            return fields(mi.type_info(RAW[name]), name, raw) if name in RAW else raw
        case mi.DictType() if isinstance(info.value_type, mi.StructType):
            return st.dictionaries(st.sampled_from(REPLICA_TYPES), fields(info.value_type, name, raw), max_size=3)
        case mi.DictType():
            return MAPS
        case mi.ListType():
            return st.lists(fields(info.item_type, name, raw), max_size=3, unique_by=_name_of)
        case mi.StructType():
            required, optional = {}, {}
            for field in info.fields:
                needed = field.required or isinstance(field.type, (mi.RawType, mi.StructType))
                needed = needed and field.encode_name not in LEFT_OUT
                needed = needed or field.encode_name in ("name", "groupName", "rayClusterSpec")
                (required if needed else optional)[field.encode_name] = fields(field.type, field.encode_name, raw)
            everything = st.fixed_dictionaries({**required, **optional})
            return everything | st.fixed_dictionaries(required, optional=optional)
    raise NotImplementedError(f"{name}: {info}")


def _name_of(item: Any) -> Any:
    names = ("name", "groupName", "manager", "action")
    return next((item[each] for each in names if each in item), id(item)) if isinstance(item, dict) else item


@cache
def _built(kind: type[Kind], *, raw: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Json]:
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)
    if raw is None:
        raw = pod_specs() if kind.KIND == "Pod" else pod_templates()
    parts = {f.encode_name: f.type for f in info.fields if f.encode_name not in ("apiVersion", "kind", "metadata")}
    return st.fixed_dictionaries({name: fields(part, name, raw) for name, part in parts.items()})


@st.composite
def _configured(draw: st.DrawFn) -> Json:
    spec: Json = {"groups": []}
    if draw(st.booleans()):
        spec["run"] = {"suspend": draw(st.booleans())}
    if draw(st.booleans()):
        spec["leader"] = {"template": draw(pod_templates())}
    for name in draw(st.lists(st.sampled_from(["a", "b", "C"]), unique=True, min_size=1)):
        numbers = draw(st.fixed_dictionaries({}, optional={"replicas": SMALL, "size": SMALL, "limit": SMALL}))
        spec["groups"].append({"name": name, "template": draw(pod_templates()), **numbers})
    spec |= draw(st.fixed_dictionaries({}, optional={"managedBy": KEYS, "priorityClassName": KEYS}))
    counts = ("running", "stopping", "ready", "leadersDone", "observedGeneration")
    status = draw(
        st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(counts, SMALL),
                "phase": st.sampled_from(WORDS["phase"]),
                "message": KEYS,
                "conditions": st.lists(_conditions()),
            },
        )
    )
    return {"spec": spec, "status": status}


@st.composite
def _pipelineruns(draw: st.DrawFn) -> Json:
    """Tasks that are embedded or referred to, some after others, some with a matrix."""
    tasks: list[Json] = []
    for name in draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True)):
        steps = draw(st.lists(st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from("12")), max_size=2))
        task: Json = {"name": name, "taskSpec": {"steps": [{"computeResources": {"requests": each}} for each in steps]}}
        task = draw(st.sampled_from([task, {"name": name, "taskRef": {"name": "x"}}]))
        if draw(st.booleans()):
            task["runAfter"] = [each["name"] for each in tasks]
        elif tasks and draw(st.booleans()):
            task["params"] = [{"name": "x", "value": f"$(tasks.{tasks[-1]['name']}.results.y)"}]
        if draw(st.booleans()):
            task["matrix"] = {"params": [{"name": "m", "value": draw(st.lists(st.just("x"), min_size=1, max_size=3))}]}
        tasks.append(task)
    pipelines: list[Json] = [{"pipelineSpec": {"tasks": tasks, "finally": tasks[:1]}}, {"pipelineRef": {"name": "x"}}]
    spec: Json = dict(draw(st.sampled_from(pipelines)))
    if status := draw(st.sampled_from(["", "PipelineRunPending", "Cancelled", "StoppedRunFinally"])):
        spec["status"] = status
    if draw(st.booleans()):
        spec["taskRunTemplate"] = {"podTemplate": {"priorityClassName": draw(KEYS)}}
    conditions = st.fixed_dictionaries({"type": st.just("Succeeded"), "status": st.sampled_from(WORDS["status"])})
    status = draw(
        st.fixed_dictionaries(
            {}, optional={"startTime": st.sampled_from(WORDS["startTime"]), "conditions": st.lists(conditions)}
        )
    )
    return {"spec": spec, "status": status}


_DRAWN: Final[Mapping[str, Callable[[], st.SearchStrategy[Json]]]] = {
    CONFIGURED.framework: _configured,
    "tekton.dev/pipelinerun": _pipelineruns,
}
"""Kinds whose objects follow from more than their structs."""


@st.composite
def _components(draw: st.DrawFn) -> Json:
    """A component of an AppWrapper: an object of a kind that the AppWrapper controller knows, or one that declares
    where its templates are."""
    template, amounts = draw(pod_templates()), st.fixed_dictionaries({}, optional={"replicas": SMALL})
    job = {
        **draw(st.fixed_dictionaries({}, optional={"parallelism": SMALL, "completions": SMALL})),
        "template": template,
    }
    component = draw(
        st.sampled_from(
            [
                {"template": {"apiVersion": "batch/v1", "kind": "Job", "spec": job}},
                {"template": {"apiVersion": "v1", "kind": "Pod", **template}},
                {
                    "template": {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "spec": {**draw(amounts), "template": template},
                    }
                },
                {
                    "template": {
                        "apiVersion": "jobset.x-k8s.io/v1alpha2",
                        "kind": "JobSet",
                        "spec": {"replicatedJobs": [{"name": "a", **draw(amounts), "template": {"spec": job}}]},
                    }
                },
                {
                    "template": {"apiVersion": "example.com/v1", "kind": "Farm", "spec": {"herds": [template]}},
                    "podSets": [{"path": "template.spec.herds[0]", **draw(amounts)}],
                },
                {"template": {"apiVersion": "v1", "kind": "Service", "spec": {}}},
            ]
        )
    )
    if draw(st.booleans()):
        component["podSetInfos"] = [{"labels": draw(MAPS), "nodeSelector": draw(MAPS)}]
    return component


@st.composite
def _appwrapper(draw: st.DrawFn) -> Json:
    optional = {"suspend": st.booleans(), "managedBy": KEYS}
    status = {"phase": st.sampled_from(WORDS["phase"]), "conditions": st.lists(_conditions(), max_size=3)}
    return {
        "spec": draw(
            st.fixed_dictionaries({"components": st.lists(_components(), min_size=1, max_size=3)}, optional=optional)
        ),
        "status": draw(st.fixed_dictionaries({}, optional=status)),
    }


def _conditions() -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({name: st.sampled_from(WORDS[name]) for name in ("type", "status", "reason")})


@st.composite
def _sparkapplication(draw: st.DrawFn) -> Json:
    """Drawn field by field, but for what Spark must be able to read; the node selector of the whole application, which
    no stop puts back, is left out."""
    kind = next(each.kind for each in ALL if each.framework == "sparkoperator.k8s.io/sparkapplication")
    body = draw(_built(kind, raw=st.none()))
    spec = body["spec"]
    spec.pop("nodeSelector", None)
    spec["sparkConf"] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "spark.executor.instances": st.sampled_from(["1", "3"]),
                "spark.dynamicAllocation.enabled": st.sampled_from(["true", "false"]),
                "spark.dynamicAllocation.maxExecutors": st.sampled_from(["2", "5"]),
            },
        )
    )
    spec["memoryOverheadFactor"] = draw(st.sampled_from(["0.1", "0.5"]))
    for role in ("driver", "executor"):
        for name in ("coreRequest", "coreLimit", "memory", "memoryLimit", "memoryOverhead"):
            if name in spec[role]:
                spec[role][name] = draw(st.sampled_from(["1", "2"] if name.startswith("core") else ["1g", "512m"]))
        template = draw(st.none() | pod_specs())
        if template is not None:
            directives = ("nodeSelector", "tolerations")
            spec[role]["template"] = {"spec": {key: part for key, part in template.items() if key not in directives}}
    return body


_OWN: Final[Mapping[str, Callable[[], st.SearchStrategy[Json]]]] = {
    CONFIGURED.framework: _configured,
    "sparkoperator.k8s.io/sparkapplication": _sparkapplication,
    "workload.codeflare.dev/appwrapper": _appwrapper,
    "tekton.dev/pipelinerun": _pipelineruns,
}
"""Kinds that cannot be drawn field by field."""


@st.composite
def jobs(draw: st.DrawFn, integration: Integration[Any]) -> Json:
    """An object of the kind in any state, queued."""
    kind = integration.kind
    own = _OWN.get(integration.framework)
    body = draw(own() if own is not None else _built(kind))
    annotations = draw(st.sampled_from([{}, {}, {"kueue.x-k8s.io/job-min-parallelism": "1"}]))
    meta = {
        "name": "train",
        "namespace": "team-a",
        "uid": "uid-1",
        "resourceVersion": "1",
        "generation": draw(st.integers(1, 3)),
        "labels": {"kueue.x-k8s.io/queue-name": "main"},
        **({"annotations": dict(annotations)} if annotations else {}),
    }
    api_version = f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION
    beside = {"jobSet": draw(_built(JobSet))} if kind is TrainJob else {}
    return {"apiVersion": api_version, "kind": kind.KIND, "metadata": meta, **body, **beside}


def decode(integration: Integration[Any], body: Json) -> Any:
    """The object as Turnstile sees it, with the JobSet that Trainer makes of a TrainJob."""
    job = integration.kind.decoder()(json.dumps(body).encode())
    rendering = integration.rendering
    if "jobSet" not in body or rendering is None:
        return job
    return rendering.joined(job, JobSet.decoder()(json.dumps(_rendered(body)).encode()))


def _rendered(body: Json) -> Json:
    """The JobSet of a TrainJob: suspended with it, and with the runtime patch of Turnstile applied."""
    job_set: Json = copy.deepcopy(body["jobSet"])
    job_set["spec"]["suspend"] = body["spec"].get("suspend", False)
    jobs = {each["name"]: each for each in job_set["spec"].get("replicatedJobs", [])}
    for patch in body["spec"].get("runtimePatches", []):
        changes = patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", [])
        for change in changes if patch.get("manager") == WORDS["manager"][0] else ():
            given = change.get("template", {}).get("spec", {}).get("template", {})
            if (name := change.get("name", "")) in jobs and given:
                _patch_template(jobs[name]["template"]["spec"]["template"], given)
    return job_set


def _patch_template(template: Json, given: Json) -> None:
    """Apply the part of a runtime patch that is about pods: maps are merged, tolerations replaced, gates added."""
    metadata = template.setdefault("metadata", {})
    for name, values in given.get("metadata", {}).items():
        metadata[name] = {**metadata.get(name, {}), **values}
    spec, changes = template["spec"], given.get("spec", {})
    if "nodeSelector" in changes:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **changes["nodeSelector"]}
    if "tolerations" in changes:
        spec["tolerations"] = changes["tolerations"]
    if "schedulingGates" in changes:
        gates = spec.get("schedulingGates", [])
        spec["schedulingGates"] = [*gates, *(each for each in changes["schedulingGates"] if each not in gates)]


def without_pods(body: Json) -> Json:
    """The object once its controller has no pod left and has said so: all counts are 0, and it has seen a stop."""
    body = copy.deepcopy(body)

    def still(value: Any) -> Any:
        match value:
            case bool():
                return value
            case int():
                return 0
            case dict():
                return {key: still(part) for key, part in value.items()}
            case list():
                return [still(part) for part in value]
        return value

    body["status"] = still(body.get("status") or {})
    if body["kind"] == "RayCluster":
        body["status"] |= {"state": "suspended", "conditions": [{"type": "RayClusterSuspended", "status": "True"}]}
    if body["kind"] == "RayJob":
        body["status"]["jobDeploymentStatus"] = "Suspended"
    if "jobSet" in body:
        body["jobSet"]["status"] = still(body["jobSet"]["status"])
    of_operator = body["spec"].get("runPolicy", {})
    if (body["kind"] == "Job" and body["spec"].get("suspend")) or of_operator.get("suspend"):
        body["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    if body["kind"] == "AppWrapper":
        body["status"]["conditions"] = []
    if body["kind"] == "SparkApplication":
        body["status"] = {"applicationState": {"state": "SUSPENDED"}}
    if body["kind"] == CONFIGURED.kind.KIND:
        body["status"] |= {"phase": "Idle", "observedGeneration": body["metadata"]["generation"]}
    return body


def written(body: Json) -> Json:
    """The spec as its user wrote it: without the runtime patch that a TrainJob has for Turnstile."""
    spec = dict(body["spec"])
    if "runtimePatches" in spec:
        patches = spec["runtimePatches"]
        spec["runtimePatches"] = [each for each in patches if each.get("manager") != WORDS["manager"][0]]
    return spec


def unfinished(body: Json) -> Json:
    """The object as if it had not ended."""
    body = copy.deepcopy(body)
    status = body.get("status") or {}
    status.pop("conditions", None)
    if status.get("phase") in ("Succeeded", "Failed"):
        status["phase"] = "Running"
    if body["kind"] == "SparkApplication":
        status["applicationState"] = {"state": "RUNNING"}
    if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
        status["jobDeploymentStatus"] = "Running"
    return body
