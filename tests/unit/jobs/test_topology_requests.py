"""A Workload says which topology its pods ask for, and how the pods of each kind are numbered."""

from typing import Any

import pytest

from tests.unit.jobs.subjects import decode
from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.validation.errors import FieldError
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.appwrapper.wrapper import AppWrappers
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.jobset import JobSets
from turnstile.jobs.kinds.kubeflow.training import PYTORCH_JOBS
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSets
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.kinds.statefulset import StatefulSets
from turnstile.jobs.topologyrequest import (
    GROUP_NAME,
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED,
    SLICE_SIZE,
    UNCONSTRAINED,
    topology_errors,
    topology_request,
)

Json = dict[str, Any]
RACK = {REQUIRED: "example.com/rack"}
COMPLETION = "batch.kubernetes.io/job-completion-index"


def template(annotations: Json = RACK) -> Json:
    """A pod template with annotations."""
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def requests(kind: Integration[Any], spec: Json, annotations: Json | None = None) -> list[Json | None]:
    """The topology request of each pod set of a job."""
    body = {"metadata": {"name": "job", "namespace": "team-a", "annotations": annotations or {}}, "spec": spec}
    pod_sets = kind.pod_sets(decode(kind, body))
    return [each.body(topologies=True).get("topologyRequest") for each in pod_sets]


JOB_SET = {"replicatedJobs": [{"name": "a", "replicas": 3, "template": {"spec": {"template": template()}}}]}
WRAPPED_JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template()}}
WRAPPED_OTHER = {"apiVersion": "example.com/v1", "kind": "Other", "spec": {"template": template()}}
TAS = "workload.codeflare.dev.appwrapper/tas"
DECLARED = {
    "path": "template.spec.template",
    "annotations": {
        f"{TAS}-pod-index-label": "example.com/pod",
        f"{TAS}-sub-group-index-label": "example.com/group",
        f"{TAS}-sub-group-count": "2",
    },
}


@pytest.mark.parametrize(
    ("kind", "spec", "request_"),
    [
        (BatchJob(), {"template": template()}, {"podIndexLabel": COMPLETION}),
        (
            JobSets(),
            JOB_SET,
            {"podIndexLabel": COMPLETION, "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": 3},
        ),
        (
            PYTORCH_JOBS,
            {"pytorchReplicaSpecs": {"Worker": {"template": template()}}},
            {"podIndexLabel": "training.kubeflow.org/replica-index"},
        ),
        (StatefulSets(), {"replicas": 2, "template": template()}, {"podIndexLabel": "apps.kubernetes.io/pod-index"}),
        (
            LeaderWorkerSets(),
            {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}},
            {"podIndexLabel": "leaderworkerset.sigs.k8s.io/worker-index"},
        ),
        (AppWrappers([BatchJob()]), {"components": [{"template": WRAPPED_JOB}]}, {"podIndexLabel": COMPLETION}),
        (
            AppWrappers([BatchJob()]),
            {"components": [{"podSets": [DECLARED], "template": WRAPPED_OTHER}]},
            {"podIndexLabel": "example.com/pod", "subGroupIndexLabel": "example.com/group", "subGroupCount": 2},
        ),
    ],
    ids=["Job", "JobSet", "PyTorchJob", "StatefulSet", "LeaderWorkerSet", "wrapped Job", "declared"],
)
def test_a_kind_says_how_its_pods_are_numbered(kind: Integration[Any], spec: Json, request_: Json) -> None:
    """By the label that its controller gives each pod."""
    assert requests(kind, spec) == [{"required": "example.com/rack", **request_}]


def test_a_pod_asks_by_its_own_annotations() -> None:
    """Its Workload's template has no metadata."""
    spec = template()["spec"]
    found = requests(PlainPod(), spec, {PREFERRED: "example.com/block"})
    assert found == [{"preferred": "example.com/block", "podIndexLabel": names.POD_GROUP_POD_INDEX}]


def test_numbers_are_said_of_pods_that_ask_for_nothing() -> None:
    """Their flavor may have a topology."""
    assert requests(BatchJob(), {"template": template({})}) == [{"podIndexLabel": COMPLETION}]


def test_without_topologies_nothing_is_said() -> None:
    """As with the feature gate off."""
    spec = {"template": template()}
    (pod_set,) = BatchJob().pod_sets(decode(BatchJob(), {"metadata": {"name": "job"}, "spec": spec}))
    assert "topologyRequest" not in pod_set.body(topologies=False)


@pytest.mark.parametrize(
    "annotations",
    [
        {UNCONSTRAINED: "maybe"},
        {SLICE_REQUIRED: "example.com/rack", SLICE_SIZE: "0"},
        {SLICE_CONSTRAINTS: "[]"},
        {SLICE_CONSTRAINTS: "no list"},
    ],
)
def test_annotations_that_cannot_be_read_make_no_request(annotations: Json) -> None:
    """The webhook refuses them; a job that was created without it is not queued as if it asked for nothing."""
    with pytest.raises(PermanentError):
        topology_request(annotations, None)


class TestSlices:
    def errors(self, annotations: Json, pods: int) -> list[FieldError]:
        """The errors of a pod set."""
        return topology_errors(annotations, "metadata.annotations", count=pods)

    @pytest.mark.parametrize(
        "annotations",
        [
            {SLICE_REQUIRED: "example.com/rack", SLICE_SIZE: "4"},
            {SLICE_CONSTRAINTS: '[{"topology": "example.com/rack", "size": 4}]'},
        ],
        ids=["one layer", "layers"],
    )
    def test_slices_divide_the_pods(self, annotations: Json) -> None:
        """The pods of an incomplete slice would have no place."""
        assert self.errors(annotations, 8) == []
        assert [each.detail for each in self.errors(annotations, 6)] == ["must evenly divide the pod set's 6 pods"]


def test_a_group_has_two_pod_sets() -> None:
    """A third one would get no place; Kueue looks only at some kinds."""
    grouped = template({**RACK, GROUP_NAME: "all"})
    body = {"metadata": {"name": "job"}, "spec": {"pytorchReplicaSpecs": {}}}
    for replica_type in ("Master", "Worker", "Other"):
        body["spec"]["pytorchReplicaSpecs"][replica_type] = {"template": grouped}  # type: ignore[index]
    errors = PYTORCH_JOBS.create_errors(decode(PYTORCH_JOBS, body))
    assert {each.detail for each in errors} == {"can only define groups of exactly 2 pod sets, got: 3 pod set(s)"}
