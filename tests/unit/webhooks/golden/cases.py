"""Admission reviews of every job kind, and how they are answered.

A sample of a kind is the manifest of its row in the table of kinds. Each case changes the sample by merge patches, is
sent through the defaulting webhook and then, as the API server goes on, through the validating one. Whole
AdmissionReviews go in and come out; only what a case says of them is written down.
"""

import base64
import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import jsonpatch

from testbed.client import Api
from tests.cluster.scenario import Scenario
from tests.operators.rows import ROWS
from tests.unit.jobs.samples import SAMPLES
from tests.unit.jobs.subjects import CONFIGURED, decode
from tests.unit.webhooks.reviews import Cluster, meta
from turnstile.api import names
from turnstile.api.meta import Kind
from turnstile.api.patch import apply_merge_patch
from turnstile.jobs.bases.templated import TemplatedJob
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.naming import webhook_path
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.jobs.registry import ALL, Registry
from turnstile.jobs.topologyrequest import PREFERRED, REQUIRED
from turnstile.webhooks.review import Handler, read, write
from turnstile.webhooks.routes import routes

Json = dict[str, Any]
HERE: Final = Path(__file__).parent
REGISTRY: Final = Registry(kinds=(*ALL, CONFIGURED), external=[("example.com", "Foreign")])
UNMANAGED: Final = "kube-system"
CONFIGURED_SAMPLE: Final[Json] = {
    "apiVersion": "example.com/v1",
    "kind": "Simulation",
    "metadata": {"name": "job", "namespace": "team-a", "labels": {names.QUEUE_LABEL: "main"}},
    "spec": {
        "groups": [
            {"name": "a", "replicas": 2, "size": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
        ]
    },
}


@dataclass(frozen=True)
class Case:
    """One review. `change` and `before` are merge patches: of a new object to the sample as its user wrote it; of an
    update to the sample as it is stored, where it waits, or runs if `runs` or `ran` say so."""

    name: str
    change: Json = field(default_factory=dict)
    _: KW_ONLY
    template: Json = field(default_factory=dict)
    """A merge patch of the metadata of the first pod template, or of the Pod."""
    before: Json | None = None
    runs: bool = False
    ran: bool = False
    stored: bool = False
    """Whether a new object comes as the webhook leaves it."""
    operation: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    default_queue: bool = False
    default_class: bool = False
    manage_all: bool = False
    namespace: str = "team-a"


def labels(**changes: str | None) -> Json:
    """A change of labels of Kueue's group: `labels(queue_name="x")`."""
    return {"metadata": {"labels": _keys(changes)}}


def annotations(**changes: str | None) -> Json:
    """A change of annotations of Kueue's group."""
    return {"metadata": {"annotations": _keys(changes)}}


def _keys(changes: dict[str, str | None]) -> Json:
    return {f"{names.GROUP}/{key.replace('_', '-')}": to for key, to in changes.items()}


def owned(kind: str, group: str = "example.com/v1", name: str = "parent") -> Json:
    """No queue, and a controller."""
    owner = {"apiVersion": group, "kind": kind, "name": name, "uid": "uid-of-parent", "controller": True}
    return {"metadata": {"labels": {names.QUEUE_LABEL: None}, "ownerReferences": [owner]}}


NO_QUEUE: Final = labels(queue_name=None)
LEAVING: Final[Json] = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/mine"]}}
INVALID_AND_LEAVING: Final[Json] = {"metadata": {**LEAVING["metadata"], **labels(queue_name="A_")["metadata"]}}
JOBSET: Final = "jobset.x-k8s.io/v1alpha2"

CREATED: Final = (
    Case("a queue is named"),
    Case("a dry run", dry_run=True),
    Case("no queue", NO_QUEUE),
    Case("an empty queue name", labels(queue_name="")),
    Case("no queue, but the namespace has a default queue", NO_QUEUE, default_queue=True),
    Case("a queue is named, and the namespace has a default queue", default_queue=True),
    Case("no queue, in a namespace that is not managed", NO_QUEUE, default_queue=True, namespace=UNMANAGED),
    Case("a queue is named in a namespace that is not managed", namespace=UNMANAGED),
    Case("no queue, where all jobs are managed", NO_QUEUE, manage_all=True),
    Case("no queue, all jobs are managed, but not the namespace", NO_QUEUE, manage_all=True, namespace=UNMANAGED),
    Case("an invalid queue name", labels(queue_name="Team_A")),
    Case("a priority class", labels(priority_class="high")),
    Case("no priority class, but there is a default one", default_class=True),
    Case("a priority class, and there is a default one", labels(priority_class="high"), default_class=True),
    Case("neither queue nor priority class, and there are defaults", NO_QUEUE, default_queue=True, default_class=True),
    Case("a prebuilt Workload by annotation", annotations(prebuilt_workload_name="made-before")),
    Case("a prebuilt Workload by label", labels(prebuilt_workload_name="made-before")),
    Case("an invalid name of a prebuilt Workload", annotations(prebuilt_workload_name="Made_Before")),
    Case("a time limit", labels(max_exec_time_seconds="60")),
    Case("a time limit of nothing", labels(max_exec_time_seconds="0")),
    Case("a time limit that is no number", labels(max_exec_time_seconds="soon")),
    Case("elastic", annotations(elastic_job="true")),
    Case("gated by others", annotations(admission_gated_by="example.com/budget,example.com/review")),
    Case("gated by a name without a domain", annotations(admission_gated_by="budget")),
    Case("gated twice by the same", annotations(admission_gated_by="example.com/a,example.com/a")),
    Case("owned by a queued JobSet, not in its name", owned("JobSet", JOBSET), default_queue=True),
    Case("owned by a JobSet that is not known yet", owned("JobSet", JOBSET, "unseen"), default_queue=True),
    Case("owned by a kind that another controller queues", owned("Foreign"), default_queue=True, manage_all=True),
    Case("owned by a kind that nobody queues", owned("Other"), default_queue=True),
    Case("pods with a label that only an admission gives", template={"labels": {names.PODSET_LABEL: "x"}}),
    Case("pods that are to run in one rack", template={"annotations": {REQUIRED: "example.com/rack"}}),
    Case("pods with two topologies", template={"annotations": {REQUIRED: "rack", PREFERRED: "block"}}),
    Case("pods with an invalid topology", template={"annotations": {REQUIRED: "a rack"}}),
    Case("being deleted", LEAVING),
    Case("as the webhook leaves it", stored=True),
)
"""New objects."""

UPDATED: Final = (
    Case("nothing changes while it waits", before={}),
    Case("nothing changes while it runs", before={}, ran=True, runs=True),
    Case("resumed by its user", before={}, runs=True),
    Case("stopped by its user", before={}, ran=True),
    Case("another queue while it waits", labels(queue_name="other"), before={}),
    Case("another queue while it runs", labels(queue_name="other"), before={}, ran=True, runs=True),
    Case("another queue in the change that resumes it", labels(queue_name="other"), before={}, runs=True),
    Case("no queue any more while it waits", NO_QUEUE, before={}),
    Case("no queue any more where there is a default queue", NO_QUEUE, before={}, default_queue=True),
    Case("no queue any more while it runs", NO_QUEUE, before={}, ran=True, runs=True),
    Case("a queue for what runs without", before=NO_QUEUE, ran=True, runs=True),
    Case("an invalid queue name while it waits", labels(queue_name="Team_A"), before={}),
    Case("an invalid queue name that was there before", labels(queue_name="A_"), before=labels(queue_name="A_")),
    Case(
        "another priority class while it runs",
        labels(priority_class="b"),
        before=labels(priority_class="a"),
        ran=True,
        runs=True,
    ),
    Case("a priority class while it waits", labels(priority_class="high"), before={}),
    Case("a priority class while it runs", labels(priority_class="high"), before={}, ran=True, runs=True),
    Case("no priority class any more", before=labels(priority_class="high")),
    Case("a prebuilt Workload while it waits", annotations(prebuilt_workload_name="made"), before={}),
    Case(
        "a prebuilt Workload while it runs", annotations(prebuilt_workload_name="made"), before={}, ran=True, runs=True
    ),
    Case("a time limit while it waits", labels(max_exec_time_seconds="60"), before={}),
    Case("a time limit while it runs", labels(max_exec_time_seconds="60"), before={}, ran=True, runs=True),
    Case("elastic from now on", annotations(elastic_job="true"), before={}),
    Case("gated by others from now on", annotations(admission_gated_by="example.com/a"), before={}),
    Case(
        "gated by one other less",
        annotations(admission_gated_by="example.com/a"),
        before=annotations(admission_gated_by="example.com/a,example.com/b"),
    ),
    Case("invalid, but being deleted", INVALID_AND_LEAVING, before={}, ran=True, runs=True),
    Case("its status, which is not reviewed", NO_QUEUE, before={}, ran=True, runs=True, sub_resource="status"),
    Case("deleted, which is not reviewed", operation="DELETE"),
)
"""Changed objects, and what is never reviewed."""


def samples() -> dict[str, Json]:
    """A manifest of each kind, by the name of its row: those objects of the rows that a job kind answers for. Of a kind
    without a row, the object of its sample."""
    scenario = Scenario(cast(Api, None), "team-a")
    made = [(row, row.objects(scenario, "job", "main")) for row in ROWS]
    found = {row.name: next(each for each in objects if each["kind"] == row.kind) for row, objects in made}
    found["configured"] = CONFIGURED_SAMPLE
    kinds = {_kind(each.kind) for each in REGISTRY.enabled}
    with_row = {(_group(each), each["kind"]) for each in found.values()}
    for integration in REGISTRY.enabled:
        if _kind(integration.kind) not in with_row:
            body = SAMPLES[integration.framework].manifest()
            body["metadata"] = {"name": "job", "namespace": "team-a", "labels": {names.QUEUE_LABEL: "main"}}
            found[integration.kind.KIND.lower()] = body
    return {name: body for name, body in found.items() if (_group(body), body["kind"]) in kinds}


def _kind(kind: type[Kind]) -> tuple[str, str]:
    return kind.GROUP, kind.KIND


def _group(body: Json) -> str:
    group: str = body["apiVersion"].rpartition("/")[0]
    return group


def lines(sample: Json) -> Iterator[Json]:
    """What is written down of a kind: the sample, and each case with its answers."""
    yield {"sample": sample}
    templated = _template(_integration(sample), sample) is not None
    for case in (*CREATED, *UPDATED):
        if templated or not case.template:
            yield told(case, sample)


def _integration(sample: Json) -> Integration[Any]:
    return next(each for each in REGISTRY.enabled if _kind(each.kind) == (_group(sample), sample["kind"]))


def told(case: Case, sample: Json) -> Json:
    """A case with its answers, for people."""
    integration = _integration(sample)
    handlers = routes(_cluster(case))
    waiting = _stored(integration, sample)
    old = None
    if case.before is not None:
        old = apply_merge_patch(_running(integration, waiting) if case.ran else waiting, case.before)
        new = apply_merge_patch(_running(integration, waiting) if case.runs else waiting, case.change)
    else:
        new = apply_merge_patch(waiting if case.stored else sample, case.change)
    if case.template:
        new = copy.deepcopy(new)
        template = _template(integration, new) or {}
        template["metadata"] = apply_merge_patch(template.get("metadata", {}), case.template)
    given = {key: value for key, value in vars(case).items() if value not in (None, {}, False, "", "team-a")}
    operation = case.operation or ("CREATE" if old is None else "UPDATE")
    answers: Json = {}
    for verb in ("mutate", "validate"):
        handler = handlers[f"/{verb}-{webhook_path(integration.kind)}"]
        answers[verb] = _answer(handler, _review(case, integration, new, old, operation))
        if "denied" in answers[verb]:
            break
        new = jsonpatch.apply_patch(new, answers[verb].get("patch", []))
    return {"case": given.pop("name"), "operation": operation, **given, **answers}


def _template(integration: Integration[Any], body: Json) -> Json | None:
    """The first pod template of an object, or the Pod; None if the object has fields of its own instead, or none."""
    if body["kind"] == "Pod":
        return body
    path: tuple[str | int, ...] = ("spec", "template")
    if isinstance(integration, TemplatedJob):
        try:
            path = integration.templates(decode(integration, body))[0].path
        except LookupError:  # in another object
            return None
    place: Any = body
    for part in path:
        if isinstance(place, dict) and part not in place:
            return None
        place = place[part]
    found: Json = place
    return found if "spec" in found else None


def _cluster(case: Case) -> Cluster:
    parent = JobSet(metadata=meta(name="parent", uid="uid-of-parent", labels={names.QUEUE_LABEL: "main"}))
    return Cluster(
        options=JobOptions(
            manage_jobs_without_queue_name=case.manage_all,
            managed_jobs_namespace_selector=namespaces(without=[UNMANAGED]),
        ),
        default_queue_in=(case.namespace,) if case.default_queue else (),
        has_default_priority_class=case.default_class,
        jobs=(parent,),
        registry=REGISTRY,
    )


def _stored(integration: Integration[Any], sample: Json) -> Json:
    """The sample as it waits in its queue."""
    handler = routes(Cluster(registry=REGISTRY))[f"/mutate-{webhook_path(integration.kind)}"]
    answer = _answer(handler, _review(Case(""), integration, sample, None, "CREATE"))
    stored: Json = jsonpatch.apply_patch(sample, answer.get("patch", []))
    return stored


def _running(integration: Integration[Any], waiting: Json) -> Json:
    """The object while pods run: resumed, without gates, or with a replica that is ready."""
    candidates = [apply_merge_patch(waiting, {"spec": {"schedulingGates": None}})]
    if (suspension := integration.suspension) is not None:
        change: Json = {suspension.suspend_path[-1]: False}
        for part in reversed(suspension.suspend_path[:-1]):
            change = {part: change}
        candidates.append(apply_merge_patch(waiting, change))
    candidates.append(apply_merge_patch(waiting, {"status": {"readyReplicas": 1}}))
    running = (each for each in candidates if not integration.suspended(decode(integration, each)))
    return next(running, waiting)


def _review(case: Case, integration: Integration[Any], new: Json, old: Json | None, operation: str) -> bytes:
    kind, deleted = integration.kind, operation == "DELETE"
    request = {
        "uid": "review",
        "kind": {"group": kind.GROUP, "version": kind.VERSION, "kind": kind.KIND},
        "operation": operation,
        "namespace": case.namespace,
        "name": new["metadata"]["name"],
        "subResource": case.sub_resource,
        "dryRun": case.dry_run,
        "object": None if deleted else _in(case, new),
        "oldObject": _in(case, new) if deleted else _in(case, old) if old else None,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def _in(case: Case, body: Json) -> Json:
    return apply_merge_patch(body, {"metadata": {"namespace": case.namespace}})


def _answer(handler: Handler, review: bytes) -> Json:
    """The response without what is the same in all of them."""
    reply = json.loads(write("review", handler(read(review))))["response"]
    found: Json = {}
    if "patch" in reply:
        found["patch"] = json.loads(base64.b64decode(reply["patch"]))
    if reply.get("warnings"):
        found["warnings"] = reply["warnings"]
    if not reply["allowed"]:
        found["denied"] = f"{reply['status']['code']} {reply['status']['message']}"
    return found


def file_of(name: str) -> Path:
    """Where the reviews of a kind are written down."""
    return HERE / f"{name}.jsonl"


def text(of: Iterable[Json]) -> str:
    """One line each."""
    return "".join(json.dumps(line) + "\n" for line in of)
