"""A consistent world for the audit: the engine admits Workloads, and each of their pods runs as it was started."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Job, Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.pace import finish
from turnstile.insight.audit import Finding, audit
from turnstile.insight.evidence import Evidence
from turnstile.jobs.registry import Registry

T = TypeVar("T", bound=Kind)
NOW = datetime(2026, 1, 2, 4, 0, tzinfo=UTC)
"""An hour after everything was admitted."""
QUEUE = "kueue.x-k8s.io/queue-name"
WORKLOAD = "kueue.x-k8s.io/workload"
FLAVORS = {"x": {"pool": "x"}, "y": {"pool": "y"}}


@dataclass
class World:
    """The objects of a cluster. Namespaces `n0`, `n1` and `n2` are managed, others are not."""

    queues: list[ClusterQueue]
    cohorts: list[Cohort] = field(default_factory=list)
    local_queues: list[LocalQueue] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    flavors: list[ResourceFlavor] = field(
        default_factory=lambda: [b.flavor(name, nodeLabels=labels) for name, labels in FLAVORS.items()]
    )
    without_queue_name: bool = False
    registry: Registry = field(default_factory=Registry)
    options: Options = field(default_factory=Options)

    def findings(self) -> list[Finding]:
        """What an audit finds."""
        jobs = {each.metadata.key: each for each in self.jobs}
        pods = {each.metadata.key: each for each in self.pods}

        def find(kind: type[Kind], key: str) -> Kind | None:
            return jobs.get(key) if kind is Job else pods.get(key)

        evidence = Evidence(
            now=NOW,
            pods=self.pods,
            workloads=self.workloads,
            cluster_queues=self.queues,
            cohorts=self.cohorts,
            local_queues=self.local_queues,
            flavors=self.flavors,
            find=find,
            managed=lambda namespace: namespace.startswith("n"),
            manage_jobs_without_queue_name=self.without_queue_name,
            registry=self.registry,
            options=self.options,
            grace_seconds=60.0,
        )
        return finish(audit(evidence))

    def found(self) -> set[tuple[str, str]]:
        """Problem and name of what it is about, of each finding."""
        return {(str(each.problem), each.about[1]) for each in self.findings()}

    # --- what happens in it -------------------------------------------------------------------------------------------

    def admit(self, asked: list[Workload]) -> None:
        """Let the engine admit what fits, and the pods of what it admits run."""
        state = State(self.options)
        for flavor in self.flavors:
            state.put_flavor(flavor)
        for namespace in {each.metadata.namespace for each in self.local_queues}:
            state.put_namespace(namespace, {})
        for cohort in self.cohorts:
            state.put_cohort(cohort)
        for queue in self.queues:
            state.put_cluster_queue(queue, b.NOW)
        for local in self.local_queues:
            state.put_local_queue(local, b.NOW)
        for workload in asked:
            state.put_workload(workload, b.NOW)
        by_key = {each.metadata.key: each for each in asked}
        for _ in range(200):
            for decision in cycle(state, b.NOW) if state.has_work else ():
                if decision.outcome == "admit":
                    assert decision.admission is not None
                    admitted = by_key[decision.key] = with_admission(
                        by_key[decision.key], msgspec.to_builtins(decision.admission)
                    )
                    self.start(admitted)
        self.workloads.extend(by_key.values())

    def start(self, workload: Workload) -> None:
        """The Job of an admitted Workload, and its pods, each on a node."""
        meta, admission = workload.metadata, workload.status.admission
        assert admission is not None
        (owner,) = meta.owner_references
        self.jobs.append(job(owner.name, namespace=meta.namespace, uid=owner.uid))
        for pod_set, assigned in zip(workload.spec.pod_sets, admission.pod_set_assignments, strict=True):
            selector: dict[str, str] = {}
            for flavor in assigned.flavors.values():
                selector.update(FLAVORS.get(flavor, {}))
            for number in range(assigned.count or 0):
                self.pods.append(
                    pod(
                        f"{meta.name}-{number}",
                        namespace=meta.namespace,
                        requests=dict(pod_set.template.spec.containers[0].resources.requests),  # type: ignore[union-attr]
                        selector=selector,
                        annotations={WORKLOAD: meta.name},
                        owner={"kind": "Job", "apiVersion": "batch/v1", "name": owner.name, "uid": owner.uid},
                    )
                )


def decode(kind: type[T], value: dict[str, Any]) -> T:
    """An object of a kind from plain JSON."""
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


def pod(
    name: str,
    *,
    namespace: str = "n0",
    requests: dict[str, Any] | None = None,
    selector: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
    phase: str = "Running",
    spec: dict[str, Any] | None = None,
    node: str | None = "node-1",
    **metadata: Any,
) -> Pod:
    """A pod on a node."""
    return decode(
        Pod,
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{namespace}-{name}",
                "labels": labels or {},
                "annotations": annotations or {},
                "ownerReferences": [{**owner, "controller": True}] if owner else [],
                **metadata,
            },
            "spec": {
                "nodeName": node,
                "nodeSelector": selector or {},
                "containers": [{"name": "c", "resources": {"requests": requests or {"cpu": "1"}}}],
                **(spec or {}),
            },
            "status": {"phase": phase},
        },
    )


def job(
    name: str, *, namespace: str = "n0", uid: str = "", suspend: bool = False, queue: str = "main", **metadata: Any
) -> Job:
    """A Job in LocalQueue `main`."""
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "labels": {QUEUE: queue} if queue else {},
    }
    return decode(Job, {"metadata": {**meta, **metadata}, "spec": {"suspend": suspend}})


def workload(name: str, *, namespace: str = "n0", line: str = "main", cpu: Any = 1, count: int = 1) -> Workload:
    """A Workload of the Job `name`, not admitted."""
    made = b.workload(name, line, cpu=cpu, count=count, namespace=namespace)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
    body = msgspec.to_builtins(made)
    body["metadata"].update(ownerReferences=[owner], uid=f"uid-workload-{name}")
    return msgspec.convert(body, Workload)


def with_admission(base: Workload, admission: dict[str, Any], **conditions: str) -> Workload:
    """The Workload, admitted an hour ago; `conditions` are further ones with their status."""
    body = msgspec.to_builtins(base)
    states = {"QuotaReserved": "True", "Admitted": "True", **conditions}
    body["status"] = {
        "admission": admission,
        "conditions": [
            {"type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": b.STAMP}
            for kind, status in states.items()
        ],
    }
    return msgspec.convert(body, Workload)


def small() -> World:
    """A queue of 4 CPUs in flavor x for namespace `n0`, and a Job of two pods of 1 CPU that runs."""
    world = World([b.queue("q", {"x": {"cpu": 4}})], local_queues=[b.local("main", "q", "n0")])
    world.admit([workload("train", cpu=1, count=2)])
    return world


def without_pods(world: World, name: str) -> World:
    """The world without the pods whose names begin so."""
    return replace(world, pods=[each for each in world.pods if not each.metadata.name.startswith(name)])
