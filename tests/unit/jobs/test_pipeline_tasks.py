"""What the tasks of an embedded pipeline need at a time."""

import json
from typing import Any

import msgspec
import pytest

from turnstile.jobs.kinds.pipelinerun.tasks import Need, TaskOverrides, need_of

Json = dict[str, Any]


def task(name: str, *steps: Json, **more: Any) -> Json:
    """A task whose steps have these requests."""
    return {"name": name, "taskSpec": {"steps": [{"computeResources": {"requests": each}} for each in steps]}, **more}


def need(*tasks: Json, last: tuple[Json, ...] = (), overrides: Json | None = None) -> Need:
    """What a pipeline of these tasks needs."""
    raw = msgspec.Raw(json.dumps({"tasks": tasks, "finally": last}).encode())
    changed = [msgspec.json.decode(json.dumps(overrides), type=TaskOverrides)] if overrides else []
    return need_of(raw, changed)


CPU = {"cpu": "1"}


@pytest.mark.parametrize(
    ("tasks", "cpu", "pods"),
    [
        ([], 0, 0),
        ([task("a", CPU, CPU)], 2000, 1),
        ([task("a", CPU), task("b", CPU)], 2000, 2),
        ([task("a", CPU), task("b", CPU, runAfter=["a"])], 1000, 1),
        ([task("a", CPU), task("b", CPU, params=[{"name": "x", "value": "$(tasks.a.results.y)"}])], 1000, 1),
        ([task("a", CPU), task("b", CPU, runAfter=["a"]), task("c", CPU, runAfter=["a"])], 2000, 2),
        ([task("a", CPU, matrix={"params": [{"name": "x", "value": ["1", "2"]}]})], 2000, 2),
        ([task("a", CPU, matrix={"params": [{"name": n, "value": ["1", "2"]} for n in "xy"]})], 4000, 4),
        ([task("a", CPU, matrix={"params": [{"name": "x", "value": "$(params.list[*])"}]})], 1000, 1),
        ([task("a", CPU, matrix={"include": [{"name": "one"}, {"name": "two"}]})], 2000, 2),
        ([task("a", CPU, runAfter=["b"]), task("b", CPU, runAfter=["a"])], 2000, 2),
        ([{"name": "a", "taskRef": {"name": "x"}}, task("b", CPU)], 1000, 2),
        ([{"name": "a", "taskSpec": {"steps": [{"ref": {"name": "x"}}]}}], 0, 1),
    ],
)
def test_the_largest_level_counts(tasks: list[Json], cpu: int, pods: int) -> None:
    """Tasks that do not name each other may run at once."""
    found = need(*tasks)
    assert (found.amounts.get("cpu", 0), found.pods) == (cpu, pods)


def test_finally_tasks_are_a_level_of_their_own() -> None:
    """The most of each resource counts, whichever level has it."""
    found = need(task("a", {"cpu": "2", "memory": "1Gi"}), last=(task("z", {"cpu": "1", "memory": "2Gi"}),))
    assert found.requests == {"cpu": "2", "memory": "2Gi"}


def test_sidecars_limits_and_the_step_template_count() -> None:
    """As they will in the pod."""
    spec = {
        "stepTemplate": {"computeResources": {"requests": {"cpu": "1"}}},
        "steps": [{}, {"computeResources": {"limits": {"cpu": "2"}}}, {"computeResources": {"requests": {"cpu": "3"}}}],
        "sidecars": [{"computeResources": {"limits": {"cpu": "500m"}}}],
    }
    assert need({"name": "a", "taskSpec": spec}).requests == {"cpu": "5500m"}


def test_a_run_may_change_requests_of_a_task() -> None:
    """Of a step by its name, or of all steps together."""
    steps = [{"name": "x", "computeResources": {"requests": CPU}}, {"name": "y"}]
    one = {"name": "a", "taskSpec": {"steps": steps}}
    of_step = {"pipelineTaskName": "a", "stepSpecs": [{"name": "y", "computeResources": {"requests": {"cpu": "2"}}}]}
    of_all = {"pipelineTaskName": "a", "computeResources": {"requests": {"cpu": "250m"}}}
    assert need(one, overrides=of_step).requests == {"cpu": "3"}
    assert need(one, overrides=of_all).requests == {"cpu": "250m"}
