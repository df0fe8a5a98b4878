"""sparkoperator.k8s.io SparkApplication: suspended by `spec.suspend`; the driver and its executors are a pod set each.

The operator runs spark-submit, which creates the driver, and the driver creates the executors; their templates are made
up here from the fields of the application. The assignment of an admission is merged into the fields of `spec.driver`
and `spec.executor`. Source: Kueue's pkg/controller/jobs/sparkapplication, which charges neither for the memory overhead
nor for `cores`, `sparkConf` and the containers of pod templates.

The operator may be about to create a driver long before it writes so to the status: an application that was started and
has no state counts as active until the operator has acknowledged the stop.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec
import orjson

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, Object, to_plain
from turnstile.api.patch import JsonPatch
from turnstile.api.pods import Toleration
from turnstile.api.validation.errors import OMITTED, FieldError, invalid
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import Template, TemplatedJob, annotations_of, reserved_label_errors
from turnstile.jobs.capabilities import CountedPods
from turnstile.jobs.integration import Asked, Change, Handling, Outcome, Stop
from turnstile.jobs.kinds.spark import pods as sparkpods
from turnstile.jobs.kinds.spark.pods import Role
from turnstile.jobs.labels import is_elastic, queue_name
from turnstile.jobs.podsets import Directives, PodSetInfo, merge
from turnstile.jobs.topologyrequest import topology_errors

Json = Any

ROLES: Final[tuple[Role, ...]] = ("driver", "executor")
_CONTAINERS: Final = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
_NULL: Final = msgspec.Raw(b"null")
_DYNAMIC_PATH: Final = "spec.dynamicAllocation.enabled"
_DYNAMIC: Final = (
    "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is on and "
    "the job is an elastic job"
)
_LOCAL_VOLUME: Final = "spark-local-dir-"
_QUIET: Final = ("", "COMPLETED", "FAILED", "SUSPENDED")
"""States in which the operator neither has pods nor will create any while the application is suspended."""
_READY: Final = ("RUNNING", "COMPLETED")


class _Gpu(Object):
    name: str = ""
    quantity: int = 0


class _Role(Object):
    """The fields of `spec.driver` and `spec.executor` that are read."""

    template: msgspec.Raw = _NULL
    instances: int | None = None
    cores: int | None = None
    core_request: str | None = None
    core_limit: str | None = None
    memory: str | None = None
    memory_limit: str | None = None
    memory_overhead: str | None = None
    gpu: _Gpu | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    affinity: msgspec.Raw = _NULL
    init_containers: msgspec.Raw = _NULL
    sidecars: msgspec.Raw = _NULL
    volume_mounts: msgspec.Raw = _NULL
    priority_class_name: str | None = None


class _DynamicAllocation(Object):
    enabled: bool | None = None
    max_executors: int | None = None


class _RestartPolicy(Object):
    type: str = ""


class _Spec(Object):
    suspend: bool | None = None
    type: str = ""
    mode: str = ""
    spark_conf: dict[str, str] = {}
    memory_overhead_factor: str | None = None
    node_selector: dict[str, str] = {}
    volumes: msgspec.Raw = _NULL
    restart_policy: _RestartPolicy | None = None
    dynamic_allocation: _DynamicAllocation | None = None
    driver: _Role = msgspec.field(default_factory=_Role)
    executor: _Role = msgspec.field(default_factory=_Role)


class _State(Object):
    state: str = ""
    error_message: str = ""


class _Status(Object):
    application_state: _State | None = None
    executor_state: dict[str, str] = {}


class SparkApplication(Kind):
    """The fields of a SparkApplication that are read."""

    GROUP: ClassVar = "sparkoperator.k8s.io"
    VERSION: ClassVar = "v1beta2"
    KIND: ClassVar = "SparkApplication"
    PLURAL: ClassVar = "sparkapplications"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class SparkApplications(TemplatedJob[SparkApplication]):
    """Kueue's `sparkoperator.k8s.io/sparkapplication`."""

    kind = SparkApplication
    framework = "sparkoperator.k8s.io/sparkapplication"
    summary = "suspended; a pod set for the driver and one for the executors"
    makes = frozenset({("", "Pod")})
    handling = Handling(takes_prebuilt=False)
    counted_pods = CountedPods()
    counts = {"spec.executor.instances": None}
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED}, validating_queued=True)

    # --- pod sets

    def templates(self, job: SparkApplication) -> list[Template]:
        """The driver, and as many executors as there can be."""
        return [self._template(job, role) for role in ROLES]

    def readable_templates(self, job: SparkApplication) -> list[Template]:
        """The template of each role whose fields can be read."""
        found: list[Template] = []
        for role in ROLES:
            with suppress(PermanentError):
                found.append(self._template(job, role))
        return found

    def _template(self, job: SparkApplication, role: Role) -> Template:
        count = _executors(job.spec) if role == "executor" else 1
        try:
            template = orjson.dumps(_pod_template(job.spec, role))
        except (AttributeError, TypeError) as error:  # webhooks see objects that no schema was applied to yet
            raise PermanentError(f"a part of the pod is not what the CRD says: {error}") from error
        return Template(role, count, msgspec.Raw(template), ("spec", role))

    # --- rules of the webhook

    def create_errors(self, job: SparkApplication) -> list[FieldError]:
        """Errors of what a queued application must not ask for, of its sizes, and of each role's topology request."""
        errors: list[FieldError] = []
        if queue_name(job):
            if job.spec.mode != "cluster":
                detail = "only Cluster mode is supported for a kueue managed job"
                errors.append(invalid("spec.mode", job.spec.mode, detail))
            errors += _dynamic_errors(job)
        for role in ROLES:
            try:
                template = self._template(job, role)
            except PermanentError as error:
                errors.append(invalid(f"spec.{role}", OMITTED, str(error)))
                continue
            errors += reserved_label_errors(job, [template])
            annotations = annotations_of(template.raw)
            errors += topology_errors(annotations, f"{template.field}.annotations", count=template.count)
        return errors

    # --- answers for the reconciler

    def carries_admission(self, job: SparkApplication) -> bool:
        """Whether a role has the label that every start adds and every stop removes."""
        return any(names.PODSET_LABEL in _role(job.spec, role).labels for role in ROLES)

    def active(self, job: SparkApplication) -> bool:
        """Whether the operator has pods, or may be creating them."""
        state = _state(job)
        if state.state == "":
            return self.carries_admission(job)
        return state.state not in _QUIET and self.finished(job) is None

    def finished(self, job: SparkApplication) -> Outcome | None:
        """The outcome by the state. A submission that failed is the end if the operator will not try again."""
        state = _state(job)
        policy = job.spec.restart_policy
        again = policy is not None and policy.type in ("Always", "OnFailure")
        if state.state in ("COMPLETED", "FAILED") or (state.state == "SUBMISSION_FAILED" and not again):
            return Outcome(success=state.state == "COMPLETED", message=state.error_message)
        return None

    def start(self, job: SparkApplication, infos: Sequence[PodSetInfo]) -> Change | None:
        """Unsuspend and merge what the admission assigned into the fields of both roles, in one patch.

        The node selector of the application moves into both roles: the operator allows it in one place only.
        """
        templates = self.templates(job)
        if len(infos) != len(templates):
            raise PermanentError(f"a SparkApplication has two pod sets, the admission {len(infos)}")
        patch = JsonPatch()
        for role, template, info in zip(ROLES, templates, infos, strict=True):
            _write(patch, job.spec, role, merge(template.directives, info))
        if self.active(job):
            return None
        if job.spec.node_selector:
            patch.remove("spec", "nodeSelector")
        self._set_suspended(job, patch, value=False)
        return Change(patch, fresh=True)

    def stop(
        self, job: SparkApplication, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime
    ) -> Stop:
        """Suspend; once the operator has acknowledged that, restore the fields of both roles. One patch if the operator
        has nothing to acknowledge."""
        if self.finished(job) is not None:
            return Stop()
        running, active = not self.suspended(job), self.active(job)
        patch = JsonPatch()
        if running:
            self._set_suspended(job, patch, value=True)
        if not active and (running or self.carries_admission(job)) and pod_sets is not None and len(pod_sets) == 2:
            for role, pod_set in zip(ROLES, pod_sets, strict=True):
                _write(patch, job.spec, role, Directives.of(pod_set.template))
            if job.spec.node_selector:
                patch.remove("spec", "nodeSelector")
            instances = job.spec.executor.instances
            if instances not in (None, pod_sets[1].count) and not _is_dynamic(job.spec):
                patch.add("spec", "executor", "instances", value=pod_sets[1].count)
        return Stop([Change(patch, fresh=True)] if patch else [], announce=running, complete=not active)

    def pods_ready(self, job: SparkApplication) -> bool:
        """Whether the driver runs, and as many executors run or have ended as are wanted."""
        if _state(job).state != "RUNNING":
            return False
        ready = sum(state in _READY for state in job.status.executor_state.values())
        try:
            return ready >= _executors(job.spec)
        except PermanentError:  # the number in `sparkConf` is none
            return False

    def significant(self, job: SparkApplication) -> tuple[object, ...]:
        """The spec, the outcome, and whether pods are active."""
        return job.spec, self.finished(job), self.active(job)


def _state(job: SparkApplication) -> _State:
    return job.status.application_state or _State()


def _role(spec: _Spec, role: Role) -> _Role:
    return spec.driver if role == "driver" else spec.executor


def _is_dynamic(spec: _Spec) -> bool:
    """Whether Spark may change the number of executors. The operator passes `dynamicAllocation` on only if enabled."""
    return bool(spec.dynamic_allocation and spec.dynamic_allocation.enabled) or sparkpods.is_dynamic(spec.spark_conf)


def _dynamic_errors(job: SparkApplication) -> list[FieldError]:
    if is_elastic(job.metadata):
        return []
    errors: list[FieldError] = []
    if job.spec.dynamic_allocation is not None and job.spec.dynamic_allocation.enabled:
        errors.append(invalid(_DYNAMIC_PATH, True, _DYNAMIC))
    if sparkpods.is_dynamic(job.spec.spark_conf):
        key = f"{sparkpods.DYNAMIC}.enabled"
        errors.append(invalid(f"spec.sparkConf[{key}]", job.spec.spark_conf[key], _DYNAMIC))
    return errors


def _executors(spec: _Spec) -> int:
    """Executors that there can be at a time."""
    wanted = sparkpods.executors(spec.executor.instances, spec.spark_conf)
    if not _is_dynamic(spec):
        return wanted
    given = spec.dynamic_allocation
    return max(wanted, sparkpods.may_grow_to(given.max_executors if given is not None else None, spec.spark_conf))


# --- the pod template of a role


def _pod_template(spec: _Spec, role: Role) -> dict[str, Json]:
    """The template from which the pods of a role will be made, as far as quota and placement depend on it."""
    fields = _role(spec, role)
    own = _loaded(fields.template) or {}
    pod = {**(own.get("spec") or {})}  # TypeError if it is no object, unlike dict()
    first, *rest = _containers(pod.pop("containers", None) or [], role)
    settings = sparkpods.Settings(spec.type, spec.spark_conf, spec.memory_overhead_factor)
    amounts = sparkpods.amounts(
        role,
        settings,
        sparkpods.Fields(
            cores=fields.cores,
            core_request=fields.core_request,
            core_limit=fields.core_limit,
            memory=fields.memory,
            memory_limit=fields.memory_limit,
            memory_overhead=fields.memory_overhead,
        ),
    )
    main: dict[str, Json] = {"name": _CONTAINERS[role], "resources": _resources(first.get("resources") or {}, amounts)}
    if fields.gpu is not None and fields.gpu.name and fields.gpu.quantity > 0:
        main["resources"].setdefault("limits", {})[fields.gpu.name] = str(fields.gpu.quantity)
    volumes, mounts = _volumes(spec, fields)
    if mounts:
        main["volumeMounts"] = mounts
    if volumes:
        pod["volumes"] = [*(pod.get("volumes") or []), *volumes]
    pod["containers"] = [main, *_added(rest, _loaded(fields.sidecars))]
    if init := _added(pod.get("initContainers") or [], _loaded(fields.init_containers)):
        pod["initContainers"] = init
    if fields.priority_class_name:
        pod["priorityClassName"] = fields.priority_class_name
    if affinity := _loaded(fields.affinity):
        pod["affinity"] = affinity
    if selector := {**(pod.get("nodeSelector") or {}), **spec.node_selector, **fields.node_selector}:
        pod["nodeSelector"] = selector
    tolerations = pod.get("tolerations") or []
    if tolerations := [*tolerations, *(each for each in to_plain(fields.tolerations) if each not in tolerations)]:
        pod["tolerations"] = tolerations
    _add_overhead(pod, main, amounts.overhead)
    metadata = own.get("metadata") or {}
    return {
        "metadata": {
            "labels": {**(metadata.get("labels") or {}), **fields.labels},
            "annotations": {**(metadata.get("annotations") or {}), **fields.annotations},
        },
        "spec": pod,
    }


def _add_overhead(pod: dict[str, Json], main: dict[str, Json], overhead: str) -> None:
    """Charge for the memory that Spark adds: as the pod's overhead, so that the container's request stays what Kueue
    charges; as a container if the pod has a RuntimeClass, whose overhead counts besides."""
    if pod.get("runtimeClassName") or pod.get("overhead"):
        pod["containers"].append({"name": "memory-overhead", "resources": {"requests": {"memory": overhead}}})
    else:
        pod["overhead"] = {"memory": overhead}


def _containers(containers: list[Json], role: Role) -> list[Json]:
    """The containers of a template, that of Spark first: the one of its name, or the first one."""
    if not containers:
        return [{}]
    index = next((at for at, each in enumerate(containers) if each.get("name") == _CONTAINERS[role]), 0)
    return [containers[index], *containers[:index], *containers[index + 1 :]]


def _resources(own: dict[str, Json], amounts: sparkpods.Amounts) -> dict[str, Json]:
    """Requests and limits of Spark's container; what its template asks for besides CPU and memory stays."""
    requests = {**(own.get("requests") or {}), **amounts.requests}
    limits = {**{key: value for key, value in (own.get("limits") or {}).items() if key != "memory"}, **amounts.limits}
    return {"requests": requests} | ({"limits": limits} if limits else {})


def _volumes(spec: _Spec, fields: _Role) -> tuple[list[Json], list[Json]]:
    """Volumes that a role mounts, each once, and the mounts. Spark adds local directories itself."""
    known = {each.get("name"): each for each in _loaded(spec.volumes) or []}
    mounts = [
        each
        for each in _loaded(fields.volume_mounts) or []
        if each.get("name") in known and not str(each["name"]).startswith(_LOCAL_VOLUME)
    ]
    return [known[name] for name in dict.fromkeys(each["name"] for each in mounts)], mounts


def _added(containers: list[Json], more: list[Json] | None) -> list[Json]:
    """Containers and those to add; one of the same name and image is there already."""
    there = {(each.get("name"), each.get("image")) for each in containers}
    return [*containers, *(each for each in more or [] if (each.get("name"), each.get("image")) not in there)]


def _loaded(raw: msgspec.Raw) -> Json:
    return orjson.loads(bytes(raw)) if len(memoryview(raw)) else None


# --- writing directives into the fields of a role


def _write(patch: JsonPatch, spec: _Spec, role: Role, wanted: Directives) -> None:
    """Add the operations that give the pods of a role these directives, in the fields of the role.

    Settings of the role's pod template are left there; scheduling gates exist in the pod template only.
    """
    fields = _role(spec, role)
    own = _loaded(fields.template) or {}
    metadata, pod = own.get("metadata") or {}, own.get("spec") or {}
    place = ("spec", role)
    for key, current, target, there in (
        ("labels", fields.labels, wanted.labels, metadata.get("labels")),
        ("annotations", fields.annotations, wanted.annotations, metadata.get("annotations")),
        ("nodeSelector", fields.node_selector, wanted.node_selector, pod.get("nodeSelector")),
    ):
        kept = {name: value for name, value in target.items() if name in current or (there or {}).get(name) != value}
        _set(patch, (*place, key), dict(current), kept)
    tolerations: list[Json] = to_plain(fields.tolerations)
    of_template = pod.get("tolerations") or []
    wanted_here = [
        each for each in to_plain(list(wanted.tolerations)) if each in tolerations or each not in of_template
    ]
    _set(patch, (*place, "tolerations"), tolerations, wanted_here)
    _write_gates(patch, (*place, "template"), own, _CONTAINERS[role], wanted.scheduling_gates)


def _set(patch: JsonPatch, path: tuple[str, ...], current: Json, wanted: Json) -> None:
    if current == wanted:
        return
    if wanted:
        patch.add(*path, value=wanted)
    else:
        patch.remove(*path)


def _write_gates(
    patch: JsonPatch, path: tuple[str, ...], own: dict[str, Json], container: str, gates: Sequence[str]
) -> None:
    """Set the scheduling gates of a pod template. A template that only holds gates is added and removed with them."""
    pod = own.get("spec") or {}
    current = pod.get("schedulingGates") or []
    wanted = [{"name": gate} for gate in gates]
    bare = {"spec": {"containers": [{"name": container}]}}
    if current == wanted:
        return
    if not own:
        patch.add(*path, value={"spec": {**bare["spec"], "schedulingGates": wanted}})
    elif not wanted and _without_empty({**own, "spec": {**pod, "schedulingGates": []}}) == bare:
        patch.remove(*path)
    else:
        _set(patch, (*path, "spec", "schedulingGates"), current, wanted)


def _without_empty(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: found for key, part in value.items() if (found := _without_empty(part)) not in ({}, [], None)}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value
