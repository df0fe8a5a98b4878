"""An AppWrapper."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import (
    CONDITION,
    POD_TEMPLATE,
    Sample,
    moments,
    pods_at_a_time,
    true,
)

Json = dict[str, Any]


def _pods(body: Json) -> int:
    pods = 0
    for component in body["spec"]["components"]:
        wrapped = component["template"]
        spec = wrapped["spec"]
        match wrapped["kind"]:
            case "Job":
                pods += pods_at_a_time(spec)
            case "Pod":
                pods += 1
            case "Deployment":
                pods += spec.get("replicas", 1)
            case "JobSet":
                pods += sum(
                    each.get("replicas", 1) * pods_at_a_time(each["template"]["spec"])
                    for each in spec["replicatedJobs"]
                )
            case "Farm":
                pods += component["podSets"][0].get("replicas", 1)
    return pods


APP_WRAPPER: Final = moments(
    {"components": []},
    ("nothing is written yet", {}, False),
    ("its components are deployed", {"phase": "Running", **true("QuotaReserved", "ResourcesDeployed")}, False),
    ("its pods run or have succeeded", {"phase": "Running", **true("ResourcesDeployed", "PodsReady")}, True),
    ("it is reset", {"phase": "Resetting", **true("ResourcesDeployed", PodsReady="False")}, False),
)

SAMPLES: Final = (
    Sample(
        framework="workload.codeflare.dev/appwrapper",
        api_version="workload.codeflare.dev/v1beta2",
        kind="AppWrapper",
        spec={
            "components": [
                {
                    "podSets": [{"path": "template.spec.template", "replicas": 2}],
                    "podSetInfos": [{"labels": {"a": "b"}}],
                    "template": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": POD_TEMPLATE}},
                },
                {"template": {"apiVersion": "v1", "kind": "Pod", **POD_TEMPLATE}},
            ]
        },
        status={"phase": "Running", "conditions": [CONDITION]},
        pods=_pods,
        moments=APP_WRAPPER,
    ),
)
