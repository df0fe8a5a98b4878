"""Recorded calls of the webhooks of job kinds: the object after defaulting, and why a new or changed one is refused.

The handlers are those of `webhooks.routes`, by the path that the API server would call. A kind without a path is not
read.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jsonpatch
import msgspec

from tests.conformance import world
from tests.conformance.api_validation import _plain
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.workload_calls import merged
from turnstile.api import gates as known
from turnstile.api import names
from turnstile.api.meta import Kind, without_nulls
from turnstile.api.selectors import LabelSelector
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import ALL, Registry
from turnstile.webhooks.review import GroupVersionKind, Request
from turnstile.webhooks.routes import routes

Json = Any

_FIELDS: Final = {
    "TopologyAwareScheduling": "topologies",
    "AdmissionGatedBy": "admission_gates",
    "AssignQueueLabelsForPods": "queue_labels_on_pods",
    "ElasticJobsViaWorkloadSlices": "elastic_jobs",
    "ReclaimablePods": "reclaimable_pods",
    "UnadmittedWorkloadsObservability": "granular_reasons",
    "WorkloadPriorityClassDefaulting": "default_priority_class",
}
"""Options of jobs that are gates."""


@dataclass
class Cluster:
    """What the webhooks know: the objects that the test put into the API, and its queues."""

    options: JobOptions
    registry: Registry
    objects: list[Json] = field(default_factory=list)
    offer = None
    """No quotas: Kueue warns of none."""

    def default_local_queue(self, namespace: str) -> bool:
        """Whether it was added to the queue manager."""
        return any(world.key_of(each) == f"{namespace}/default" for each in self._of("LocalQueue"))

    def sends_away(self, namespace: str, queue: str) -> bool:
        """Whether a check of the queue's ClusterQueue is one of MultiKueue."""
        found = next((each for each in self._of("LocalQueue") if world.key_of(each) == f"{namespace}/{queue}"), None)
        name = (found.get("spec") or {}).get("clusterQueue") if found is not None else None
        held = [each for each in self._of("ClusterQueue") if world.key_of(each) == name]
        checks = {
            each["metadata"]["name"]
            for each in self._of("AdmissionCheck")
            if each["spec"]["controllerName"] == names.MULTIKUEUE_CONTROLLER
        }
        wanted = [(each["spec"].get("admissionChecksStrategy") or {}).get("admissionChecks") or () for each in held]
        return any(check["name"] in checks for each in wanted for check in each)

    def default_priority_class(self) -> bool:
        """Whether there is one."""
        return any(world.key_of(each) == "default" for each in self._of("WorkloadPriorityClass"))

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels, and the name that the API server adds to them."""
        found = next((each for each in self._of("Namespace") if world.key_of(each) == namespace), None)
        if found is None:
            return None
        return {"kubernetes.io/metadata.name": namespace, **(found["metadata"].get("labels") or {})}

    def find(self, kind: type[Kind], key: str) -> Kind | None:
        """A job above another one."""
        found = next((each for each in self._of(kind.KIND) if world.key_of(each) == key), None)
        return kind.decoder()(json.dumps(found).encode()) if found is not None else None

    def _of(self, kind: str) -> Iterator[Json]:
        return (each for each in self.objects if each.get("kind") == kind)


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a webhook; None if none is of a kind that has one here."""
    table = case.body.get("case") or {}
    under_test = {each.framework for each in ALL if each.framework.split("/")[-1] == case.suite.split(".")[-2]}
    enabled = set(table.get("enableIntegrations") or under_test)
    # A test calls the webhook of its own kind, whatever else is enabled.
    enabled |= {*under_test, *(table.get("integrations") or ())}
    gates = _gates(case, run)
    cluster = Cluster(gated(options_of(table), case, run), Registry(enabled))
    handlers = routes(cluster, gates=gates)
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        match step["op"].rsplit(".", 1)[-1].lower():
            case "build":
                cluster.objects += args.get("objects") or []
            case "create":
                cluster.objects.append(args["object"])
            case "addlocalqueue":
                cluster.objects.append(args["q"])
            case "addclusterqueue":
                cluster.objects.append(args["cq"])
            case "addorupdateadmissioncheck":
                cluster.objects.append(args["ac"])
            case "default":
                obj, _ = _reviewed(args)
                handler = handlers.get(_path("mutate", obj))
                if handler is None:
                    continue
                compared = True
                marks = _marks(obj, cluster)
                obj = merged(obj, marks)
                answer = handler(request_of(world.with_empty_requests(obj) if obj["kind"] == "Pod" else obj))
                after = jsonpatch.apply_patch(obj, json.loads(answer.patch.encode())) if answer.patch else obj
                failed = any(isinstance(each, dict) and "$error" in each for each in step.get("results") or ())
                found += differs("error", failed, bool(answer.code))
                for item in () if failed else run.get("checks") or ():
                    if item["want"] == "tc.want":
                        found += differs("object", _plain(merged(item["got"], marks)), _plain(after))
            case "validatecreate" | "validateupdate":
                obj, old = _reviewed(args)
                handler = handlers.get(_path("validate", obj))
                if handler is None:
                    continue
                compared = True
                answer = handler(request_of(obj, old))
                # What was wrong with the old object already is no reason to refuse an update here.
                known = _parts(texts_of(handler(request_of(old)).message)) if old is not None else set()
                wanted = _parts(faults_of(step.get("results") or ())) - known
                found += differs("faults", sorted(wanted), sorted(_parts(texts_of(answer.message)) - known))
    return found if compared else None


def _marks(obj: Json, cluster: Cluster) -> Json:
    """What the start of a queued job writes into the templates of its pods, and its controller copies: here a pod is
    not taken for one of an owner's by the reference alone."""
    made = any(
        each["metadata"].get("uid") == owner["uid"] and (each["metadata"].get("labels") or {}).get(names.QUEUE_LABEL)
        for owner in obj["metadata"].get("ownerReferences") or ()
        for each in cluster.objects
    )
    return {"metadata": {"labels": {names.PODSET_LABEL: "main"}}} if made and obj["kind"] == "Pod" else {}


def options_of(table: Json) -> JobOptions:
    """Which jobs a table manages."""
    selector = world.selector(table.get("managedJobsNamespaceSelector") or table.get("namespaceSelector"))
    return JobOptions(
        managed_jobs_namespace_selector=world.load(LabelSelector, selector),
        manage_jobs_without_queue_name=bool(table.get("manageJobsWithoutQueueName") or table.get("manageAll")),
    )


def gated(options: JobOptions, case: Case, run: dict[str, Json]) -> JobOptions:
    """These options under the gates of a case."""
    chosen = {**(case.body.get("featureGates") or {}), **((case.body.get("case") or {}).get("featureGates") or {})}
    chosen |= run.get("gates") or {}
    if chosen.get("MultiKueue") is False:
        options = replace(options, multikueue=None)
    return replace(options, **{field: chosen[gate] for gate, field in _FIELDS.items() if gate in chosen})


def topologies(case: Case, run: dict[str, Json]) -> bool:
    """Whether topologies are supported in a run."""
    return gated(JobOptions(), case, run).topologies


def _gates(case: Case, run: dict[str, Json]) -> set[str]:
    chosen = {*known.ON_BY_DEFAULT}
    for each in (case.body.get("featureGates"), (case.body.get("case") or {}).get("featureGates"), run.get("gates")):
        for name, on in (each or {}).items():
            (chosen.add if on else chosen.discard)(name)
    return chosen


def _reviewed(args: dict[str, Json]) -> tuple[Json, Json]:
    """The object under review, and what it was before, if it is there already. Tests leave out versions of objects."""
    objects = {name: value for name, value in args.items() if isinstance(value, dict) and "kind" in value}
    versions = {kind.KIND: f"{kind.GROUP}/{kind.VERSION}".lstrip("/") for kind in (each.kind for each in ALL)}
    for name, value in objects.items():
        objects[name] = {"apiVersion": versions.get(value["kind"], ""), **value}
    new = next((value for name, value in objects.items() if not name.startswith("old")), {})
    return new, next((value for name, value in objects.items() if name.startswith("old")), None)


def _path(what: str, obj: Json) -> str:
    if not obj:
        return ""
    group, _, version = obj["apiVersion"].rpartition("/")
    return f"/{what}-{group.replace('.', '-')}-{version}-{obj['kind'].lower()}"


def request_of(obj: Json, old: Json = None) -> Request:
    """The review of a new object, or of a changed one, without null lists: Go's tests have them, no API server does."""
    group, _, version = obj["apiVersion"].rpartition("/")
    return Request(
        uid="review",
        kind=GroupVersionKind(group=group, version=version, kind=obj["kind"]),
        operation="UPDATE" if old is not None else "CREATE",
        namespace=obj["metadata"].get("namespace", ""),
        object=msgspec.Raw(json.dumps(without_nulls(obj)).encode()),
        old_object=msgspec.Raw(json.dumps(without_nulls(old)).encode()),
    )


def faults_of(results: Json) -> Iterator[str]:
    """Texts of the recorded faults, wherever they stand in what the call returned."""
    for each in results:
        if isinstance(each, list):
            yield from faults_of(each)
        elif isinstance(each, dict) and "errors" in each:
            yield from faults_of(each["errors"])
        elif isinstance(each, dict) and "message" in each:
            yield each["message"]


def _parts(texts: Iterable[str]) -> set[str]:
    """Texts cut at commas: one that has commas of its own cannot be told from several in an answer."""
    return {part for text in texts for part in text.split(", ")}


def texts_of(message: str) -> list[str]:
    """The faults of an answer: one bare, several in brackets."""
    if not message.startswith("["):
        return [message] if message else []
    return re.split(r", (?=(?:metadata|spec|status)[.\[])", message[1:-1])
