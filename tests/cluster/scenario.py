"""Words to build a world with: flavors, queues, jobs, and what tests ask about them afterwards.

Objects are plain JSON as a user would write it. Names of cluster-scoped objects get the test's namespace as a suffix,
so that tests share one control plane without seeing each other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from testbed import ControlPlane
from testbed.client import Api, Json, condition, resource_path, wait_until
from testbed.errors import ApiError

GROUP = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
RUN_FOR = "testbed.turnstile.dev/run-for"


@dataclass
class Scenario:
    """Objects of one test, made through the API server and removed when it ends."""

    api: Api
    namespace: str
    made: list[Json] = field(default_factory=list)

    def named(self, name: str) -> str:
        """The name of a cluster-scoped object of this test."""
        return f"{name}-{self.namespace}"

    def create(self, obj: Json) -> Json:
        """Create an object and remember it for the end."""
        created = self.api.create(obj)
        self.made.append(obj)
        return created

    def flavor(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        taints: list[Json] | None = None,
        tolerations: list[Json] | None = None,
    ) -> str:
        """A ResourceFlavor; returns its full name."""
        full = self.named(name)
        spec: Json = {"nodeLabels": labels or {}, "nodeTaints": taints or [], "tolerations": tolerations or []}
        self.create({"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": full}, "spec": spec})
        return full

    def cohort(self, name: str, *, parent: str | None = None, groups: list[Json] | None = None) -> str:
        """A Cohort; returns its full name."""
        full = self.named(name)
        spec: Json = {"resourceGroups": groups or []}
        if parent:
            spec["parentName"] = parent
        self.create({"apiVersion": GROUP, "kind": "Cohort", "metadata": {"name": full}, "spec": spec})
        return full

    def cluster_queue(self, name: str, quota: dict[str, Any], *, cohort: str | None = None, **spec: Any) -> str:
        """A ClusterQueue from `{flavor: {resource: nominal or {nominalQuota, borrowingLimit, lendingLimit}}}`."""
        full = self.named(name)
        self.create(
            {
                "apiVersion": GROUP,
                "kind": "ClusterQueue",
                "metadata": {"name": full},
                "spec": {
                    "namespaceSelector": {},
                    **({"cohortName": self.named(cohort)} if cohort else {}),
                    "resourceGroups": resource_groups(quota),
                    **spec,
                },
            }
        )
        return full

    def local_queue(self, name: str, cluster_queue: str, **spec: Any) -> str:
        """A LocalQueue in the test's namespace."""
        meta = {"name": name, "namespace": self.namespace}
        self.create(
            {
                "apiVersion": GROUP,
                "kind": "LocalQueue",
                "metadata": meta,
                "spec": {"clusterQueue": cluster_queue, **spec},
            }
        )
        return name

    def queue(self, name: str, quota: dict[str, Any], *, cohort: str | None = None, **spec: Any) -> str:
        """A ClusterQueue and a LocalQueue of the same short name; returns the ClusterQueue's full name."""
        full = self.cluster_queue(name, quota, cohort=cohort, **spec)
        self.local_queue(name, full)
        return full

    def priority_class(self, name: str, value: int) -> str:
        """A WorkloadPriorityClass; returns its full name."""
        full = self.named(name)
        self.create({"apiVersion": GROUP, "kind": "WorkloadPriorityClass", "metadata": {"name": full}, "value": value})
        return full

    def job(
        self,
        name: str,
        *,
        queue: str | None,
        cpu: str = "1",
        pods: int = 1,
        run_for: str | None = None,
        template: Json | None = None,
        labels: dict[str, str] | None = None,
    ) -> Json:
        """Create a Job of `pods` pods of `cpu` each; its pods run until deleted, or for `run_for`."""
        return self.create(
            job(
                name,
                namespace=self.namespace,
                queue=queue,
                cpu=cpu,
                pods=pods,
                run_for=run_for,
                template=template,
                labels=labels,
            )
        )

    # ------------------------------------------------------------ questions

    def read_job(self, name: str) -> Json:
        """The Job as it is now."""
        found: Json = self.api.get(job_path(self.namespace, name))
        return found

    def suspended(self, name: str) -> bool:
        """Whether the Job is suspended."""
        return bool(self.read_job(name)["spec"].get("suspend"))

    def wait_started(self, name: str, *, timeout: float = 10) -> Json:
        """Wait until the Job is unsuspended."""
        return self.api.wait_for(
            job_path(self.namespace, name),
            lambda j: not j["spec"].get("suspend"),
            timeout=timeout,
            describe="started",
        )

    def wait_suspended(self, name: str, *, timeout: float = 10) -> Json:
        """Wait until the Job is suspended."""
        return self.api.wait_for(
            job_path(self.namespace, name), lambda j: j["spec"].get("suspend"), timeout=timeout, describe="suspended"
        )

    def workload_of(self, name: str, *, timeout: float = 10, kind: str = "Job") -> Json:
        """The Workload that the Job (or Pod) owns, waiting for it."""
        path = resource_path(GROUP, "workloads", namespace=self.namespace)

        def look() -> Json | None:
            owned = [
                w
                for w in self.api.items(path)
                if any(o["name"] == name and o["kind"] == kind for o in w["metadata"].get("ownerReferences", ()))
            ]
            return owned[0] if owned else None

        return wait_until(look, timeout=timeout, describe=lambda: f"no Workload of {kind} {name}")

    def wait_workload(
        self, name: str, predicate: Callable[[Json], object], *, timeout: float = 10, kind: str = "Job"
    ) -> Json:
        """Wait until the Workload of a Job satisfies the predicate."""
        seen: Json = {}

        def look() -> Json | None:
            nonlocal seen
            seen = self.workload_of(name, timeout=timeout, kind=kind)
            return seen if predicate(seen) else None

        return wait_until(look, timeout=timeout, describe=lambda: f"Workload of {kind} {name} is {seen.get('status')}")

    def wait_pending(self, name: str, *, reason: str | None = None, timeout: float = 10, kind: str = "Job") -> Json:
        """Wait until QuotaReserved is False (for that reason); the condition."""

        def waits(workload: Json) -> bool:
            reserved = condition(workload, "QuotaReserved")
            return bool(reserved) and reserved["status"] == "False" and (reason is None or reserved["reason"] == reason)

        return condition(self.wait_workload(name, waits, timeout=timeout, kind=kind), "QuotaReserved")

    def wait_admitted(self, name: str, *, timeout: float = 10, kind: str = "Job") -> Json:
        """Wait until the Workload is admitted; its admission."""
        workload = self.wait_workload(
            name, lambda w: condition(w, "Admitted").get("status") == "True", timeout=timeout, kind=kind
        )
        admission: Json = workload["status"]["admission"]
        return admission

    def wait_event(self, name: str, *, reason: str, timeout: float = 10) -> Json:
        """The first event with that reason about an object of that name."""
        path = resource_path("events.k8s.io/v1", "events", namespace=self.namespace)

        def look() -> Json | None:
            found = (e for e in self.api.items(path) if (e["regarding"].get("name"), e["reason"]) == (name, reason))
            return next(found, None)

        return wait_until(look, timeout=timeout, describe=lambda: f"no event {reason} about {name}")

    def pods_of(self, name: str) -> list[Json]:
        """Pods of a Job."""
        return self.api.items(
            resource_path("v1", "pods", namespace=self.namespace), labels=f"batch.kubernetes.io/job-name={name}"
        )

    def patch_queue(self, full_name: str, spec: Json) -> None:
        """Merge-patch a ClusterQueue's spec."""
        self.api.patch(resource_path(GROUP, "clusterqueues", full_name), {"spec": spec})

    def finish(self, name: str) -> None:
        """Let the pods of a Job end as soon as there are some; returns without waiting for their end."""
        path = job_path(self.namespace, name)
        wait_until(lambda: self.end_pods(name), timeout=10, describe=lambda: f"{path} has no pods")

    def end_pods(self, name: str) -> bool:
        """Let the pods that a Job has now end. Whether it has any."""
        found = self.pods_of(name)
        for pod in found:
            path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=self.namespace)
            try:
                self.api.patch(path, {"metadata": {"annotations": {RUN_FOR: "0s"}}})
            except ApiError as error:
                if error.code != 404:
                    raise
        return bool(found)

    def remove(self) -> None:
        """Delete what was made, jobs first, without waiting for the end of it; the namespace stays, empty."""
        for obj in reversed(self.made):
            self.api.delete(self.api.path_of(obj))
        empty(self.api, self.namespace)

    def delete_job(self, name: str) -> None:
        """Delete a Job in the background."""
        self.api.delete(job_path(self.namespace, name))


@contextmanager
def adding_nodes(control_plane: ControlPlane) -> Iterator[Callable[..., str]]:
    """`add("gpu-1", labels=...)` as ControlPlane.add_node, returning the name; the nodes go in the end."""
    added: list[str] = []

    def add(name: str, **options: object) -> str:
        added.append(name)
        control_plane.add_node(name, **options)  # type: ignore[arg-type]
        return name

    yield add
    for name in added:
        control_plane.remove_node(name)


def empty(api: Api, namespace: str) -> None:
    """Delete all that runs or waits in a namespace. To delete the namespace would take the control plane more requests
    than most tests do: it goes through every kind that there is.

    The API server stops after a minute, with hundreds of objects on a busy machine; what it has deleted is deleted.
    """
    for api_version, plural in (("batch/v1", "jobs"), ("v1", "pods"), (GROUP, "workloads")):
        path = resource_path(api_version, plural, namespace=namespace)
        for again in (True, True, False):
            try:
                api.delete(path, timeout=120)
                break
            except ApiError as error:
                if error.code != 504 or not again:
                    raise


def job_path(namespace: str, name: str) -> str:
    """URL path of a Job."""
    return resource_path("batch/v1", "jobs", name, namespace=namespace)


def resource_groups(quota: dict[str, Any]) -> list[Json]:
    """One resource group from `{flavor: {resource: nominal or limits}}`."""
    resources = list(next(iter(quota.values()))) if quota else []
    flavors = []
    for flavor, amounts in quota.items():
        entries = []
        for name, amount in amounts.items():
            limits = amount if isinstance(amount, dict) else {"nominalQuota": amount}
            entries.append({"name": name, **limits})
        flavors.append({"name": flavor, "resources": entries})
    return [{"coveredResources": resources, "flavors": flavors}] if quota else []


def job(
    name: str,
    *,
    namespace: str,
    queue: str | None,
    cpu: str = "1",
    pods: int = 1,
    run_for: str | None = None,
    template: Json | None = None,
    labels: dict[str, str] | None = None,
) -> Json:
    """A Job as JSON."""
    extra = template or {}
    pod_labels = {**({QUEUE: queue} if queue else {}), **(labels or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": pod_labels},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {RUN_FOR: run_for} if run_for else {}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": cpu}}}
                    ],
                    **extra,
                },
            },
        },
    }
