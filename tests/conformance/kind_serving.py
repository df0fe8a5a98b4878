"""Replays recorded looks of Kueue's reconcilers of StatefulSets and LeaderWorkerSets, by what is written.

As for jobs (`job_reconcile`), both worlds are looked at until nothing is written any more: ours from the beginning,
theirs from where Kueue left it. A pod that waits for its group has the gate that the Pod webhook adds, which Go's tests
leave out. Identifiers of pods are annotations here, as in Kueue with the gate WorkloadIdentifierAnnotations, with which
these tables were not recorded.
"""

import copy
import json
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_reconcile import left_by_kueue
from tests.conformance.job_webhooks import gated
from tests.conformance.workload_calls import bare
from tests.unit.controllers.job_cluster import Cluster
from turnstile.api.core import Namespace, Pod, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.jobs.bases.immutable import immutable_errors
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSet
from turnstile.jobs.kinds.statefulset import StatefulSet
from turnstile.jobs.naming import job_key, workload_name
from turnstile.jobs.options import JobOptions

Json = Any
Objects = dict[tuple[str, str], Json]
_SETS: dict[str, tuple[str, type[Kind]]] = {
    "statefulset": ("statefulset", StatefulSet),
    "leaderworkerset": ("leaderworkerset.x-k8s.io/leaderworkerset", LeaderWorkerSet),
}
_KINDS: dict[str, type[Kind]] = {
    each.KIND: each for each in (Pod, Workload, Namespace, PriorityClass, WorkloadPriorityClass)
}
_IDENTIFIERS = ("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/prebuilt-workload-name")
_PARENT = "kueue.x-k8s.io/pod-suspending-parent"


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """One look at a set, or at a pod of one."""
    framework, kind = _SETS[case.suite.split(".")[2]]
    before: Objects = {}
    for step in run.get("trace") or ():
        made = (step.get("args") or {}).get("objects") or [] if step["op"] == "client.build" else []
        before |= {(item.get("kind", ""), world.key_of(item)): item for item in made}
    # The recorded reconcilers of pods do not look for the class that a set names; here its Workload needs it.
    labels = [each["metadata"].get("labels") or {} for each in before.values()]
    for named in {each.get("kueue.x-k8s.io/priority-class") for each in labels} - {None}:
        if case.suite.endswith("TestPodReconciler"):
            made_up = {"kind": "WorkloadPriorityClass", "metadata": {"name": named}, "value": 0}
            before.setdefault(("WorkloadPriorityClass", named), made_up)
    after = left_by_kueue(before, run)
    names = [key for what, key in before if what == kind.KIND]
    key = f"{framework}:{names[0]}" if names else job_key(framework, "ns", "sts")
    # The recorded reconciler of LeaderWorkerSets is asked about sets without a queue as if all jobs were managed.
    every = bool(case.body["case"].get("manageJobsWithoutQueueName")) or framework != "statefulset"
    options = gated(JobOptions(manage_jobs_without_queue_name=every), case, run)
    ours, theirs = (_cluster(each, kind, options) for each in (before, after))
    for each in (ours, theirs):
        each.settle(key)
    told = {(event["reason"], event["message"]) for event in run.get("recordedEvents") or ()}
    found = differs("events", sorted({*told, *theirs.events}), sorted({*ours.events}))
    workloads = {("Workload", world.key_of(item)) for each in (ours, theirs) for item in each.workloads}
    for what, name in sorted({*before, *after, *workloads}):
        if what in ("Pod", "Workload"):
            want, have = (_seen(each.get(_KINDS[what], name)) for each in (theirs, ours))
            found += differs(f"{what} {name}", want, have)
    return found


def check_released(case: Case, run: dict[str, Json]) -> list[str]:
    """The Workload of a StatefulSet that was scaled to zero."""
    table = case.body["case"]
    workload = copy.deepcopy(table["workload"])
    metadata = {"name": "sts", "namespace": "ns", "uid": "sts-uid", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": "sts-uid"}
    workload["metadata"]["ownerReferences"] = [owner]
    template = workload["spec"]["podSets"][0]["template"]
    made = {"metadata": metadata, "spec": {"replicas": 0, "template": template}, "kind": "StatefulSet"}
    objects: Objects = {("StatefulSet", "ns/sts"): made, ("Workload", world.key_of(workload)): workload}
    cluster = _cluster(objects, StatefulSet, JobOptions())
    cluster.settle("statefulset:ns/sts")
    status = (cluster.get(Workload, world.key_of(workload)) or {}).get("status", {})
    found = differs("admission is gone", table["wantAdmissionNil"], status.get("admission") is None)
    if (want := table["wantQuotaReserved"]) is not None:
        said = {each["type"]: [each["status"], each["reason"]] for each in status.get("conditions") or ()}
        found += differs("QuotaReserved", [want["status"], want["reason"]], said.get("QuotaReserved"))
    return found


def check_immutable(case: Case, run: dict[str, Json]) -> list[str]:
    """Errors of a pod's spec that was changed."""
    table = case.body["case"]
    new, old = (json.dumps(table[name] or {}).encode() for name in ("newPodSpec", "oldPodSpec"))
    have = [(each.path, each.type) for each in immutable_errors(new, old, "spec")]
    return differs("errors", sorted((each["field"], each["type"]) for each in table["wantErr"] or ()), sorted(have))


def _cluster(objects: Objects, kind: type[Kind], options: JobOptions) -> Cluster:
    cluster = Cluster(options=options)
    uids = {at: (item["metadata"].get("uid") or item["metadata"]["name"]) for at, item in objects.items()}
    for namespace in sorted({name.partition("/")[0] for _, name in objects if "/" in name}):
        cluster.put(Namespace, {"metadata": {"name": namespace}})
    for (what, _), item in objects.items():
        if (found := {**_KINDS, kind.KIND: kind}.get(what)) is not None:
            cluster.put(found, _complete(item, uids))
    return cluster


def _complete(item: Json, uids: dict[tuple[str, str], str]) -> Json:
    item = copy.deepcopy(item)
    meta = item["metadata"]
    meta["uid"] = meta.get("uid") or meta["name"]
    for each in meta.get("ownerReferences") or ():
        each["uid"] = uids.get((each["kind"], f"{meta.get('namespace')}/{each['name']}"), each["uid"])
    if item["kind"] == "Pod":
        _as_annotations(meta)
        _as_owned(meta, uids)
        if "leaderworkerset.sigs.k8s.io/name" in (meta.get("labels") or {}):  # as the webhook of its set leaves it
            meta["annotations"] = {"kueue.x-k8s.io/pod-group-serving": "true", **(meta.get("annotations") or {})}
        member = _IDENTIFIERS[0] in (meta.get("annotations") or {})
        if _PARENT in (meta.get("annotations") or {}) and not member:
            item["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    return item


def _as_owned(meta: Json, uids: dict[tuple[str, str], str]) -> None:
    """A member of a StatefulSet's group has the set as its controller, which Go's tests leave out."""
    group = (meta.get("annotations") or {}).get(_IDENTIFIERS[0])
    for (what, at), uid in uids.items():
        name = at.rpartition("/")[2]
        if what == "StatefulSet" and group in [workload_name(StatefulSet, name, each) for each in (uid, "")]:
            owner = {"apiVersion": "apps/v1", "kind": what, "name": name, "uid": uid, "controller": True}
            meta.setdefault("ownerReferences", [owner])


def _as_annotations(meta: Json) -> None:
    labels = meta.get("labels") or {}
    found = {name: labels.pop(name) for name in _IDENTIFIERS if name in labels}
    if found:
        meta["annotations"] = {**(meta.get("annotations") or {}), **found}


def _seen(item: Json) -> Json:
    """Parts that decisions change, without what only topologies need, and without times."""
    if item is None:
        return None
    item = copy.deepcopy(item)
    item["spec"].pop("schedulingGates", None)
    _as_annotations(item["metadata"])
    meta = {name: item["metadata"].get(name) for name in ("labels", "annotations", "finalizers")}
    owners = sorted(
        (each["kind"], each["name"], each.get("controller")) for each in item["metadata"].get("ownerReferences") or ()
    )
    status = bare(item.get("status"))
    for each in status.get("conditions") or () if status else ():
        each.pop("lastTransitionTime", None)
    return {**bare(meta), "owners": owners, "spec": bare(item["spec"]), "status": status}
