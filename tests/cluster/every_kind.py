"""Jobs of every kind without the kinds' operators: only their definitions are there, and tests report what operators
would.

The manifests are those of the table of kinds (`tests/operators/rows`).
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario
from tests.operators.rows import ROWS, Row
from turnstile.jobs.registry import ALL

_OTHERS: Final = ("cronjob", "notebook", "inferenceservice", "appwrapper-deployment")
"""Rows whose jobs or pods are those of another row, or need their operator to be queued at all."""
KINDS: Final = {row.name: row for row in ROWS if row.name not in _OTHERS}
FRAMEWORKS: Final = tuple(each.framework for each in ALL)
WITHOUT_OPERATOR: Final = tuple(name for name, row in KINDS.items() if not row.operators)
"""Kinds whose pods are made, run and end: Kubernetes itself has their controllers."""
_RUNTIMES: Final = ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "trainingruntimes")
DEFINED: Final = sorted({(row.api_version, row.kind, row.plural) for row in KINDS.values() if row.operators})


def _reports(*types: str) -> Json:
    when = "2026-01-01T00:00:00Z"
    return {
        "conditions": [
            {"type": each, "status": "True", "reason": "Played", "message": "m", "lastTransitionTime": when}
            for each in types
        ]
    }


_OF_TRAINING: Final = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob", "mpijob")
_ENDED: Final[dict[str, Json]] = {
    **dict.fromkeys((*_OF_TRAINING, "pipelinerun"), _reports("Succeeded")),
    "jobset": _reports("Completed"),
    "trainjob": _reports("Complete"),
    "rayjob": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
    "appwrapper": {"phase": "Succeeded"},
    "sparkapplication": {"applicationState": {"state": "COMPLETED"}},
}
"""Status of a job that has succeeded."""
_IDLE: Final[dict[str, Json]] = {
    **dict.fromkeys((*_OF_TRAINING, "jobset"), _reports("Suspended")),
    "raycluster": {"state": "suspended", **_reports("RayClusterSuspended")},
    "rayjob": {"jobDeploymentStatus": "Suspended"},
    "sparkapplication": {"applicationState": {"state": "SUSPENDED"}},
}
"""Status of a suspended job whose pods are gone, of kinds that report that."""
ENDING: Final = tuple(name for name, row in KINDS.items() if row.end is not None)
"""Kinds whose jobs end by themselves."""


def define(cp: ControlPlane) -> None:
    """Create the definitions of all kinds, which accept everything."""
    for each in (*DEFINED, _RUNTIMES):
        cp.api.create(definition(*each))


def undefine(cp: ControlPlane) -> None:
    """Delete the definitions of all kinds; the API server deletes all their objects first."""
    for api_version, _, plural in DEFINED:
        name = f"{plural}.{api_version.split('/')[0]}"
        cp.api.delete(resource_path("apiextensions.k8s.io/v1", "customresourcedefinitions", name))


def definition(api_version: str, kind: str, plural: str, *, also: Sequence[str] = ()) -> Json:
    """A CustomResourceDefinition with a status, both of whose parts may be anything; `also` names further versions."""
    group, version = api_version.split("/")
    anything: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    served = {"served": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
    meta: Json = {"name": f"{plural}.{group}"}
    if group.endswith("k8s.io"):
        meta["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta,
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{**served, "name": each, "storage": each == version} for each in (version, *also)],
        },
    }


@dataclass(frozen=True, slots=True)
class Subject:
    """A job of one kind, by the name of its row, in one namespace."""

    kind: str
    name: str

    @property
    def row(self) -> Row:
        """Its row of the table of kinds."""
        return KINDS[self.kind]

    def owns(self, workload: Json) -> bool:
        """Whether a Workload is of this job, or of one of its pods."""
        own = (self.row.kind, self.name)
        return any(
            (owner["kind"], owner["name"]) == own
            or (owner["kind"] == "Pod" and owner["name"].startswith(f"{self.name}-"))
            for owner in workload["metadata"].get("ownerReferences", ())
        )

    def has_pod(self, pod: Json) -> bool:
        """Whether a pod belongs to it."""
        return self.row.select(pod, self.name)


class Seen:
    """All Workloads of a namespace, and after them all its pods and the names of its jobs, as read once."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.workloads = scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))
        self.pods = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))

    def of(self, subject: Subject) -> list[Json]:
        """The Workloads of a job."""
        return [each for each in self.workloads if subject.owns(each)]

    @cached_property
    def _jobs(self) -> dict[tuple[str, str], Json]:
        rows = {(row.api_version, row.plural): row.kind for row in KINDS.values()}
        found = {}
        for (api_version, plural), kind in rows.items():
            path = resource_path(api_version, plural, namespace=self._scenario.namespace)
            found |= {(kind, each["metadata"]["name"]): each for each in self._scenario.api.items(path)}
        return found

    def objects(self, subject: Subject) -> list[Json]:
        """The objects that a job consists of: the Pods of a group, else itself."""
        if subject.kind == "pod-group":
            return [pod for pod in self.pods if subject.has_pod(pod)]
        found = self._jobs.get((subject.row.kind, subject.name))
        return [found] if found is not None else []

    def runs(self, subject: Subject) -> bool:
        """Whether the pods of a job run, or whether it is resumed, where the operator that makes its pods is not
        there."""
        if not subject.row.operators:
            running = [pod for pod in self.pods if subject.has_pod(pod) and is_running(pod)]
            return len(running) == subject.row.pods
        return any(not suspended(each) for each in self.objects(subject))


def is_running(pod: Json) -> bool:
    """Whether a pod is bound to a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def suspended(job: Json) -> bool:
    """Whether a job of any kind is suspended."""
    spec = job["spec"]
    places = (spec, spec.get("runPolicy") or {}, spec.get("rayClusterConfig") or {})
    return any(each.get("suspend") is True for each in places) or spec.get("status") == "PipelineRunPending"


class Stage:
    """Jobs of every kind in one namespace, with a queue `open` for all of them and a queue `full` without quota."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.api = scenario.api
        pool = scenario.flavor("pool")
        self.open = scenario.queue("open", {pool: {"cpu": 10_000, "memory": "10000Gi"}})
        self.full = scenario.queue("full", {pool: {"cpu": 0, "memory": 0}})

    def create(self, subjects: Iterable[Subject], *, queue: str, priority: str = "") -> None:
        """Create jobs, several at a time."""

        def create(subject: Subject) -> None:
            objects = subject.row.objects(self.scenario, subject.name, queue, priority=priority)
            made = [self.api.create(each) for each in objects]
            if subject.kind == "trainjob":
                self._render(made[-1])

        self.each(create, subjects)

    def _render(self, job: Json) -> None:
        """Create the JobSet of a TrainJob, as Trainer does."""
        (made,) = KINDS["jobset"].objects(self.scenario, job["metadata"]["name"], "")
        owner = {key: job[key] for key in ("apiVersion", "kind")} | {
            key: job["metadata"][key] for key in ("name", "uid")
        }
        made["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        made["spec"]["suspend"] = True
        self.api.create(made)
        self.api.patch(f"{self.api.path_of(made)}/status", {"status": _reports("Suspended")})

    def path_of(self, subject: Subject, obj: Json) -> str:
        """URL path of a job, or of its Workload, from a list, where an object does not say its kind."""
        if subject.owns(obj):
            return self.api.path_of({"apiVersion": GROUP, "kind": "Workload", **obj})
        return self.api.path_of({"apiVersion": subject.row.api_version, "kind": subject.row.kind, **obj})

    def each(self, act: Callable[[Subject], object], subjects: Iterable[Subject]) -> None:
        """Do the same to jobs, several at a time."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(act, subjects))

    def wait(
        self, what: str, holds: Callable[[Subject, Seen], object], subjects: Sequence[Subject], *, timeout: float = 30
    ) -> None:
        """Until something holds for each of the jobs."""
        left = list(subjects)
        seen = Seen(self.scenario)

        def look() -> bool:
            nonlocal left, seen
            seen = Seen(self.scenario)
            left = [each for each in left if not holds(each, seen)]
            return not left

        wait_until(
            look, timeout=timeout, describe=lambda: f"not {what}:\n" + "\n".join(_told(each, seen) for each in left)
        )

    def wait_pending(self, subjects: Sequence[Subject]) -> None:
        """Until the Workloads of jobs wait for quota."""
        self.wait("pending", lambda each, seen: _all(seen.of(each), "QuotaReserved", "False"), subjects)

    def wait_running(self, subjects: Sequence[Subject]) -> None:
        """Until jobs are admitted and run."""
        self.wait("running", lambda each, seen: _all(seen.of(each), "Admitted", "True") and seen.runs(each), subjects)

    def evict(self, subjects: Sequence[Subject]) -> None:
        """Deactivate jobs that run, and wait until their quota is free."""
        seen = Seen(self.scenario)
        for subject in subjects:
            for workload in seen.of(subject):
                self.api.patch(self.path_of(subject, workload), {"spec": {"active": False}})
        reported: set[Subject] = set()

        def released(subject: Subject, seen: Seen) -> bool:
            for each in seen.objects(subject) if subject.kind in _IDLE and subject not in reported else ():
                if suspended(each):
                    self.api.patch(f"{self.path_of(subject, each)}/status", {"status": _IDLE[subject.kind]})
                    reported.add(subject)
            found = seen.of(subject)
            return _all(found, "Evicted", "True") and _all(found, "QuotaReserved", "False")

        self.wait("evicted", released, subjects)

    def report_idle(self, subjects: Sequence[Subject]) -> None:
        """Report that the pods of jobs are gone, where the operator of the kind does."""
        for subject in subjects:
            if subject.kind in _IDLE:
                path = subject.row.path(self.scenario, subject.name)
                self.api.patch(f"{path}/status", {"status": _IDLE[subject.kind]})

    def finish(self, subjects: Sequence[Subject]) -> None:
        """Let jobs that run succeed."""

        def end(subject: Subject) -> None:
            if subject.kind in _ENDED:
                path = subject.row.path(self.scenario, subject.name)
                self.api.patch(f"{path}/status", {"status": _ENDED[subject.kind]})
            elif subject.row.end is not None:
                subject.row.end(self.scenario, subject.name)

        self.each(end, subjects)
        self.wait("finished", lambda each, seen: _all(seen.of(each), "Finished", "True"), subjects)

    def reserving(self) -> int:
        """How many Workloads hold quota, by the status of the queue."""
        found = self.api.get(resource_path(GROUP, "clusterqueues", self.open))
        return int(found["status"].get("reservingWorkloads", 0))

    def wait_nothing_reserved(self) -> None:
        """Until no Workload holds quota."""
        wait_until(
            lambda: self.reserving() == 0, timeout=15, describe=lambda: f"{self.reserving()} Workloads hold quota"
        )


def _all(workloads: list[Json], kind: str, status: str) -> bool:
    """Whether there are Workloads, and all have a condition with that status."""
    return bool(workloads) and all(condition(each, kind).get("status") == status for each in workloads)


def _told(subject: Subject, seen: Seen) -> str:
    lines = [f"{subject.kind} {subject.name}"]
    for each in (*seen.objects(subject), *seen.of(subject)):
        meta, status = each["metadata"], each.get("status", {})
        states = [f"{c['type']}={c['status']} ({c['reason']})" for c in status.get("conditions", ()) if "reason" in c]
        lines.append(
            f"  {each.get('kind', '')} {meta['name']}: finalizers {meta.get('finalizers', [])}, "
            f"deleted {meta.get('deletionTimestamp')}, {', '.join(states)}"
        )
    return "\n".join(lines)
