"""Requests of a Tekton pipeline's tasks at a time, computed from the pipeline that is embedded in a PipelineRun.

Tasks start when those that they depend on have ended, and `finally` tasks when all others have. So tasks are put into
levels, a task one level above the highest task that it names in `runAfter` or by a result, and the most that any level
requests of a resource is what the run needs. Tasks of two levels may run together all the same; then pods wait, because
what is computed here is reserved, and pods are started within it (`turnstile.controllers.jobs.shared`). So a task whose
requests are not in the object (it refers to a Task, or its matrix to results of other tasks) only counts as one pod.

Requests of a task are the sum over its steps and sidecars, as for containers of a pod. Must never read another object.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, Final, NamedTuple

import msgspec

from turnstile.api.meta import Object, tolerating_nulls
from turnstile.api.pods import Quantity, ResourceRequirements
from turnstile.api.quantity import from_int, to_int

_RESULT: Final = re.compile(rb"\$\(tasks\.([A-Za-z0-9_-]+)\.")
Amounts = dict[str, int]


class _Container(Object):
    name: str = ""
    compute_resources: ResourceRequirements | None = None

    @property
    def requests(self) -> dict[str, Quantity]:
        return _requests(self.compute_resources)


class _TaskSpec(Object):
    steps: list[_Container] = []
    sidecars: list[_Container] = []
    step_template: _Container | None = None


class _Parameter(Object):
    name: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Matrix(Object):
    params: list[_Parameter] = []
    include: list[msgspec.Raw] = []


class _Task(Object):
    name: str = ""
    task_spec: _TaskSpec | None = None
    run_after: list[str] = []
    matrix: _Matrix | None = None


class _Pipeline(Object):
    tasks: list[msgspec.Raw] = []
    finally_: list[msgspec.Raw] = msgspec.field(default_factory=list, name="finally")


class TaskOverrides(Object):
    """An entry of `spec.taskRunSpecs`: what a PipelineRun changes of a task."""

    pipeline_task_name: str = ""
    compute_resources: ResourceRequirements | None = None
    step_specs: list[_Container] = []
    sidecar_specs: list[_Container] = []


class Need(NamedTuple):
    """Needs of tasks at a time: amounts by resource (in units of `turnstile.api.quantity`), and a number of pods."""

    amounts: Amounts
    pods: int

    @property
    def requests(self) -> dict[str, str]:
        """The amounts as quantities."""
        return {name: from_int(name, amount) for name, amount in sorted(self.amounts.items()) if amount}


_decode: Final[Callable[[msgspec.Raw], _Pipeline]] = tolerating_nulls(msgspec.json.Decoder(_Pipeline).decode)
_decode_task: Final[Callable[[msgspec.Raw], _Task]] = tolerating_nulls(msgspec.json.Decoder(_Task).decode)
_decode_any: Final = msgspec.json.Decoder().decode


def need_of(pipeline: msgspec.Raw, overrides: Iterable[TaskOverrides]) -> Need:
    """Needs of an embedded pipeline (JSON of a `pipelineSpec`). Raises msgspec.ValidationError and InvalidValue."""
    decoded = _decode(pipeline)
    changed = {each.pipeline_task_name: each for each in overrides}
    tasks = [(_decode_task(raw), frozenset(name.decode() for name in _RESULT.findall(raw))) for raw in decoded.tasks]
    last = [_decode_task(raw) for raw in decoded.finally_]
    levels = [[_need(task, changed.get(task.name)) for task in level] for level in (*_levels(tasks), last)]
    totals = [Need(_sum(each.amounts for each in level), sum(each.pods for each in level)) for level in levels]
    most: Amounts = {}
    for total in totals:
        for name, amount in total.amounts.items():
            most[name] = max(amount, most.get(name, 0))
    return Need(most, max((each.pods for each in totals), default=0))


def _levels(tasks: list[tuple[_Task, frozenset[str]]]) -> list[list[_Task]]:
    """The tasks by level. Tekton refuses tasks that depend on each other in a circle; here they are the last level."""
    after = {task.name: {*task.run_after, *named} - {task.name} for task, named in tasks}
    rest = [task for task, _ in tasks]
    levels: list[list[_Task]] = []
    while rest:
        waiting = {task.name for task in rest}
        level = [task for task in rest if not after[task.name] & waiting] or rest
        levels.append(level)
        rest = [task for task in rest if task not in level]
    return levels


def _need(task: _Task, overrides: TaskOverrides | None) -> Need:
    """Requests of one task's pods, all those of its matrix together."""
    pods = _combinations(task.matrix) if task.matrix is not None else 1
    spec = task.task_spec or _TaskSpec()
    changed = overrides or TaskOverrides()
    template = spec.step_template.compute_resources if spec.step_template is not None else None
    if changed.compute_resources is not None:
        steps = [_requests(changed.compute_resources)]
    else:
        other = {each.name: each for each in changed.step_specs}
        steps = [_requests(template, each.compute_resources, _resources(other.get(each.name))) for each in spec.steps]
    other = {each.name: each for each in changed.sidecar_specs}
    sidecars = [_requests(each.compute_resources, _resources(other.get(each.name))) for each in spec.sidecars]
    one = _sum({name: to_int(name, value) for name, value in each.items()} for each in (*steps, *sidecars))
    return Need({name: amount * pods for name, amount in one.items()}, pods)


def _combinations(matrix: _Matrix) -> int:
    """The pods of a matrix; an array that is not written out counts as one value."""
    values: list[Any] = [_decode_any(each.value) for each in matrix.params]
    product = prod(len(value) if isinstance(value, list) else 1 for value in values)
    return max(product if values else 0, 0) + len(matrix.include) or 1


def _resources(container: _Container | None) -> ResourceRequirements | None:
    return container.compute_resources if container is not None else None


def _requests(*layers: ResourceRequirements | None) -> dict[str, Quantity]:
    """Requests of a container; later layers take precedence. A limit counts where nothing is requested."""
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}
    for layer in layers:
        if layer is not None:
            limits |= layer.limits
            requests |= layer.requests
    return limits | requests


def _sum(parts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total
