"""A small world for pages: three teams and a platform queue, with everything a page can show happening in it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from turnstile.engine import Options
from turnstile.engine.quota.amounts import quantity
from turnstile.insight import documents

Json = dict[str, Any]

GROUP = "kueue.x-k8s.io/v1beta2"
NOW = datetime.now(UTC)


def at(minutes: float) -> str:
    """So many minutes before now."""
    return (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def named(kind: str, name: str, namespace: str = "", **rest: Any) -> Json:
    """An object of Kueue's group."""
    uid, created = f"uid-{namespace}-{name}", at(21 * 24 * 60)
    meta: Json = {"name": name, "uid": uid, "creationTimestamp": created, "resourceVersion": "1"}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": GROUP, "kind": kind, "metadata": meta, **rest}


def quotas(**flavors: dict[str, Any]) -> list[Json]:
    """One resource group: by flavor (with `_` for `-`), by resource an amount or a whole quota."""
    covered = list(next(iter(flavors.values())))
    return [
        {
            "coveredResources": covered,
            "flavors": [
                {
                    "name": name.replace("_", "-"),
                    "resources": [
                        {"name": resource, **(value if isinstance(value, dict) else {"nominalQuota": value})}
                        for resource, value in given.items()
                    ],
                }
                for name, given in flavors.items()
            ],
        }
    ]


def queue(name: str, groups: list[Json], *, cohort: str = "", **spec: Any) -> Json:
    """A ClusterQueue."""
    parent = {"cohortName": cohort} if cohort else {}
    return named("ClusterQueue", name, spec={"namespaceSelector": {}, "resourceGroups": groups, **parent, **spec})


def workload(
    namespace: str,
    name: str,
    local_queue: str,
    *,
    pods: int = 1,
    requests: dict[str, str],
    priority: int = 0,
    minutes: float = 60,
    admitted: tuple[str, dict[str, str]] | None = None,
    conditions: tuple[tuple[str, str, str, str, float], ...] = (),
    checks: list[Json] | None = None,
    job: str = "Job",
) -> Json:
    """A Workload. `admitted` is its ClusterQueue and flavors; a condition is type, status, reason, message, minutes."""
    made = named("Workload", name, namespace)
    made["metadata"]["creationTimestamp"] = at(minutes)
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": job,
            "name": name.removeprefix("job-").rpartition("-")[0],
            "uid": f"of-{name}",
            "controller": True,
        }
    ]
    container = {"name": "main", "resources": {"requests": requests}}
    made["spec"] = {
        "podSets": [{"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}],
        "queueName": local_queue,
        "priority": priority,
    }
    status: Json = {
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": at(when)}
            for kind, value, reason, message, when in conditions
        ]
    }
    if admitted is not None:
        total = {resource: _times(amount, pods) for resource, amount in requests.items()}
        flavors = {resource: admitted[1][resource] for resource in requests}
        assigned = {"name": "main", "count": pods, "flavors": flavors, "resourceUsage": total}
        status["admission"] = {"clusterQueue": admitted[0], "podSetAssignments": [assigned]}
    if checks:
        status["admissionChecks"] = checks
    made["status"] = status
    return made


def _times(amount: str, pods: int) -> str:
    digits = amount.rstrip("GiMm")
    return f"{int(digits) * pods}{amount[len(digits) :]}"


def runs(namespace: str, name: str, local_queue: str, cluster_queue: str, flavor: str, **more: Any) -> Json:
    """An admitted Workload, everything from one flavor."""
    minutes = more.get("minutes", 60)
    flavors = dict.fromkeys(more["requests"], flavor)
    said = (
        ("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {cluster_queue}", minutes - 1),
        ("Admitted", "True", "Admitted", "The workload is admitted", minutes - 1),
        (
            "PodsReady",
            "True",
            "PodsReady",
            "All pods were ready or succeeded since the workload admission",
            minutes - 2,
        ),
    )
    return workload(namespace, name, local_queue, admitted=(cluster_queue, flavors), **{"conditions": said, **more})


def waits(namespace: str, name: str, local_queue: str, message: str, **more: Any) -> Json:
    """A pending Workload."""
    said = (("QuotaReserved", "False", "Pending", message, more.get("minutes", 60) - 0.1),)
    return workload(namespace, name, local_queue, conditions=said, **more)


def world() -> list[Json]:
    """All objects."""
    both = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    gpu, cpu, memory = "nvidia.com/gpu", "cpu", "memory"
    a100 = {gpu: "1", cpu: "12", memory: "96Gi"}
    objects: list[Json] = [
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kueue-managed": "true"}}}
            for name in ("vision", "language", "robotics", "platform")
        ),
        *(named("ResourceFlavor", name, spec={"nodeLabels": {"pool": name}}) for name in ("a100", "h100", "any-node")),
        named("Cohort", "research", spec={"resourceGroups": quotas(a100={gpu: "4", cpu: "48", memory: "384Gi"})}),
        named("Cohort", "models", spec={"parentName": "research"}),
        queue("vision", quotas(a100={gpu: "8", cpu: "96", memory: "768Gi"}), cohort="models", preemption=both),
        queue(
            "language",
            quotas(
                a100={gpu: {"nominalQuota": "8", "borrowingLimit": "8"}, cpu: "96", memory: "768Gi"},
                h100={gpu: "4", cpu: "64", memory: "512Gi"},
            ),
            cohort="models",
            preemption=both,
        ),
        queue("robotics", quotas(a100={gpu: "8", cpu: "96", memory: "768Gi"}), cohort="research", preemption=both),
        queue("platform", quotas(any_node={cpu: "64", memory: "256Gi"}), queueingStrategy="StrictFIFO"),
        queue("archive", quotas(any_node={cpu: "16", memory: "64Gi"}), stopPolicy="Hold"),
        *(
            named("LocalQueue", name, namespace, spec={"clusterQueue": cluster_queue})
            for namespace, name, cluster_queue in (
                ("vision", "training", "vision"),
                ("language", "training", "language"),
                ("language", "evaluation", "language"),
                ("robotics", "simulation", "robotics"),
                ("platform", "batch", "platform"),
                ("platform", "archive", "archive"),
            )
        ),
        runs("vision", "job-segment-4f2a1", "training", "vision", "a100", pods=4, requests=a100, minutes=190),
        runs("vision", "job-detect-91c3e", "training", "vision", "a100", pods=1, requests=a100, minutes=44),
        runs("language", "job-pretrain-7b-0d91f", "training", "language", "a100", pods=8, requests=a100, minutes=320),
        runs("language", "job-tokenize-5ab20", "evaluation", "language", "a100", pods=4, requests=a100, minutes=75),
        runs("language", "job-align-c77d2", "training", "language", "h100", pods=3, minutes=130,
             requests={gpu: "1", cpu: "16", memory: "128Gi"}),
        runs("robotics", "job-grasp-30f11", "simulation", "robotics", "a100", pods=5, requests=a100, minutes=250),
        runs("platform", "job-nightly-build-e1d40", "batch", "platform", "any-node", pods=10, minutes=22,
             requests={cpu: "4", memory: "8Gi"}),
    ]  # fmt: skip
    victim = runs("robotics", "job-sweep-8812b", "simulation", "robotics", "a100", pods=2, requests=a100, minutes=95)
    preempted = (
        "Preempted to accommodate a workload (UID: uid-vision-job-track-ab310, JobUID: of-job-track-ab310) due to "
        "reclamation within the cohort; preemptor path: /research/models/vision; preemptee path: /research/robotics"
    )
    victim["status"]["conditions"] += [
        {"type": kind, "status": "True", "reason": reason, "message": preempted, "lastTransitionTime": at(0.4)}
        for kind, reason in (("Evicted", "Preempted"), ("Preempted", "InCohortReclamation"))
    ]
    checked = workload(
        "language",
        "job-distill-12e8b",
        "training",
        requests={gpu: "1", cpu: "16", memory: "128Gi"},
        admitted=("language", dict.fromkeys((gpu, cpu, memory), "h100")),
        minutes=9,
        conditions=(("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue language", 8),),
        checks=[
            {
                "name": "nodes-ready",
                "state": "Pending",
                "message": "ProvisioningRequest is waiting for a node",
                "lastTransitionTime": at(8),
            }
        ],
    )
    unfit = "couldn't assign flavors to pod set main: insufficient unused quota for "
    passed = "Workload no longer fits after processing another workload"
    short = unfit + "nvidia.com/gpu in flavor a100, {} more needed"
    objects += [
        victim,
        checked,
        waits("vision", "job-track-ab310", "training", short.format(1) + ". Pending the preemption of 1 workload(s)",
              pods=5, requests=a100, priority=50, minutes=1.5),
        waits("vision", "job-depth-0c4e9", "training", short.format(4), pods=8, requests=a100, minutes=31),
        waits("language", "job-finetune-a3b77", "training", short.format(4), pods=6, requests=a100, minutes=54),
        waits("language", "job-evaluate-55d0c", "evaluation", passed, pods=2, requests=a100, minutes=12),
        waits("language", "job-summarize-77aa1", "evaluation", passed, pods=2, requests=a100, minutes=11),
        waits("platform", "job-backup-2e9d1", "batch", unfit + "cpu in flavor any-node, 16 more needed", pods=10,
              requests={cpu: "4", memory: "4Gi"}, minutes=18),
        waits("platform", "job-report-44b1f", "batch", "", pods=1, requests={cpu: "2", memory: "4Gi"}, minutes=7),
        waits("platform", "job-purge-90e5c", "archive", "ClusterQueue archive is inactive", minutes=400,
              requests={cpu: "1", memory: "1Gi"}),
    ]  # fmt: skip
    for number, (namespace, line, what) in enumerate(
        (("vision", "training", "augment"), ("language", "training", "filter"), ("language", "evaluation", "score"),
         ("robotics", "simulation", "rollout"), ("platform", "batch", "lint")) * 7
    ):  # fmt: skip
        asks = {cpu: "2", memory: "4Gi"} if namespace == "platform" else a100
        flavor = "any-node" if namespace == "platform" else "a100"
        ended = 3 + 29 * number
        lasted = 12 + 37 * number % 311
        name = f"job-{what}-{number * 7919 % 0xFFFFF:05x}"
        objects.append(
            finished(runs(namespace, name, line, namespace, flavor, requests=asks, minutes=ended + lasted), ended)
        )
    return with_statuses(objects)


def finished(ran: Json, minutes: float) -> Json:
    """The same Workload, which finished so many minutes ago."""
    ran["status"]["conditions"].append(
        {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "Job finished successfully",
         "lastTransitionTime": at(minutes)}
    )  # fmt: skip
    return ran


def with_statuses(objects: list[Json]) -> list[Json]:
    """The same with the figures of ClusterQueues in their statuses, as a leader writes them."""
    state, _ = documents.parse(as_list(objects), "demo").snapshot.state(Options(), NOW.timestamp())
    for each in objects:
        if each["kind"] == "ClusterQueue":
            name = each["metadata"]["name"]
            counts = state.questions.queue_counts(name)
            held: dict[str, list[Json]] = {}
            for usage in state.questions.queue_usage(name):
                total, over = (quantity(usage.resource, amount) for amount in (usage.total, usage.borrowed))
                held.setdefault(usage.flavor, []).append({"name": usage.resource, "total": total, "borrowed": over})
            each["status"] = {
                "pendingWorkloads": counts.pending,
                "reservingWorkloads": counts.reserving,
                "admittedWorkloads": counts.admitted,
                "flavorsReservation": [{"name": name, "resources": resources} for name, resources in held.items()],
            }
    return objects


def as_list(objects: list[Json]) -> str:
    """As kubectl prints objects."""
    return orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).decode()


def dump() -> str:
    """What kubectl would print."""
    return as_list(world())
