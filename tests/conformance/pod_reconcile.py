"""Replays recorded looks of Kueue's pod reconciler, at single pods and groups, by what is written.

What is one look there may be several here, and the other way round. So both worlds are looked at until nothing is
written any more, ours from the beginning and theirs from where Kueue left it. Compared are pods, Workloads, and all
events that were told on the way.
"""

import copy
import json
from datetime import datetime
from typing import Any

import msgspec

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.job_reconcile import left_by_kueue, options_of
from tests.conformance.job_webhooks import gated
from tests.conformance.workload_calls import bare
from tests.unit.controllers.job_cluster import Cluster
from turnstile.api.core import Namespace, Pod, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.runtime.actions import Patch
from turnstile.jobs.kinds.pod.group import PodGroups
from turnstile.jobs.kinds.pod.members import PodGroup
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.naming import group_key, job_key
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry

Json = Any
Objects = dict[tuple[str, str], Json]
_KINDS: dict[str, type[Kind]] = {
    kind.KIND: kind for kind in (Pod, Workload, Namespace, ResourceFlavor, PriorityClass, WorkloadPriorityClass)
}
_GROUP = "kueue.x-k8s.io/pod-group-name"


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """One look. Where it was recorded with merge patches too, that run is ours."""
    merging = {**(run.get("gates") or {}), "WorkloadRequestUseMergePatch": True}
    if run.get("gates") != merging and any(other.get("gates") == merging for other in case.body["runs"]):
        return None
    before: Objects = {}
    for step in run.get("trace") or ():
        args = step.get("args") or {}
        match step["op"]:
            case "client.build":
                made = args.get("objects") or []
            case "client.create" | "client.update" | "client.status.update":
                made = [args["object"]]
            case "client.delete":
                at = (args["object"].get("kind", ""), world.key_of(args["object"]))
                gone = before.pop(at, None) or args["object"]
                if not gone["metadata"].get("finalizers"):
                    continue
                deleted = {"deletionTimestamp": world.NOW}
                made = [{**gone, "metadata": {**gone["metadata"], **deleted}}]
            case _:
                continue
        before |= {(item.get("kind", ""), world.key_of(item)): item for item in made}
    after = left_by_kueue(before, run)
    key, options = _key(case.body["case"]), gated(options_of(case, run), case, run)
    ours, theirs = (_cluster(each, options, grouped="/group/" in key) for each in (before, after))
    for each in (ours, theirs):
        each.settle(key)
    # What is told at every look is told by both, and need not be told as often.
    told = {(event["reason"], event["message"]) for event in run.get("recordedEvents") or ()}
    found = differs("events", sorted({*told, *theirs.events}), sorted({*ours.events}))
    workloads = {("Workload", world.key_of(item)) for each in (ours, theirs) for item in each.workloads}
    for kind, name in sorted({*before, *after, *workloads}):
        if kind in ("Pod", "Workload"):
            want, have = (_seen(each.get(_KINDS[kind], name)) for each in (theirs, ours))
            found += _compare(f"{kind} {name}", want, have)
    return found


def check_interrupted(case: Case, run: dict[str, Json]) -> list[str] | None:
    """A look whose write of the Pod is refused, then another look. The events are told again with it."""
    steps = run.get("trace") or ()
    objects = [each for step in steps if step["op"] == "client.build" for each in step["args"]["objects"]]
    objects += [step["args"]["object"] for step in steps if step["op"] == "client.create"]
    asked = next(step["args"]["req"]["NamespacedName"] for step in steps if step["op"].endswith(".Reconcile"))
    key = job_key("pod", asked["Namespace"], asked["Name"])
    built = {(each["kind"], world.key_of(each)): each for each in objects}
    cluster = _cluster(built, JobOptions(), grouped=False)
    first = cluster.decide(key).actions
    refused = next(at for at, each in enumerate(first) if isinstance(each, Patch) and each.kind is Pod)
    cluster.step(key, only=refused)
    cluster.settle(key)
    told = {(event["reason"], event["message"]) for event in run.get("recordedEvents") or ()}
    found = differs("events", sorted(told), sorted({*cluster.events}))
    for item in run.get("finalObjects") or ():
        kind, name = _KINDS[item["kind"]], world.key_of(item)
        want = _seen(_complete(item, grouped=False))
        found += _compare(f"{item['kind']} {name}", want, _seen(cluster.get(kind, name)))
    return found


def check_calls(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Recorded questions to pods: whether they may run or are ready, which group they are in, which group a Workload
    that is gone concerns."""
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        results = step.get("results") or [None]
        match step["op"]:
            case "controller/jobs/pod.Pod.IsActive":
                fields = case.body["case"]["fields"]
                if "list" in fields:
                    early = options_of(case, run).fast_quota_release
                    have: Json = PodGroups().active(_composed(fields["list"]["items"], early=early))
                else:
                    have = PlainPod().active(_pod(fields.get("pod") or {"metadata": {}, "spec": {}}))
            case "controller/jobs/pod.Pod.PodsReady":
                asked = case.body["case"]["pod"]
                if asked.get("isGroup"):
                    announced = asked["pod"]["metadata"].get("annotations") or {}  # the list leaves it out
                    items = copy.deepcopy((asked.get("list") or {}).get("items") or [])
                    for each in items:
                        each["metadata"]["annotations"] = announced
                    have = PodGroups().pods_ready(_composed(items))
                else:
                    have = PlainPod().pods_ready(_pod(asked["pod"]))
            case "controller/jobs/pod.IndexPodGroupName":
                if step["args"]["o"].get("kind") != "Pod":
                    continue
                group = PlainPod().groups.group_of(_pod(step["args"]["o"]))
                have, results = group, [next(iter(results[0] or ()), "")]
            case "controller/jobs/pod.workloadHandler.Delete":
                have = Registry().groups_named(world.load(Workload, step["args"]["e"]["Object"]))
                asked = [each["NamespacedName"] for each in case.body["case"]["wantRequests"] or ()]
                results = [[group_key("pod", each["Namespace"].rpartition("/")[2], each["Name"]) for each in asked]]
            case _:
                continue
        compared = True
        found += differs(step["op"], results[0], have)
    return found if compared else None


def _pod(item: Json) -> Pod:
    """A pod as the API server has it: one that runs is on a node."""
    item = copy.deepcopy(item)
    if (item.get("status") or {}).get("phase") == "Running":
        item["spec"]["nodeName"] = "node"
    item["spec"]["containers"] = item["spec"].get("containers") or []
    return msgspec.json.decode(json.dumps(item), type=Pod, strict=False)


def _composed(items: list[Json], *, early: bool = False) -> PodGroup:
    now = datetime.fromisoformat(world.NOW)
    return PodGroups().compose("group", [_pod(each) for each in items], None, now=now, early=early)


def _key(table: Json) -> str:
    """The work queue's key of what was reconciled."""
    if given := table.get("reconcileKey"):
        grouped, _, namespace = given["Namespace"].rpartition("/")
        return (group_key if grouped else job_key)("pod", namespace, given["Name"])
    meta = table["pods"][0]["metadata"]
    named = (meta.get("annotations") or {}).get(_GROUP) or (meta.get("labels") or {}).get(_GROUP)
    return group_key("pod", meta["namespace"], named) if named else job_key("pod", meta["namespace"], meta["name"])


def _cluster(objects: Objects, options: JobOptions, *, grouped: bool) -> Cluster:
    cluster = Cluster(options=options)
    for (kind, _), item in objects.items():
        if kind in _KINDS:
            cluster.put(_KINDS[kind], _complete(item, grouped=grouped))
    return cluster


def _complete(item: Json, *, grouped: bool) -> Json:
    """With a uid of its own, which the recording leaves out, and repeats in groups: the name stands for it."""
    item = copy.deepcopy(item)
    meta = item["metadata"]
    for each in (meta, *(meta.get("ownerReferences") or ())):
        each["uid"] = each["name"] if grouped or not each.get("uid") else each["uid"]
    return item


def _seen(item: Json) -> Json:
    """Parts that decisions change, without what the API server counts."""
    if item is None:
        return None
    meta = {name: item["metadata"].get(name) for name in ("labels", "annotations", "finalizers")}
    meta["deleting"] = bool(item["metadata"].get("deletionTimestamp"))
    owners = sorted((each["kind"], each["name"]) for each in item["metadata"].get("ownerReferences") or ())
    status = bare(item.get("status"))
    for each in status.get("conditions") or () if status else ():
        for name in ("observedGeneration", "lastTransitionTime"):
            each.pop(name, None)
    (meta["annotations"] or {}).pop("kueue.x-k8s.io/workload", None)
    return {**bare(meta), "owners": owners, "spec": bare(item.get("spec")), "status": status}


def _compare(what: str, want: Json, have: Json) -> list[str]:
    if want is None or have is None:
        return differs(f"{what} gone", want is None, have is None)
    parts = sorted({*want, *have})
    return [text for part in parts for text in differs(f"{what} {part}", want.get(part), have.get(part))]
