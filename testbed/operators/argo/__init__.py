"""The controller of Argo Workflows: Workflow and its like.

Makes a pod for each step of a Workflow and follows the pods' phases. No executor runs in the pods, so there are no
outputs and no `resource` templates: a test says in its place that the outputs of a step were reported (a
WorkflowTaskResult).

Its CRDs are the small ones of a release. The server of health probes has a fixed port, which is edited.
"""

import json

from testbed.build import Edit
from testbed.client import Json
from testbed.operators.description import Operator, Places

_MODULE = "github.com/argoproj/argo-workflows/v4"


def _kustomization(_: Places) -> Json:
    quiet = [{"op": "add", "path": "/data", "value": {"metricsConfig": "enabled: false\n"}}]
    return {
        "namespace": "argo",
        "resources": [
            "base/crds/minimal",
            "base/workflow-controller",
            "cluster-install-no-crds/workflow-controller-rbac",
        ],
        "patches": [
            {"target": {"kind": "ConfigMap", "name": "workflow-controller-configmap"}, "patch": json.dumps(quiet)}
        ],
    }


OPERATOR = Operator(
    name="argo",
    module=_MODULE,
    package=f"{_MODULE}/cmd/workflow-controller",
    folder="manifests",
    kustomization=_kustomization,
    arguments=lambda _: ["--executor-image=registry.example/argoexec:1"],
    environment=lambda places: {"LEADER_ELECTION_DISABLE": "true", "HEALTH_PORT": str(places.health_port)},
    ready="/healthz",
    edits=(
        Edit(
            _MODULE,
            "cmd/workflow-controller/main.go",
            'http.ListenAndServe(":6060", nil)',
            'http.ListenAndServe("127.0.0.1:"+os.Getenv("HEALTH_PORT"), nil)',
        ),
    ),
)
