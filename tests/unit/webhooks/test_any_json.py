"""Whatever JSON comes in a review, a handler answers: it never raises, and a validating one never changes anything."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.jobs.subjects import REGISTRY
from tests.unit.webhooks.reviews import Cluster, Json, job, owned_by, pod, request
from turnstile.api import names
from turnstile.webhooks.review import Malformed, read, write
from turnstile.webhooks.routes import routes

PATHS = routes(Cluster(default_queue_in=("team-a",), has_default_priority_class=True, registry=REGISTRY))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def quota() -> Json:
    """A resource group."""
    resources = [{"name": "cpu", "nominalQuota": "10", "borrowingLimit": 5, "lendingLimit": "1"}]
    return {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": resources}]}


def rays(template: Json) -> dict[str, Json]:
    """The specs of Ray's kinds."""
    cluster = {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"resources": {"requests": {"cpu": "1"}}},
        "gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [
            {"groupName": "a", "replicas": 2, "maxReplicas": 4, "numOfHosts": 2, "template": template}
        ],
    }
    return {
        "RayCluster": cluster,
        "RayJob": {"rayClusterSpec": cluster, "submissionMode": "K8sJobMode", "shutdownAfterJobFinishes": True},
        "RayService": {"rayClusterConfig": cluster},
    }


def seeds() -> dict[str, Json]:
    """A rich valid object a kind; the mutator starts here."""
    annotations = {
        names.ADMISSION_GATED_BY: "acme.io/a",
        names.JOB_MIN_PARALLELISM: "1",
        names.POD_GROUP_TOTAL_COUNT: "2",
        "kueue.x-k8s.io/podset-slice-required-topology-constraints": '[{"topology":"a/b","size":1}]',
    }
    labels = {names.QUEUE_LABEL: "main", names.MAX_EXEC_TIME_LABEL: "5", names.POD_GROUP_NAME: "g"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    condition = {"type": "QuotaReserved", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    ours = {"apiVersion": names.API_VERSION, "metadata": {"name": "x", "finalizers": ["a/b"]}}
    return {
        "job": job(labels=labels, annotations=annotations, owner=owned_by("CronJob", "c"), suspend=False),
        "pod": pod(labels=labels, annotations=annotations, schedulingGates=[{"name": "g"}], tolerations=[{"key": "a"}]),
        "deployment": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {"template": template},
            "status": {"readyReplicas": 1},
        },
        "statefulset": {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {"replicas": 2, "template": template},
            "status": {"replicas": 1, "readyReplicas": 1},
        },
        "leaderworkerset": {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {
                "replicas": 2,
                "leaderWorkerTemplate": {"size": 2, "leaderTemplate": template, "workerTemplate": template},
            },
            "status": {"replicas": 1, "readyReplicas": 1},
        },
        "jobset": {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": {"template": template}}}]},
        },
        "inferenceservice": {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "status": {"conditions": [{"type": "PredictorReady", "status": "True"}]},
        },
        "notebook": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "Notebook",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "status": {"readyReplicas": 1},
        },
        "pipelinerun": {
            "apiVersion": "tekton.dev/v1",
            "kind": "PipelineRun",
            "metadata": {
                "name": "x",
                "labels": labels,
                "annotations": {**annotations, "kueue.konflux-ci.dev/requests-cpu": "1"},
            },
            "spec": {"pipelineSpec": {"tasks": [{"name": "a"}]}, "workspaces": [{"name": "a"}]},
            "status": {"startTime": "2026-01-02T03:04:05Z", "conditions": [{"type": "Succeeded", "status": "True"}]},
        },
        "appwrapper": {
            "apiVersion": "workload.codeflare.dev/v1beta2",
            "kind": "AppWrapper",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {
                "components": [
                    {
                        "podSets": [{"path": "template.spec.template", "replicas": 2}],
                        "podSetInfos": [{"labels": {"a": "b"}}],
                        "template": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}},
                    },
                    {"template": {"apiVersion": "v1", "kind": "Pod", **template}},
                ]
            },
            "status": {"phase": "Running", "conditions": [condition]},
        },
        **{
            kind.lower(): {
                "apiVersion": version,
                "kind": kind,
                "metadata": {"name": "x", "labels": labels, "annotations": annotations},
                "spec": {
                    "runPolicy": {"suspend": False, "schedulingPolicy": {"priorityClass": "p"}},
                    replicas: {"Worker": {"replicas": 2, "template": template}},
                },
                "status": {"conditions": [condition], "replicaStatuses": {"Worker": {"active": 1}}},
            }
            for kind, version, replicas in (
                ("PyTorchJob", "kubeflow.org/v1", "pytorchReplicaSpecs"),
                ("TFJob", "kubeflow.org/v1", "tfReplicaSpecs"),
                ("XGBoostJob", "kubeflow.org/v1", "xgbReplicaSpecs"),
                ("PaddleJob", "kubeflow.org/v1", "paddleReplicaSpecs"),
                ("JAXJob", "kubeflow.org/v1", "jaxReplicaSpecs"),
                ("MPIJob", "kubeflow.org/v2beta1", "mpiReplicaSpecs"),
            )
        },
        "trainjob": {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {
                "suspend": False,
                "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
                "runtimePatches": [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {}}}],
            },
            "status": {"conditions": [condition], "jobsStatus": [{"name": "node", "active": 1, "ready": 1}]},
        },
        "sparkapplication": {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {
                "type": "Python",
                "mode": "cluster",
                "sparkConf": {"spark.executor.cores": "2", "spark.memory.offHeap.enabled": "true"},
                "volumes": [{"name": "v"}],
                "driver": {"memory": "1g", "template": template, "volumeMounts": [{"name": "v"}]},
                "executor": {"instances": 2, "sidecars": template["spec"]["containers"], "gpu": {"name": "a/b"}},
                "dynamicAllocation": {"enabled": False},
            },
            "status": {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING"}},
        },
        **{
            kind.lower(): {
                "apiVersion": "ray.io/v1",
                "kind": kind,
                "metadata": {"name": "x", "labels": labels, "annotations": annotations},
                "spec": spec,
            }
            for kind, spec in rays(template).items()
        },
        "simulation": {
            "apiVersion": "example.com/v1",
            "kind": "Simulation",
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {
                "run": {"suspend": False},
                "leader": {"template": template},
                "groups": [{"name": "a", "replicas": 2, "limit": 4, "template": template}],
                "managedBy": "example.com/operator",
            },
            "status": {"running": 1, "phase": "Busy", "conditions": [{"type": "Complete", "status": "False"}]},
        },
        "resourceflavor": {
            **ours,
            "kind": "ResourceFlavor",
            "spec": {
                "nodeLabels": {"a": "b"},
                "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
            },
        },
        "clusterqueue": {
            **ours,
            "kind": "ClusterQueue",
            "spec": {
                "cohortName": "all",
                "resourceGroups": [quota()],
                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}},
                "fairSharing": {"weight": "1"},
                "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["spot"]}]},
            },
        },
        "cohort": {**ours, "kind": "Cohort", "spec": {"parentName": "p", "resourceGroups": [quota()]}},
        "workload": {
            **ours,
            "kind": "Workload",
            "spec": {"podSets": [{"name": "main", "count": 2, "minCount": 1, "template": template}], "priority": 1},
            "status": {
                "conditions": [condition],
                "admission": {
                    "clusterQueue": "q",
                    "podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}}],
                },
                "reclaimablePods": [{"name": "main", "count": 1}],
                "admissionChecks": [
                    {"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "nodeSelector": {"a": "b"}}]}
                ],
            },
        },
    }


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        found += places(part, (*path, key))
    return found


@st.composite
def spoiled(draw: Callable[..., Any], seed: Json) -> Json:
    """The seed with up to three places replaced, taken out or doubled."""
    value = copy.deepcopy(seed)
    for _ in range(draw(st.integers(0, 3))):
        *parents, last = draw(st.sampled_from(places(value)))
        target = value
        for key in parents:
            target = target[key]
        match draw(st.sampled_from(("replace", "drop", "double"))):
            case "drop":
                del target[last]
            case "double" if isinstance(target, list):
                target.append(copy.deepcopy(target[last]))
            case _:
                target[last] = draw(json_values)
        if not places(value):
            break
    return value


@pytest.mark.parametrize("path", sorted(PATHS))
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_handler_answers_whatever_the_objects_are(path: str, data: st.DataObject) -> None:
    """Allowed, changed, refused or to be tried again; always an answer that can be written."""
    seed = seeds()[path.rsplit("-", 1)[1]]
    new, old = data.draw(spoiled(seed)), data.draw(st.none() | spoiled(seed))
    sub_resource = data.draw(st.sampled_from(["", "", "status"]))
    asked = request(new, old=old, sub_resource=sub_resource, seen_as=seed)
    answer = PATHS[path](asked)
    assert answer.code in {0, 400, 403, 500}
    assert bool(answer.code) == bool(answer.message)
    if path.startswith("/validate"):
        assert answer.patch is None
    assert json.loads(write(asked.uid, answer))["response"]["uid"] == asked.uid


@settings(max_examples=examples(60), deadline=None)
@given(body=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_a_body_is_a_review_or_malformed(body: bytes) -> None:
    """There is no third way out."""
    try:
        uid = read(body).uid
    except Malformed as error:
        uid = str(error)
    assert uid
