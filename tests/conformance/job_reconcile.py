"""Replays recorded looks of Kueue's job reconcilers: the world as the recording built it, our looks at the same job.

What is one look there may be several here, and the other way round. So both worlds are looked at until nothing is
written any more, ours from the beginning and theirs from where Kueue left it. Compared are the jobs, the Workloads, and
all events that were told on the way. The world has the rules of the API server that matter for jobs
(`tests.unit.controllers.job_cluster`), so a write that it would refuse is a difference too.
"""

import copy
from typing import Any

from tests.conformance import kind_trainjob, world
from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from tests.conformance.job_webhooks import gated
from tests.conformance.workload_calls import bare
from tests.unit.controllers.job_cluster import Cluster
from turnstile.api.core import Job, Namespace, PriorityClass
from turnstile.api.meta import Kind, without_nulls
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.selectors import LabelSelector
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.jobs.kinds.ray.cluster import RayCluster
from turnstile.jobs.options import JobOptions, PodsReadyOptions
from turnstile.jobs.registry import ALL

Json = Any
_KINDS: dict[str, type[Kind]] = {
    kind.KIND: kind
    for kind in (
        *(each.kind for each in ALL),
        *(Workload, Namespace, ResourceFlavor, PriorityClass, WorkloadPriorityClass),
    )
}
_FRAMEWORKS = {each.framework.rpartition("/")[2]: (each.framework, each.kind.KIND) for each in ALL}
"""Framework and kind by the package of a suite: `controller.jobs.jobset.TestReconciler`."""


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """One look. Where it was recorded with merge patches too, that run is ours."""
    merging = {**(run.get("gates") or {}), "WorkloadRequestUseMergePatch": True}
    if run.get("gates") != merging and any(other.get("gates") == merging for other in case.body["runs"]):
        return None
    before: dict[tuple[str, str], Json] = {}
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        match step["op"]:
            case "client.build":
                made = args.get("objects") or []
            case "client.create" | "client.update" | "client.status.update":
                made = [args["object"]]
            case _:
                continue
        before |= {(item.get("kind", ""), world.key_of(item)): item for item in made}
    before |= {("JobSet", world.key_of(item)): item for item in kind_trainjob.made_by_trainer(list(before.values()))}
    after = left_by_kueue(before, run)
    framework, kind = _FRAMEWORKS.get(case.suite.split(".")[-2], ("batch/job", "Job"))
    name = _reconciled(case, run)
    options = gated(options_of(case, run), case, run)
    named = bool(before.get((kind, name), {}).get("metadata", {}).get("uid"))
    ours, theirs = (_cluster(each, options, named=named) for each in (before, after))
    for each in (ours, theirs):
        _settle(each, f"{framework}:{name}")
    # What is told at every look is told by both, and need not be told as often.
    told = {(event["reason"], event["message"]) for event in run.get("recordedEvents") or ()}
    found = differs("events", sorted({*told, *theirs.events}), sorted({*ours.events}))
    timed = any(step["op"].endswith(".WithClock") for step in run.get("trace") or ())
    for at in sorted({*before, *after, *_workloads(ours)}):
        if at[0] in (kind, "Workload"):
            want, have = (_seen(each.get(_KINDS[at[0]], at[1]), timed=timed) for each in (theirs, ours))
            found += _compare(f"{at[0]} {at[1]}", want, have)
    return found


def check_mocked(case: Case, run: dict[str, Json]) -> list[str] | None:
    """One look at a Job that Go's test makes up: its pod sets are those of the table, or those of its Workload, and its
    pods have no numbers."""
    if not run.get("trace"):
        return None
    case = case._replace(body=case.body | {"featureGates": {"TopologyAwareScheduling": False}})
    run = copy.deepcopy(run)
    built = next(step["args"]["objects"] for step in run["trace"] if step["op"] == "client.build")
    workload: Json = next((each for each in built if each["kind"] == "Workload"), {"spec": {"podSets": []}})
    pod_sets = (case.body.get("case") or {}).get("podSets") or workload["spec"]["podSets"]
    if [each["name"] for each in pod_sets] != ["main"]:
        raise NotRead("the Job of the test has pod sets that no Job has")
    for each in built:
        if each["kind"] == "Job":
            each["spec"] |= {"parallelism": pod_sets[0]["count"], "template": pod_sets[0]["template"]}
    return check(case, run) if "case" in case.body else _check_conditions(case, run, built)


def _check_conditions(case: Case, run: dict[str, Json], built: list[Json]) -> list[str]:
    """Go's stand-in for the API server does not remove the admission from a status; the conditions are right there."""
    options = gated(options_of(case, run), case, run)
    cluster = _cluster({(each["kind"], world.key_of(each)): each for each in built}, options, named=True)
    _settle(cluster, f"batch/job:{_reconciled(case, run)}")
    want, have = (_told(each["status"]) for each in (run["finalObjects"][0], cluster.workload))
    return differs("conditions", want, have) + differs("admission", None, cluster.workload["status"].get("admission"))


def _told(status: Json) -> Json:
    return sorted((each["type"], each["status"], each["reason"], each["message"]) for each in status["conditions"])


def left_by_kueue(before: dict[tuple[str, str], Json], run: dict[str, Json]) -> dict[tuple[str, str], Json]:
    """All objects after the recorded look: the jobs, pods and Workloads that the test read, the others as they were."""
    after = {at: item for at, item in before.items() if f"{at[0]}/{at[1]}" not in (run.get("deletedObjects") or ())}
    after |= {(item["kind"], world.key_of(item)): item for item in run.get("finalObjects") or ()}
    for item in run.get("checks") or ():
        kind = {"tc.wantWorkloads": "Workload", "tc.wantPods": "Pod"}.get(item["want"])
        if kind is not None:
            after = {at: each for at, each in after.items() if at[0] != kind}
            after |= {(kind, world.key_of(each)): each for each in item["got"] or ()}
    return after


def _settle(cluster: Cluster, key: str) -> None:
    """Look until nothing is written, and again when the Job controller, or KubeRay, has removed the pods of what is
    suspended."""
    cluster.settle(key)
    framework, _, name = key.partition(":")
    ray = cluster.get(RayCluster, name) if framework == "ray.io/raycluster" else None
    if ray is not None and ray["spec"].get("suspend"):
        cluster.patch(RayCluster, name, {"status": {"state": "suspended"}})
        cluster.settle(key)
    job = cluster.get(Job, name) if framework == "batch/job" else None
    if job is not None and job["spec"].get("suspend") and (job.get("status") or {}).get("active"):
        cluster.patch(Job, name, {"status": {"active": 0, "ready": 0}})
        cluster.settle(key)


def _reconciled(case: Case, run: dict[str, Json]) -> str:
    table = case.body.get("case") or {}
    calls = (step for step in run.get("trace") or () if step["op"].endswith(".ReconcileGenericJob"))
    asked = [step["args"]["req"]["NamespacedName"] for step in calls]
    given = table.get("reconcileKey") or next(iter(asked), None)
    if given:
        return f"{given['Namespace']}/{given['Name']}"
    objects = [table[name] for name in ("job", "trainJob", "sparkApp") if table.get(name)] or table.get("pods") or []
    return world.key_of(objects[0]) if objects else ""


def options_of(case: Case, run: dict[str, Json]) -> JobOptions:
    """The options of the reconciler in a run: those of the table, and those that the test itself made."""
    chosen: dict[str, Json] = {}
    given = list((case.body.get("case") or {}).get("reconcilerOptions") or ())
    for step in run.get("trace") or ():
        if step["op"].startswith("controller/jobframework.With"):
            given += step.get("results") or ()
    for option in given:
        chosen |= option.get("sets") or {}
    lowered = {name[0].lower() + name[1:]: value for name, value in chosen.items()}
    gates = case.body.get("featureGates") or {}
    selector = lowered.get("managedJobsNamespaceSelector")
    kept = (lowered.get("workloadRetentionPolicy") or {}).get("AfterDeactivatedByKueue")
    return JobOptions(
        manage_jobs_without_queue_name=bool(lowered.get("manageJobsWithoutQueueName")),
        managed_jobs_namespace_selector=world.load(LabelSelector, world.selector(selector)),
        pods_ready=PodsReadyOptions(timeout=300) if lowered.get("waitForPodsReady") else None,
        keep_deactivated=world.seconds(kept) if kept is not None else None,
        label_keys_to_copy=tuple(lowered.get("labelKeysToCopy") or ()),
        copied_annotations=tuple(lowered.get("annotationsToCopy") or ()) if gates.get("CustomMetricLabels") else (),
        fast_quota_release=bool(gates.get("FastQuotaReleaseInPodIntegration")),
    )


def _cluster(objects: dict[tuple[str, str], Json], options: JobOptions, *, named: bool) -> Cluster:
    cluster = Cluster(options=options)
    cluster.first_generation = 0
    for (kind, _), item in objects.items():
        if kind in _KINDS:
            cluster.put(_KINDS[kind], _complete(item, named=named))
    return cluster


def _complete(item: Json, *, named: bool) -> Json:
    """With a uid, which the recording leaves out where the API server would give one: the name stands for it, unless
    not even the job has one, since the name of the Workload is made of that."""
    item = without_nulls(item)
    meta = item["metadata"]
    for each in (meta, *(meta.get("ownerReferences") or ())):
        each["uid"] = each.get("uid") or (each["name"] if named else "")
    return item


def _workloads(cluster: Cluster) -> set[tuple[str, str]]:
    return {("Workload", world.key_of(item)) for item in cluster.workloads}


def _seen(item: Json, *, timed: bool) -> Json:
    """Parts that decisions change, without what the API server counts, and the annotation
    that names the Workload (recorded with the gate TopologyAwareScheduling off, by which Kueue adds it); times only
    where the recording had a clock of its own."""
    if item is None:
        return None
    meta = {name: item["metadata"].get(name) for name in ("labels", "annotations", "finalizers", "deletionTimestamp")}
    owners = [(each["kind"], each["name"], each["uid"]) for each in item["metadata"].get("ownerReferences") or ()]
    status = bare(item.get("status"))
    for each in status.get("conditions") or () if status else ():
        for name in ("observedGeneration",) if timed else ("observedGeneration", "lastTransitionTime"):
            each.pop(name, None)
    if item.get("kind") == "Job" and status:  # what the Job controller says of its own
        status["conditions"] = [each for each in status.get("conditions") or () if each["type"] != "Suspended"]
        status = bare(status) or None
    spec = copy.deepcopy(item.get("spec")) or {}
    if any(kind == "SparkApplication" for kind, _, _ in owners):  # Kueue does not charge for Spark's memory overhead
        for each in spec["podSets"]:
            each["template"]["spec"].pop("overhead", None)
    template = spec.get("template", {}).get("metadata", {})
    (template.get("annotations") or {}).pop("kueue.x-k8s.io/workload", None)
    return {**bare(meta), "owners": owners, "spec": bare(spec), "status": status}


def _compare(what: str, want: Json, have: Json) -> list[str]:
    if want is None or have is None:
        return differs(f"{what} gone", want is None, have is None)
    parts = sorted({*want, *have})
    return [text for part in parts for text in differs(f"{what} {part}", want.get(part), have.get(part))]
