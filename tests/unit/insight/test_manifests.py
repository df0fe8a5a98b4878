"""A manifest of a job becomes the Workloads that the controllers would create for it."""

from typing import Any

import msgspec
import pytest

from tests.cluster.scenario import Scenario
from tests.operators.rows import ROWS, Row
from tests.unit.engine import builders as b
from turnstile.api.core import Namespace, PriorityClass
from turnstile.api.errors import InvalidValue
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.insight.manifests import Composer
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry

NOT_TOLD = {
    "trainjob": "Trainer has not made the JobSet yet",
    "inferenceservice": "its controller decides on its pods",
    "notebook": "its controller decides on its pods",
}
"""Rows of jobs whose pods only their own controller knows."""


def composer(*objects: Any, **options: Any) -> Composer:
    """Of a cluster with a managed namespace and these objects."""
    snapshot = Snapshot()
    for each in (msgspec.convert({"metadata": {"name": "team", "labels": {"a": "b"}}}, Namespace), *objects):
        snapshot.put(each)
    return Composer(snapshot, Registry(), JobOptions(**options), b.NOW)


def job(*, queue: str = "main", **labels: str) -> dict[str, Any]:
    """A Job of two pods of a cpu."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    labels = {**({"kueue.x-k8s.io/queue-name": queue} if queue else {}), **labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "labels": labels},
        "spec": {"parallelism": 2, "template": template},
    }


def cpus(workload: Workload) -> list[tuple[int, str]]:
    """Count and cpus of a pod of each pod set."""
    found = []
    for pod_set in workload.spec.pod_sets:
        given = [each.resources for each in pod_set.template.spec.containers]
        asked = [each.requests.get("cpu") or each.limits.get("cpu") for each in given if each is not None]
        found.append((pod_set.count, str(asked[0])))
    return found


class TestEveryKind:
    """The manifests of the table of kinds."""

    @pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS if row.name != "cronjob"])
    def test_its_pods_are_those_of_the_job(self, row: Row) -> None:
        """As many Workloads and pods as the job has; or the reason why they cannot be told."""
        scenario = Scenario(None, "team")  # type: ignore[arg-type]
        objects = [each for each in row.objects(scenario, "train", "main", cpu="2") if composer().reads(each)]
        for each in objects:
            each["metadata"]["namespace"] = "team"
        if row.name in NOT_TOLD:
            with pytest.raises(InvalidValue, match=NOT_TOLD[row.name]):
                composer().workloads(objects, "f")
            return
        workloads = composer().workloads(objects, "f")
        assert len(workloads) == row.workloads
        told = [each for workload in workloads for each in cpus(workload)]
        if row.name != "pipelinerun":  # whose pods run one after the other
            assert sum(count for count, _ in told) == row.pods
            assert {amount for _, amount in told} == {"2"}
        assert {each.spec.queue_name for each in workloads} == {"main"}


class TestQueueAndPriority:
    """What the webhook and the reconciler add."""

    def made(self, manifest: dict[str, Any], *objects: Any, **options: Any) -> Workload:
        """The one Workload."""
        (workload,) = composer(*objects, **options).workloads([manifest], "f")
        return workload

    def test_the_default_queue(self) -> None:
        """Of a namespace that has one."""
        assert self.made(job(queue=""), b.local("default", "main")).spec.queue_name == "default"

    def test_the_priority_class_of_the_label(self) -> None:
        """Its value, and its name."""
        urgent = WorkloadPriorityClass(value=7)
        urgent.metadata.name = "urgent"
        spec = self.made(job(**{"kueue.x-k8s.io/priority-class": "urgent"}), urgent).spec
        assert spec.priority == 7
        assert spec.priority_class_ref is not None
        assert spec.priority_class_ref.name == "urgent"

    def test_the_global_default_of_pods(self) -> None:
        """Where nothing is named."""
        usual = PriorityClass(value=3, global_default=True)
        usual.metadata.name = "usual"
        assert self.made(job(), usual).spec.priority == 3

    def test_a_missing_priority_class(self) -> None:
        """No Workload is made without it."""
        with pytest.raises(InvalidValue, match='"urgent" not found: no Workload is made until then'):
            self.made(job(**{"kueue.x-k8s.io/priority-class": "urgent"}))

    def test_no_queue(self) -> None:
        """Is an error, unless jobs without a queue name are managed."""
        with pytest.raises(InvalidValue, match="name a LocalQueue in the label"):
            self.made(job(queue=""))
        assert self.made(job(queue=""), manage_jobs_without_queue_name=True).spec.queue_name is None

    def test_a_namespace_that_is_not_managed(self) -> None:
        """Its jobs get no Workload."""
        manifest = job()
        manifest["metadata"]["namespace"] = "kube-system"
        system = msgspec.convert(
            {"metadata": {"name": "kube-system", "labels": {"kubernetes.io/metadata.name": "kube-system"}}}, Namespace
        )
        with pytest.raises(InvalidValue, match="is not managed"):
            self.made(manifest, system)

    def test_a_kind_that_is_not_queued(self) -> None:
        """The error lists those that are."""
        with pytest.raises(InvalidValue, match=r"CronJob train.*use one of AppWrapper, "):
            self.made({**job(), "kind": "CronJob"})

    def test_a_field_of_another_type(self) -> None:
        """The error names the object and the field."""
        manifest = job()
        manifest["spec"]["parallelism"] = "two"
        with pytest.raises(InvalidValue, match=r"Job train.*parallelism"):
            self.made(manifest)
