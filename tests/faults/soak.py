"""A cluster in use: twenty queues in cohorts, jobs of six kinds, and what users and administrators do with them.

What is done, in which order and how often, is drawn from the seed; when it takes effect is not. Must never judge: see
`overshoot` and `forbidden`.
"""

import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from testbed.client import Json, resource_path
from testbed.components import RUN_FOR, STOP_FOR
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError
from testbed.installation import MANAGED
from tests.cluster.scenario import GROUP, Scenario, resource_groups
from tests.faults.moments import is_true
from tests.faults.overshoot import FOR_QUEUE
from tests.operators.rows import ROWS, Row

QUEUES: Final = 20
COHORTS: Final = 4
ALIVE: Final = 28
"""Jobs that are there at a time, at most."""
KINDS: Final = ("job", "pod", "pod-group", "deployment", "statefulset", "jobset")
PRIORITIES: Final = (0, 10, 20)
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
TIME_LIMIT: Final = "kueue.x-k8s.io/max-exec-time-seconds"
NOWHERE: Final = {"no": "such-node"}

CONFIGURATION: Final = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {{frameworks: [batch/job, pod, deployment, statefulset, jobset.x-k8s.io/jobset]}}
managedJobsNamespaceSelector: {{matchLabels: {{kueue-managed: "true"}}}}
defaultLocalQueues:
  - clusterQueueLabel: soak.turnstile.dev/default
waitForPodsReady:
  timeout: 15s
  recoveryTimeout: 15s
  requeuingStrategy: {{backoffBaseSeconds: 2, backoffMaxSeconds: 4, backoffLimitCount: 1}}
objectRetentionPolicies:
  workloads: {{afterFinished: 3s, afterDeactivatedByKueue: 3s}}
featureGates: {{UnadmittedWorkloadsExplicitStatus: true}}
{sharing}
"""
FAIR: Final = "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}"

_BROKEN: Final = (OSError, http.client.HTTPException)


@dataclass
class Job:
    """One that was submitted: what it is, and where it is to be charged."""

    row: Row
    scenario: Scenario
    name: str
    queue: str


class Soak:
    """Two namespaces, each with a LocalQueue for half of the queues and one named `default`."""

    def __init__(self, control_plane: ControlPlane, lots: random.Random) -> None:
        self.control_plane = control_plane
        self.api = control_plane.api
        self.random = lots
        self.rows = {row.name: row for row in ROWS if row.name in KINDS}
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.jobs: list[Job] = []
        self.stopped: list[str] = []
        self._count = 0
        first = Scenario(self.api, self._namespace("0"))
        self.scenarios = [first, Scenario(self.api, self._namespace("1"))]
        self.admin = first
        self.flavor = first.flavor("plain")
        self.check = self._check()
        self.priorities = [first.priority_class(f"priority-{value}", value) for value in PRIORITIES]
        self._cohorts()
        self.queues = [self._cluster_queue(number) for number in range(QUEUES)]
        self.local: dict[str, dict[str, str]] = {each.namespace: {} for each in self.scenarios}
        for number, name in enumerate(self.queues):
            scenario = self.scenarios[number % 2]
            self.local[scenario.namespace][scenario.local_queue(f"queue-{number}", name)] = name
        for number, scenario in enumerate(self.scenarios):
            patch = {"metadata": {"labels": {"soak.turnstile.dev/default": self.queues[number]}}}
            self.api.patch(f"/api/v1/namespaces/{scenario.namespace}", patch)
            self.local[scenario.namespace]["default"] = self.queues[number]

    def _namespace(self, number: str) -> str:
        name = self.control_plane.namespace(f"soak{number}", labels=MANAGED)
        limits = [{"type": "Container", "defaultRequest": {"cpu": "1"}}]
        meta = {"name": "defaults", "namespace": name}
        self.api.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": limits}})
        return name

    def _check(self) -> str:
        name = self.admin.named("budget")
        spec = {"controllerName": "example.com/budget"}
        self.admin.create({"apiVersion": GROUP, "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": spec})
        told = {"type": "Active", "status": "True", "reason": "Test", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        path = resource_path(GROUP, "admissionchecks", name, subresource="status")
        self.api.patch(path, {"status": {"conditions": [told]}})
        return name

    def _cohorts(self) -> None:
        self.admin.cohort("org", groups=self._groups(2))
        for number in range(COHORTS):
            self.admin.cohort(f"part-{number}", parent=self.admin.named("org"))

    def _cluster_queue(self, number: int) -> str:
        quota: Json = {"nominalQuota": 1 + number % 2}
        if number % 3 == 0:
            quota["borrowingLimit"] = 4
        spec: Json = {
            "preemption": {
                "withinClusterQueue": ("LowerPriority", "Never", "LowerOrNewerEqualPriority")[number % 3],
                "reclaimWithinCohort": ("Any", "LowerPriority", "Never")[number % 3],
            }
        }
        if number % 4 == 1:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": self.check}]}
        cohort = f"part-{number % COHORTS}"
        return self.admin.cluster_queue(f"queue-{number}", {self.flavor: {"cpu": quota}}, cohort=cohort, **spec)

    def _groups(self, nominal: int) -> list[Json]:
        return resource_groups({self.flavor: {"cpu": nominal}}) if nominal else []

    @property
    def paths(self) -> dict[str, str]:
        """The collections that the judges follow; of pods and jobs those of all namespaces."""
        return {
            "workloads": resource_path(GROUP, "workloads"),
            "localqueues": resource_path(GROUP, "localqueues"),
            "clusterqueues": resource_path(GROUP, "clusterqueues"),
            "cohorts": resource_path(GROUP, "cohorts"),
            "pods": resource_path("v1", "pods"),
            "jobs": resource_path("batch/v1", "jobs"),
            "deployments": resource_path("apps/v1", "deployments"),
            "replicasets": resource_path("apps/v1", "replicasets"),
            "statefulsets": resource_path("apps/v1", "statefulsets"),
            "jobsets": resource_path("jobset.x-k8s.io/v1alpha2", "jobsets"),
            "namespaces": resource_path("v1", "namespaces"),
        }

    def concerns(self, obj: Json) -> bool:
        """Whether an object is of this soak."""
        meta = obj["metadata"]
        ours = {each.namespace for each in self.scenarios}
        return meta.get("namespace", meta["name"]) in ours or meta["name"].endswith(f"-{self.admin.namespace}")

    # --- what is done -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random operation. What the API server refuses, or cannot be asked just now, is an operation too."""
        operations: dict[Callable[[], None], int] = {
            self._submit: 30 if len(self.jobs) < ALIVE else 0,
            self._delete: 6 if len(self.jobs) < ALIVE else 20,
            self._finish: 8,
            self._scale: 3,
            self._edit_quota: 3,
            self._edit_cohort: 1,
            self._stop_queue: 1,
            self._deactivate: 2,
            self._delete_workload: 1,
            self._delete_pod: 2,
            self._change_priority: 2,
            self._delete_default_queue: 1,
        }
        operation = self.random.choices(list(operations), list(operations.values()))[0]
        try:
            operation()
            self.done[operation.__name__.strip("_")] += 1
        except ApiError as error:
            self.refused[f"{error.code}"] += 1
        except _BROKEN as error:
            self.refused[type(error).__name__] += 1

    def _submit(self) -> None:
        row = self.rows[self.random.choice(KINDS)]
        scenario = self.random.choice(self.scenarios)
        local = self.random.choice(list(self.local[scenario.namespace]))
        name = f"{row.name}-{self._count}"
        self._count += 1
        priority = self.random.choice(self.priorities)
        seconds = self.random.choice([None, 1, 2, 4])
        chance = self.random.random()
        queue = self.local[scenario.namespace][local]
        # A Job that names no queue is put into `default`, and is not queued if that has just been deleted.
        unnamed = local == "default" and row.name == "job"
        made = row.objects(scenario, name, "" if unnamed else local, priority=priority)
        for obj in made:
            for pod in pods_in(obj):
                meta = pod.setdefault("metadata", {})
                if not unnamed:
                    meta.setdefault("labels", {})[FOR_QUEUE] = queue
                if seconds is not None and row.end is not None:
                    meta.setdefault("annotations", {})[RUN_FOR] = f"{seconds}s"
                elif chance > 0.7:
                    meta.setdefault("annotations", {})[STOP_FOR] = "1500ms"
                if chance < 0.06:
                    pod["spec"]["nodeSelector"] = NOWHERE
                elif chance < 0.2:
                    for container in pod["spec"]["containers"]:
                        container.pop("resources", None)
            if row.name in ("job", "jobset") and 0.2 < chance < 0.3:
                obj["metadata"]["labels"][TIME_LIMIT] = "2"
        self.jobs.append(Job(row, scenario, name, queue))
        for obj in made:
            self.api.create(obj)

    def _delete(self) -> None:
        if self.jobs:
            self._remove(self.jobs.pop(self.random.randrange(len(self.jobs))))

    def _remove(self, job: Job) -> None:
        if job.row.name == "pod-group":
            # With its Workload: a group that was stopped would go on waiting for other pods in the place of these.
            for pod in job.row.pods_of(job.scenario, job.name):
                self.api.delete(resource_path("v1", "pods", pod["metadata"]["name"], namespace=job.scenario.namespace))
            self.api.delete(resource_path(GROUP, "workloads", job.name, namespace=job.scenario.namespace))
        else:
            self.api.delete(job.row.path(job.scenario, job.name))

    def _finish(self) -> None:
        ending = [job for job in self.jobs if job.row.end is not None]
        if ending:
            job = self.random.choice(ending)
            assert job.row.end is not None
            job.row.end(job.scenario, job.name)

    def _scale(self) -> None:
        serving = [job for job in self.jobs if job.row.name in ("deployment", "statefulset")]
        if serving:
            job, replicas = self.random.choice(serving), self.random.randint(0, 3)
            self.api.patch(job.row.path(job.scenario, job.name), {"spec": {"replicas": replicas}})

    def _edit_quota(self) -> None:
        name = self.random.choice(self.queues)
        quota: Json = {"nominalQuota": self.random.randint(0, 3)}
        if self.random.random() < 0.3:
            quota["borrowingLimit"] = self.random.randint(0, 4)
        groups = resource_groups({self.flavor: {"cpu": quota}})
        self.api.patch(resource_path(GROUP, "clusterqueues", name), {"spec": {"resourceGroups": groups}})

    def _edit_cohort(self) -> None:
        name = self.admin.named("org")
        groups = self._groups(self.random.randint(0, 4))
        self.api.patch(resource_path(GROUP, "cohorts", name), {"spec": {"resourceGroups": groups}})

    def _stop_queue(self) -> None:
        """Stop a queue, or open one that is stopped."""
        if self.stopped:
            path, policy = self.stopped.pop(), "None"
        else:
            number = self.random.randrange(QUEUES)
            namespace = self.scenarios[number % 2].namespace
            local = resource_path(GROUP, "localqueues", f"queue-{number}", namespace=namespace)
            path = self.random.choice([local, resource_path(GROUP, "clusterqueues", self.queues[number])])
            policy = self.random.choice(["Hold", "HoldAndDrain"])
            self.stopped.append(path)
        self.api.patch(path, {"spec": {"stopPolicy": policy}})

    def _workload(self) -> Json | None:
        found = self._items(GROUP, "workloads")
        return self.random.choice(found) if found else None

    def _items(self, version: str, plural: str) -> list[Json]:
        namespace = self.random.choice(self.scenarios).namespace
        return self.api.items(resource_path(version, plural, namespace=namespace))

    def _deactivate(self) -> None:
        """Deactivate a Workload, or activate it again."""
        workload = self._workload()
        if workload is not None:
            active = not workload["spec"].get("active", True)
            self.api.patch(_workload_path(workload), {"spec": {"active": active}})

    def _delete_workload(self) -> None:
        workload = self._workload()
        if workload is not None:
            self.api.delete(_workload_path(workload))

    def _delete_pod(self) -> None:
        pods = [pod for pod in self._items("v1", "pods") if pod["metadata"].get("ownerReferences")]
        if pods:
            meta = self.random.choice(pods)["metadata"]
            self.api.delete(resource_path("v1", "pods", meta["name"], namespace=meta["namespace"]))

    def _change_priority(self) -> None:
        jobs = [job for job in self.jobs if job.row.name in ("job", "jobset", "deployment")]
        if jobs:
            job, priority = self.random.choice(jobs), self.random.choice(self.priorities)
            self.api.patch(job.row.path(job.scenario, job.name), {"metadata": {"labels": {PRIORITY: priority}}})

    def _delete_default_queue(self) -> None:
        namespace = self.random.choice(self.scenarios).namespace
        self.api.delete(resource_path(GROUP, "localqueues", "default", namespace=namespace))

    def forget(self, there: set[str]) -> None:
        """Remember only jobs that are there still, by their names."""
        self.jobs = [job for job in self.jobs if f"{job.scenario.namespace}/{job.name}" in there]

    # --- the end ------------------------------------------------------------------------------------------------------

    def open_all(self) -> None:
        """Open the queues that are stopped."""
        while self.stopped:
            self.api.patch(self.stopped.pop(), {"spec": {"stopPolicy": "None"}})

    def remove_all(self) -> None:
        """Delete every job, also those whose creation had no answer."""
        for scenario in self.scenarios:
            for kind in ("jobsets", "deployments", "statefulsets", "pods", "workloads"):
                self.api.delete(self._collection(kind, scenario))
            # Not the Jobs of JobSets: the JobSet controller would make them anew beside their pods.
            for job in self.api.items(self._collection("jobs", scenario)):
                if not job["metadata"].get("ownerReferences"):
                    self.api.delete(
                        resource_path("batch/v1", "jobs", job["metadata"]["name"], namespace=scenario.namespace)
                    )
        self.jobs.clear()

    def _collection(self, kind: str, scenario: Scenario) -> str:
        prefix, _, plural = self.paths[kind].rpartition("/")
        return f"{prefix}/namespaces/{scenario.namespace}/{plural}"

    # --- the admission check ------------------------------------------------------------------------------------------

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer the admission check of every Workload with quota for as long as the block lasts."""
        over = threading.Event()

        def answer() -> None:
            while not over.wait(0.3):
                try:
                    for workload in self.api.items(resource_path(GROUP, "workloads")):
                        self._answer(workload)
                except (ApiError, *_BROKEN):
                    continue

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _answer(self, workload: Json) -> None:
        """Of ten Workloads seven may start, two are asked again, and one is rejected; the same ones for every seed."""
        states = workload.get("status", {}).get("admissionChecks", ())
        pending = [each for each in states if each["name"] == self.check and each["state"] == "Pending"]
        if not pending or not is_true(workload, "QuotaReserved") or is_true(workload, "Evicted"):
            return
        number = sum(map(ord, workload["metadata"]["name"])) % 10
        state = "Rejected" if number == 0 else "Retry" if number < 3 and not pending[0].get("retryCount") else "Ready"
        given: Json = {**pending[0], "state": state, "message": "by lot"}
        if state == "Retry":
            given["requeueAfterSeconds"] = 1
        body = {
            "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
            "status": {"admissionChecks": [given if each["name"] == self.check else each for each in states]},
        }
        try:
            self.api.patch(f"{_workload_path(workload)}/status", body)
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def pods_in(obj: Json) -> Iterator[Json]:
    """The pods, or the templates of pods, that a manifest holds."""
    if obj.get("kind") == "Pod":
        yield obj
    else:
        yield from _templates(obj)


def _templates(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        template = value.get("template")
        if isinstance(template, dict) and "containers" in template.get("spec", {}):
            yield template
        for each in value.values():
            yield from _templates(each)
    elif isinstance(value, list):
        for each in value:
            yield from _templates(each)


def _workload_path(workload: Json) -> str:
    meta = workload["metadata"]
    return resource_path(GROUP, "workloads", meta["name"], namespace=meta["namespace"])
