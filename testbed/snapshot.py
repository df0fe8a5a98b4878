"""What the tour sees of the cluster at one moment, as plain values.

Pure: objects of the API server in, rows out. Never decides whether what it sees is right; that is `promises`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

Json = dict[str, Any]
State = Literal["Waiting", "Admitted", "Running", "Stopping", "Finished", "Failed", "Unmanaged"]

GPU = "nvidia.com/gpu"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MANAGED_LABEL = "kueue.x-k8s.io/managed"
ADMISSION_GATE = "kueue.x-k8s.io/admission"
PREEMPTOR = re.compile(r"a workload \(UID: (\S+), JobUID: (\S+)\)")
"""How a victim's message names the one it made room for."""


@dataclass(frozen=True, slots=True)
class Row:
    """One Job, Pod, JobSet or RayJob. `flavors` and `nodes` are sorted; `why` is a sentence; `cpu` and `gpus` are the
    requests of all its pods.

    A Job that is Stopping is suspended already and has pods that are not gone yet.
    """

    kind: Literal["Job", "Pod", "JobSet", "RayJob"]
    namespace: str
    name: str
    queue: str
    state: State
    cpu: Fraction
    flavors: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    why: str = ""
    gpus: Fraction = Fraction(0)

    @property
    def amount(self) -> Fraction:
        """The requested GPUs, or CPUs of a job without any: what its flavor is short of first."""
        return self.gpus or self.cpu

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows by key, and the rest that promises are about.

    `active_queues` are keys of queues of both kinds; `reserved` and `borrowed` are GPUs, or CPUs of a flavor without
    any, by ClusterQueue and flavor;
    `nodes` are labels by name; `refused` are requests of Turnstile that the API server forbade.
    """

    rows: Mapping[str, Row] = field(default_factory=dict)
    active_queues: frozenset[str] = frozenset()
    reserved: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)
    borrowed: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def row(self, key: str) -> Row | None:
        """The row of a Job or Pod."""
        return self.rows.get(key)


def read(
    *,
    jobs: Iterable[Json],
    pods: Iterable[Json],
    workloads: Iterable[Json],
    local_queues: Iterable[Json],
    cluster_queues: Iterable[Json],
    nodes: Iterable[Json],
    others: Iterable[Json] = (),
    refused: Iterable[str] = (),
) -> Snapshot:
    """Put lists of objects together; Jobs in the order of their creation, then JobSets and RayJobs, then Pods that
    nobody made. `others` are JobSets, RayJobs and RayClusters, each with its kind."""
    by_owner = {
        owner["uid"]: workload
        for workload in workloads
        for owner in workload["metadata"].get("ownerReferences", ())
        if "deletionTimestamp" not in workload["metadata"]
    }
    jobs, pods, others = list(jobs), list(pods), list(others)
    keys = {_uid(obj): f"{obj['metadata']['namespace']}/{obj['metadata']['name']}" for obj in [*jobs, *pods, *others]}
    owners = {_uid(each): owner for each in [*jobs, *others] if (owner := _controller(each)) in keys}
    children: dict[str, list[Json]] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences", ()):
            children.setdefault(_topmost(owner["uid"], owners), []).append(pod)
    own = [job for job in jobs if _uid(job) not in owners]
    rows = [_job(job, children.get(_uid(job), []), by_owner.get(_uid(job)), keys) for job in sorted(own, key=_age)]
    rows += [
        _other(each, children.get(_uid(each), []), by_owner.get(_uid(each)), keys)
        for each in sorted(others, key=_age)
        if _uid(each) not in owners
    ]
    rows += [
        _pod(pod, by_owner.get(_uid(pod)), keys)
        for pod in sorted(pods, key=_age)
        if not any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences", ()))
    ]
    queues = list(cluster_queues)
    return Snapshot(
        rows={row.key: row for row in rows},
        active_queues=frozenset(
            "/".join(filter(None, (queue["metadata"].get("namespace"), queue["metadata"]["name"])))
            for queue in [*queues, *local_queues]
            if _condition(queue, "Active").get("status") == "True"
        ),
        reserved=_held(queues, "total"),
        borrowed=_held(queues, "borrowed"),
        nodes={node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in nodes},
        refused=tuple(refused),
    )


def cpus(quantity: str | float) -> Fraction:
    """A CPU quantity as people write it in the examples: `2`, `500m`, `0.5`."""
    text = str(quantity)
    return Fraction(text[:-1]) / 1000 if text.endswith("m") else Fraction(text)


def _controller(obj: Json) -> str:
    references = obj["metadata"].get("ownerReferences", ())
    return next((str(each["uid"]) for each in references if each.get("controller")), "")


def _topmost(uid: str, owners: Mapping[str, str]) -> str:
    while uid in owners:
        uid = owners[uid]
    return uid


def _job(job: Json, pods: list[Json], workload: Json | None, keys: Mapping[str, str]) -> Row:
    spec = job["spec"]
    count = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
    asked = _times(count, spec["template"]["spec"])
    ended = next((c for kind in ("Complete", "Failed") if (c := _condition(job, kind)).get("status") == "True"), None)
    return _suspended(job, "Job", pods, workload, keys, ended=ended, asked=asked)


def _other(obj: Json, pods: list[Json], workload: Json | None, keys: Mapping[str, str]) -> Row:
    spec, status = obj["spec"], obj.get("status", {})
    asked, ended = _Asked(), None
    if obj["kind"] == "JobSet":
        for each in spec["replicatedJobs"]:
            job = each["template"]["spec"]
            asked += _times(each.get("replicas", 1) * job.get("parallelism", 1), job["template"]["spec"])
        ended = next(
            (c for kind in ("Completed", "Failed") if (c := _condition(obj, kind)).get("status") == "True"), None
        )
    else:
        ray = spec["rayClusterSpec"]
        groups = [(1, ray["headGroupSpec"]), *((each.get("replicas", 0), each) for each in ray["workerGroupSpecs"])]
        asked = sum((_times(count, each["template"]["spec"]) for count, each in groups), asked)
        if (said := status.get("jobDeploymentStatus")) in ("Complete", "Failed"):
            ended = {"type": said, "message": status.get("message", "")}
    return _suspended(obj, obj["kind"], pods, workload, keys, ended=ended, asked=asked)


def _suspended(
    job: Json,
    kind: Literal["Job", "JobSet", "RayJob"],
    pods: list[Json],
    workload: Json | None,
    keys: Mapping[str, str],
    *,
    ended: Json | None,
    asked: "_Asked",
) -> Row:
    """A row of a kind with `spec.suspend`, with its requests; `ended` has the type and message of its end."""
    spec = job["spec"]
    queue = job["metadata"].get("labels", {}).get(QUEUE_LABEL, "")
    state: State
    if ended is not None:
        state = "Failed" if ended["type"] == "Failed" else "Finished"
        why = ended.get("message", "")
    elif spec.get("suspend"):
        left = any(pod.get("status", {}).get("phase") not in ("Succeeded", "Failed") for pod in pods)
        state, why = "Stopping" if left else "Waiting", _why_waiting(workload, keys)
    else:
        state, why = _started(pods, workload, managed=bool(queue))
    return Row(
        kind=kind,
        namespace=job["metadata"]["namespace"],
        name=job["metadata"]["name"],
        queue=queue,
        state=state,
        cpu=asked.cpu,
        gpus=asked.gpus,
        flavors=_flavors(workload),
        nodes=_nodes(pods),
        why=why,
    )


def _pod(pod: Json, workload: Json | None, keys: Mapping[str, str]) -> Row:
    labels = pod["metadata"].get("labels", {})
    managed = labels.get(MANAGED_LABEL) == "true"
    phase = pod.get("status", {}).get("phase", "Pending")
    gated = any(gate["name"] == ADMISSION_GATE for gate in pod["spec"].get("schedulingGates", ()))
    state: State
    if phase in ("Succeeded", "Failed"):
        state, why = ("Finished" if phase == "Succeeded" else "Failed"), pod["status"].get("message", "")
    elif gated:
        state, why = "Waiting", _why_waiting(workload, keys)
    else:
        state, why = _started([pod], workload, managed=managed)
    return Row(
        kind="Pod",
        namespace=pod["metadata"]["namespace"],
        name=pod["metadata"]["name"],
        queue=labels.get(QUEUE_LABEL, ""),
        state=state,
        cpu=(asked := _times(1, pod["spec"])).cpu,
        gpus=asked.gpus,
        flavors=_flavors(workload),
        nodes=_nodes([pod]),
        why=why,
    )


def _why_waiting(workload: Json | None, keys: Mapping[str, str]) -> str:
    if workload is None:
        return "no Workload yet"
    evicted, reserved = _condition(workload, "Evicted"), _condition(workload, "QuotaReserved")
    waiting = str(reserved.get("message") or "in line; its turn has not come yet")
    if evicted.get("status") == "True":
        stopped = _evicted(str(evicted.get("message", "")), keys)
        told = reserved.get("status") == "False" and not waiting.startswith(stopped.split(" ", 1)[0])
        return f"{stopped}; since then: {waiting}" if told else stopped
    if _condition(workload, "Admitted").get("status") == "True":
        return "Admitted; about to start"
    return "quota reserved, not yet admitted" if reserved.get("status") == "True" else waiting


def _evicted(message: str, keys: Mapping[str, str]) -> str:
    """The message of an eviction for people: the one that was made room for by its name, and no paths of queues."""
    sentence = message.partition("; preemptor path")[0]
    return PREEMPTOR.sub(lambda found: keys.get(found[2]) or keys.get(found[1]) or found[0], sentence)


def _started(pods: list[Json], workload: Json | None, *, managed: bool) -> tuple[State, str]:
    running = sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)
    ended = sum(pod.get("status", {}).get("phase") in ("Succeeded", "Failed") for pod in pods)
    if running or ended:
        note = f", {ended} ended" if ended else ""
        return "Running" if managed else "Unmanaged", f"{running} of {len(pods)} pods running{note}"
    if not managed:
        return "Unmanaged", "not held by any queue"
    return "Admitted", str(_condition(workload or {}, "Admitted").get("message") or "pods are being made")


def _flavors(workload: Json | None) -> tuple[str, ...]:
    assignments = ((workload or {}).get("status", {}).get("admission") or {}).get("podSetAssignments", ())
    return tuple(sorted({flavor for assignment in assignments for flavor in assignment.get("flavors", {}).values()}))


def _nodes(pods: Iterable[Json]) -> tuple[str, ...]:
    return tuple(sorted({name for pod in pods if (name := pod["spec"].get("nodeName"))}))


@dataclass(frozen=True, slots=True)
class _Asked:
    """Requests of pods."""

    cpu: Fraction = Fraction(0)
    gpus: Fraction = Fraction(0)

    def __add__(self, other: "_Asked") -> "_Asked":
        return _Asked(self.cpu + other.cpu, self.gpus + other.gpus)


def _times(count: int, spec: Json) -> _Asked:
    """The requests of so many pods of a spec; a limit of GPUs is a request too."""
    asked = [container.get("resources", {}) for container in spec["containers"]]
    cpu = sum((cpus(each.get("requests", {}).get("cpu", 0)) for each in asked), Fraction(0))
    gpus = sum((Fraction(each.get("limits", {}).get(GPU, 0)) for each in asked), Fraction(0))
    return _Asked(count * cpu, count * gpus)


def _held(queues: Iterable[Json], amount: str) -> dict[tuple[str, str], Fraction]:
    found: dict[tuple[str, str], Fraction] = {}
    for queue in queues:
        for flavor in queue.get("status", {}).get("flavorsReservation", ()):
            by_name = {each["name"]: each for each in flavor.get("resources", ())}
            if scarce := by_name.get(GPU) or by_name.get("cpu"):
                found[queue["metadata"]["name"], flavor["name"]] = cpus(scarce.get(amount, 0))
    return found


def _condition(obj: Json, kind: str) -> Json:
    return next((found for found in obj.get("status", {}).get("conditions", ()) if found["type"] == kind), {})


def _uid(obj: Json) -> str:
    return str(obj["metadata"]["uid"])


def _age(obj: Json) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return metadata["creationTimestamp"], metadata["namespace"], metadata["name"]
