"""JobSets, and jobs of training operators, that change their number of pods while they run, as Jobs do."""

from typing import Any

import pytest

from tests.unit.controllers.job_cluster import TEMPLATE
from tests.unit.controllers.sliced import ELASTIC, GATE, Body, Sliced
from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.controllers.workloads import heldpods
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.jobset import JobSets
from turnstile.jobs.kinds.kubeflow.mpijob import MPI_JOBS
from turnstile.jobs.kinds.kubeflow.training import JAX_JOBS, PYTORCH_JOBS, TF_JOBS

GATED: Body = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "schedulingGates": [GATE]}}


def job_set(workers: int) -> Body:
    """The spec of a JobSet with an Indexed Job."""
    job = {"parallelism": workers, "completions": workers, "completionMode": "Indexed", "template": GATED}
    return {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}]}


def training(field: str, workers: int, **spec: Any) -> Body:
    """The spec of a job of a training operator."""
    return {field: {"Worker": {"replicas": workers, "template": GATED}}, **spec}


def with_servers(spec: Body, servers: int) -> Body:
    """The spec of a TFJob with parameter servers too."""
    servers_too = {"PS": {"replicas": max(servers, 0), "template": GATED}}
    return {"tfReplicaSpecs": {**spec["tfReplicaSpecs"], **servers_too}}


KINDS: dict[str, tuple[Integration[Any], Any]] = {
    "jobset": (JobSets(), job_set),
    "pytorchjob": (
        PYTORCH_JOBS,
        lambda workers: training(
            "pytorchReplicaSpecs", workers, elasticPolicy={"minReplicas": 1, "maxReplicas": 9, "metrics": []}
        ),
    ),
    "tfjob": (TF_JOBS, lambda workers: with_servers(training("tfReplicaSpecs", workers), 4 - workers)),
    "jaxjob": (JAX_JOBS, lambda workers: training("jaxReplicaSpecs", workers)),
    "mpijob": (MPI_JOBS, lambda workers: training("mpiReplicaSpecs", workers)),
}


class Growing(Sliced):
    """A job that was admitted with two workers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.integration, self.spec = KINDS[kind]
        self.kind = self.integration.kind
        self.key = f"{self.integration.framework}:team/train"
        labels = {names.QUEUE_LABEL: "main"}
        meta = {"name": "train", "namespace": "team", "labels": labels, "annotations": ELASTIC}
        suspended = {"suspend": True} if kind == "jobset" else {"runPolicy": {"suspend": True}}
        self.put(self.kind, {"metadata": meta, "spec": {**self.spec(2), **suspended}})
        self.settle(self.key)
        self.let_in(self.workload["metadata"]["name"])
        self.settle(self.key)

    @property
    def job(self) -> Body:
        """The job."""
        found = self.get(self.kind, "team/train")
        assert found is not None
        return found

    @property
    def runs(self) -> bool:
        """Whether it is not suspended."""
        spec = self.job["spec"]
        return not spec.get("suspend") and not spec.get("runPolicy", {}).get("suspend")

    def scale(self, workers: int) -> None:
        """Another number of workers, as its user or an autoscaler writes it; the templates stay."""
        body, wanted = self.job, self.spec(workers)
        for field, value in wanted.items():
            if field == "replicatedJobs":
                numbers = {key: value[0]["template"]["spec"][key] for key in ("parallelism", "completions")}
                body["spec"][field][0]["template"]["spec"] |= numbers
            elif field.endswith("ReplicaSpecs"):
                for name, entry in value.items():
                    body["spec"][field][name]["replicas"] = entry["replicas"]
        self.put(self.kind, body)
        self.settle(self.key)


@pytest.fixture(params=list(KINDS))
def growing(request: pytest.FixtureRequest) -> Growing:
    """One that runs."""
    found = Growing(request.param)
    assert list(found.slices().values()) == [2]
    assert found.runs
    return found


def test_growth_is_a_second_slice_that_takes_the_place_of_the_first(growing: Growing) -> None:
    """The job runs on meanwhile, and is charged for the workers that it has, not for those that it may get."""
    (first,) = growing.slices()
    growing.scale(4)
    assert sorted(growing.slices().values()) == [2, 4]
    assert growing.runs
    (second,) = set(growing.slices()) - {first}
    growing.let_in(second)
    growing.settle(growing.key)
    assert growing.slices() == {second: 4}
    assert growing.runs


def test_two_growths_in_a_row_leave_one_slice_that_waits(growing: Growing) -> None:
    """It asks for the latest number."""
    growing.scale(3)
    growing.scale(6)
    assert sorted(growing.slices().values()) == [2, 6]


def test_a_pod_set_grows_while_another_one_shrinks() -> None:
    """That is growth: the first slice stays as it is until the next one is admitted."""
    growing = Growing("tfjob")
    (first,) = growing.slices()
    growing.scale(3)
    assert sorted(growing.slices(0).values()) == [1, 2]
    assert sorted(growing.slices(1).values()) == [2, 3]
    assert growing.slices(0)[first] == 2


def test_gates_are_lifted_within_the_charge_of_the_current_slice(growing: Growing) -> None:
    """Of workers that the kind's controller has made already."""
    (first,) = growing.slices()
    owner = {
        "apiVersion": f"{growing.kind.GROUP}/{growing.kind.VERSION}",
        "kind": growing.kind.KIND,
        "name": "train",
        "uid": growing.job["metadata"]["uid"],
        "controller": True,
    }
    pod_set = growing.workload["spec"]["podSets"][-1]["name"]
    for index in range(4):
        meta = {
            "name": f"w{index}",
            "namespace": "team",
            "labels": {names.PODSET_LABEL: pod_set},
            "annotations": {names.WORKLOAD: first, names.SLICE_NAME: first},
            "ownerReferences": [owner],
        }
        growing.put(Pod, {"metadata": meta, "spec": GATED["spec"], "status": {"phase": "Pending"}})
    growing.scale(4)
    workload = growing.world.workloads.get(f"team/{first}")
    assert workload is not None
    decision = heldpods.lift(workload, growing.world)
    assert decision is not None
    assert len(decision.actions) == 2


def test_a_template_that_loses_its_gate_has_the_job_stopped_when_it_grows(growing: Growing) -> None:
    """Its new pods would run before there is quota for them. It starts again with the gate."""
    body = growing.job
    for template in _templates(body["spec"]):
        template["spec"].pop("schedulingGates", None)
    growing.put(growing.kind, body)
    growing.settle(growing.key)
    growing.scale(4)
    assert "Stopped" in [reason for reason, _ in growing.events]


def test_an_eviction_ends_the_growth_and_stops_the_job(growing: Growing) -> None:
    """The chain is one job: nothing of it runs on."""
    (first,) = growing.slices()
    growing.scale(4)
    at = {"status": "True", "reason": "Preempted", "message": "", "lastTransitionTime": "2026-01-02T03:05:00Z"}
    found = growing.get(Workload, f"team/{first}")
    assert found is not None
    conditions = [*found["status"]["conditions"], {"type": "Evicted", **at}]
    growing.patch(Workload, f"team/{first}", {"status": {"conditions": conditions}})
    growing.settle(growing.key)
    assert not growing.runs


def _templates(spec: Body) -> list[Body]:
    jobs = [each["template"]["spec"]["template"] for each in spec.get("replicatedJobs", [])]
    maps = [value for field, value in spec.items() if field.endswith("ReplicaSpecs")]
    return jobs + [entry["template"] for each in maps for entry in each.values()]
