"""Tekton Pipelines: PipelineRun, TaskRun and their like, of a controller and a webhook server.

Makes a TaskRun for each task of a PipelineRun, and a pod for each TaskRun. A step must say its command: what an image
would run by itself is asked of its registry. The webhooks give all kinds their defaults, validate and convert them.

The webhook server insists on an authority of its own. A second server of health probes has a fixed port and is edited
out; all others listen on 127.0.0.1 alone.
"""

from collections.abc import Mapping

from testbed.build import Edit
from testbed.client import Json
from testbed.operators.description import Operator, Places, Program

_MODULE = "github.com/tektoncd/pipeline"
_LIBRARY = "knative.dev/pkg"
_NAMESPACE = "tekton-pipelines"
_CRDS = (
    "customrun",
    "pipeline",
    "pipelinerun",
    "resolutionrequest",
    "stepaction",
    "task",
    "taskrun",
    "verificationpolicy",
)
_SETTINGS = (
    "defaults",
    "events",
    "feature-flags",
    "info",
    "leader-election-controller",
    "leader-election-webhook",
    "logging",
    "observability",
    "registry-cert",
    "spire",
    "tracing",
    "wait-exponential-backoff",
)
_IMAGES = (
    "entrypoint-image",
    "nop-image",
    "shell-image",
    "shell-image-win",
    "sidecarlogresults-image",
    "workingdirinit-image",
)


def _kustomization(_: Places) -> Json:
    rights = ("200-clusterrole", "200-role", "200-serviceaccount", "201-clusterrolebinding", "201-rolebinding")
    files = [
        "100-namespace/100-namespace",
        *rights,
        *(f"300-crds/300-{name}" for name in _CRDS),
        "500-webhooks",
        *(f"config-{name}" for name in _SETTINGS),
        "controller",
        "webhook",
    ]
    return {"resources": [f"{file}.yaml" for file in files]}


def _environment(places: Places) -> Mapping[str, str]:
    return {
        "SYSTEM_NAMESPACE": _NAMESPACE,
        "POD_NAME": "testbed",
        "CONFIG_FEATURE_FLAGS_NAME": "feature-flags",
        "PROBES_PORT": str(places.health_port),
        "PROFILING_PORT": "0",
    }


def _probes(file: str, main: str) -> tuple[Edit, ...]:
    """Health probes of the program itself, and none of its library."""
    return (
        Edit(_MODULE, file, 'http.ListenAndServe(":"+port', 'http.ListenAndServe("127.0.0.1:"+port'),
        Edit(_MODULE, file, f"{main}ctx,", f"{main}sharedmain.WithHealthProbesDisabled(ctx),"),
    )


OPERATOR = Operator(
    name="tekton",
    module=_MODULE,
    package=f"{_MODULE}/cmd/controller",
    folder="config",
    kustomization=_kustomization,
    deployment="tekton-pipelines-controller",
    arguments=lambda _: ["-disable-ha", *(f"-{name}=registry.example/{name}:1" for name in _IMAGES)],
    environment=lambda places: {
        **_environment(places),
        "CONFIG_LEADERELECTION_NAME": "config-leader-election-controller",
    },
    ready="/readiness",
    beside=(
        Program(
            name="tekton-webhook",
            package=f"{_MODULE}/cmd/webhook",
            deployment="tekton-pipelines-webhook",
            arguments=lambda _: [],
            environment=lambda places: {
                **_environment(places),
                "CONFIG_LEADERELECTION_NAME": "config-leader-election-webhook",
                "WEBHOOK_PORT": str(places.webhook_port),
            },
            ready="/readiness",
        ),
    ),
    edits=(
        *_probes("cmd/controller/main.go", "sharedmain.MainWithConfig("),
        *_probes("cmd/webhook/main.go", "sharedmain.MainWithContext("),
        Edit(_LIBRARY, "webhook/webhook.go", 'fmt.Sprint(":", wh', 'fmt.Sprint("127.0.0.1:", wh'),
        Edit(_LIBRARY, "observability/runtime/pprof.go", 'Addr:    ":" + port', 'Addr: "127.0.0.1:" + port'),
    ),
    own_certificates=True,
)
