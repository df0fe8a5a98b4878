"""What the table of kinds needs to know of each job kind: how its jobs are made, found, played and ended.

A row is data and a few functions; the tests that run it are in `test_kinds.py` and `test_kind_attacks.py`. A row must
never depend on how Turnstile handles its kind.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pytest
from _pytest.mark import ParameterSet

from testbed.client import Json, resource_path, wait_until
from tests.cluster.scenario import GROUP, QUEUE, RUN_FOR, Scenario

Answer = Literal["refused", "charged", "stopped"]
"""To an attack: the API server refused the request; at no time did pods of more than the quota run; pods of the job
were stopped, or such that ran without quota."""

PRIORITY: Final = "kueue.x-k8s.io/priority-class"


def nothing_to_play(scenario: Scenario, name: str) -> None:
    """The operator and kwok do all that the job's processes would do."""


def end_pods(select: Callable[[Json, str], bool]) -> Callable[[Scenario, str], None]:
    """A `Row.end` that lets the running pods of a job succeed."""

    def end(scenario: Scenario, name: str) -> None:
        for pod in scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace)):
            if select(pod, name) and pod["status"].get("phase") == "Running":
                scenario.api.patch(scenario.api.path_of({"apiVersion": "v1", "kind": "Pod", **pod}), _ENDED)

    return end


_ENDED: Final = {"metadata": {"annotations": {RUN_FOR: "0s"}}}


def labelled(key: str) -> Callable[[Json, str], bool]:
    """A `Row.select`: the pods whose label `key` is the name of the job."""
    return lambda pod, name: bool(pod["metadata"].get("labels", {}).get(key) == name)


def members(scenario: Scenario, label: str, name: str) -> list[Json]:
    """The pods whose label is the name of a job."""
    found = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
    return [each for each in found if each["metadata"].get("labels", {}).get(label) == name]


def gate_lifted(make: Callable[[Scenario, str, str, str], Json], label: str) -> Callable[[Scenario, str], None]:
    """An attack: the gate of a pod of a second job, which waits, is lifted by hand."""

    def act(scenario: Scenario, name: str) -> None:
        scenario.create(make(scenario, f"{name}-2", "main", "1"))
        found = wait_until(
            lambda: [each for each in members(scenario, label, f"{name}-2") if each["spec"].get("schedulingGates")],
            timeout=30,
            describe=lambda: f"{name}-2 has no gated pod",
        )
        path = resource_path("v1", "pods", found[0]["metadata"]["name"], namespace=scenario.namespace)
        scenario.api.patch(path, {"spec": {"schedulingGates": None}})

    return act


def metadata(scenario: Scenario, name: str, queue: str, **more: Json) -> Json:
    """The metadata of a job in a queue."""
    return {"name": name, "namespace": scenario.namespace, "labels": {QUEUE: queue} if queue else {}, **more}


def pod_spec(cpu: str, **more: Any) -> Json:
    """A pod of one container, which runs until it is deleted or ended."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": cpu}}}
    return {"restartPolicy": "Never", "containers": [container], **more}


def metadata_of(job: Json) -> Json:
    """The job's own metadata."""
    found: Json = job["metadata"]
    return found


def spec_without_suspend(job: Json) -> object:
    """The spec, without a suspend field at its top or in its run policy."""
    spec = {key: part for key, part in job["spec"].items() if key != "suspend"}
    if isinstance(policy := spec.get("runPolicy"), dict):
        spec["runPolicy"] = {key: part for key, part in policy.items() if key != "suspend"}
    return spec


@dataclass(frozen=True)
class Attack:
    """What a tenant with the right to edit the job tries after its admission, to run more than was admitted.

    `sentence` is shown in the table of attacks. `act` runs against the admitted job of that name; an ApiError of the
    attempt itself means that the API server refused it, which is one of the three allowed answers (refused, charged,
    stopped). `scenario` is the tenant's: its `api` calls as the tenant. `ends` is the answer; where two are true, the
    one that says more.
    """

    sentence: str
    act: Callable[[Scenario, str], None]
    ends: Answer


@dataclass(frozen=True)
class Row:
    """A job kind with its operator.

    `make(scenario, name, queue, cpu)` returns the object as JSON: a job of `pods` pods, each of which requests `cpu`
    CPUs; an empty queue makes a job without the label. A job of several objects is a `List` of them. `begin` is called
    once, right after they were created. `owner_kind` is the kind of the objects that own its Workloads where that is
    not the job itself: their names are the job's, or begin with it and a hyphen. `play` stands for the processes inside
    the pods: called repeatedly from admission on, it reports to the API server what they would report. `end` makes an
    admitted, running job finish; None for kinds that never finish (serving). `stand_in` says in a sentence what of the
    kind is played; empty if everything is real. Of several `operators` the first one defines the kind.
    """

    name: str
    api_version: str
    kind: str
    plural: str
    framework: str
    operators: tuple[str, ...]
    make: Callable[[Scenario, str, str, str], Json]
    pods: int
    select: Callable[[Json, str], bool]
    """Whether a pod belongs to the job of that name."""
    end: Callable[[Scenario, str], None] | None
    play: Callable[[Scenario, str], None] = nothing_to_play
    begin: Callable[[Scenario, str], None] = nothing_to_play
    workloads: int = 1
    owner_kind: str = ""
    told: str = ""
    """The kind for people, if the name of the kind is not enough."""
    stand_in: str = ""
    replaces_pods: bool = False
    """Whether stopped pods are replaced by gated ones, so that pods exist while the job waits."""
    beside: tuple[tuple[str, str], ...] = ()
    """Quota of other resources than CPUs, for the pods of all jobs of a test; none is charged by default."""
    queued_by_pod: bool = False
    """Whether each pod has a Workload of its own, so that a replaced pod is queued anew whatever stopped the last."""
    says_ready: bool = True
    """Whether the operator says that the pods are ready though no process runs in them."""
    runs_again: bool = True
    """Whether a stopped job runs again when it is admitted again; a stopped Pod is gone."""
    queued: Callable[[Json], Json] = metadata_of
    """The metadata of a manifest that names queue and priority class."""
    written: Callable[[Json], object] = spec_without_suspend
    """The part of the job that its user wrote, which is the same again after a stop."""
    attacks: tuple[Attack, ...] = field(default=())

    def path(self, scenario: Scenario, name: str) -> str:
        """URL path of the job."""
        return resource_path(self.api_version, self.plural, name, namespace=scenario.namespace)

    def objects(self, scenario: Scenario, name: str, queue: str, *, cpu: str = "1", priority: str = "") -> list[Json]:
        """The manifests of a job, with a WorkloadPriorityClass if one is named."""
        made = self.make(scenario, name, queue, cpu)
        found: list[Json] = made["items"] if made["kind"] == "List" else [made]
        for each in found if priority else ():
            self.queued(each).setdefault("labels", {})[PRIORITY] = priority
        return found

    def create(self, scenario: Scenario, name: str, queue: str, *, cpu: str = "1", priority: str = "") -> list[Json]:
        """Create a job; its objects as the API server stored them."""
        created = []
        for each in self.objects(scenario, name, queue, cpu=cpu, priority=priority):
            created.append(scenario.api.create_when_known(each, refusal="must be created before", timeout=10))
            scenario.made.append(each)
        self.begin(scenario, name)
        return created

    def pods_of(self, scenario: Scenario, name: str) -> list[Json]:
        """All pods of the job."""
        found = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
        return [pod for pod in found if self.select(pod, name)]

    def running(self, scenario: Scenario, name: str) -> list[Json]:
        """The pods of the job that run."""
        return [pod for pod in self.pods_of(scenario, name) if pod["status"].get("phase") == "Running"]

    def workloads_of(self, scenario: Scenario, name: str) -> list[Json]:
        """The Workloads that the job, or a pod of the job, owns."""
        pods = {pod["metadata"]["name"] for pod in self.pods_of(scenario, name)}
        kind = self.owner_kind or self.kind

        def owns(owner: Json) -> bool:
            if owner["kind"] == "Pod" and owner["name"] in pods:
                return True
            named = owner["name"] == name or (bool(self.owner_kind) and owner["name"].startswith(f"{name}-"))
            return bool(owner["kind"] == kind and named)

        return [
            workload
            for workload in scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))
            if any(owns(each) for each in workload["metadata"].get("ownerReferences", ()))
        ]

    @property
    def title(self) -> str:
        """The kind for people."""
        return self.told or self.kind

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """The operators that a test of the row needs."""
        return [pytest.mark.operator(name) for name in self.operators]

    @property
    def case(self) -> ParameterSet:
        """The row as a parameter of a test that runs with its operators."""
        return pytest.param(self, id=self.name, marks=self.marks)
