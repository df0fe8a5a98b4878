"""A PipelineRun."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import Sample, moments

Json = dict[str, Any]


def _pods(body: Json) -> int:
    """At least the tasks that wait for no other task run at once."""
    tasks = body["spec"].get("pipelineSpec", {}).get("tasks", [])
    at_once = [each for each in tasks if not each.get("runAfter") and "params" not in each]
    return sum(len(each["matrix"]["params"][0]["value"]) if "matrix" in each else 1 for each in at_once)


PIPELINE: Final = moments(
    {},
    ("it is pending", {}, False),
    ("it has begun: its pods come and go with its tasks", {"startTime": "2026-01-01T00:00:00Z"}, True),
)

SAMPLES: Final = (
    Sample(
        framework="tekton.dev/pipelinerun",
        api_version="tekton.dev/v1",
        kind="PipelineRun",
        spec={"pipelineSpec": {"tasks": [{"name": "a"}]}, "workspaces": [{"name": "a"}]},
        status={"startTime": "2026-01-02T03:04:05Z", "conditions": [{"type": "Succeeded", "status": "True"}]},
        pods=_pods,
        moments=PIPELINE,
        annotations={"kueue.konflux-ci.dev/requests-cpu": "1"},
    ),
)
