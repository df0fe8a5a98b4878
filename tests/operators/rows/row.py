"""What the table of kinds needs to know of each job kind: how its jobs are made, found, played and ended.

A row is data and a few functions; the tests that run it are in `test_kinds.py` and `test_kind_attacks.py`. A row must
never depend on how Turnstile handles its kind.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.client import Json, resource_path
from tests.cluster.scenario import GROUP, Scenario


def nothing_to_play(scenario: Scenario, name: str) -> None:
    """The operator and kwok do all that the job's processes would do."""


@dataclass(frozen=True)
class Attack:
    """What a tenant with the right to edit the job tries after its admission, to run more than was admitted.

    `sentence` is shown in the table of attacks. `act` runs against the admitted job of that name; an ApiError of the
    attempt itself means that the API server refused it, which is one of the three allowed answers (refused, charged,
    stopped).
    """

    sentence: str
    act: Callable[[Scenario, str], None]


@dataclass(frozen=True)
class Row:
    """A job kind with its operator.

    `make(scenario, name, queue, cpu)` returns the object as JSON: a job of `pods` pods, each of which requests `cpu`
    CPUs; an empty queue makes a job without the label. `owner_kind` is the kind of the objects that own its Workloads
    where that is not the job itself. `play` stands for the processes inside the pods: called repeatedly from admission
    on, it reports to the API server what they would report. `end` makes an admitted, running job finish; None for kinds
    that never finish (serving). `stand_in` says in a sentence what of the kind is played; empty if everything is real.
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
    workloads: int = 1
    owner_kind: str = ""
    stand_in: str = ""
    replaces_pods: bool = False
    """Whether stopped pods are replaced by gated ones, so that pods exist while the job waits."""
    attacks: tuple[Attack, ...] = field(default=())

    def path(self, scenario: Scenario, name: str) -> str:
        """URL path of the job."""
        return resource_path(self.api_version, self.plural, name, namespace=scenario.namespace)

    def pods_of(self, scenario: Scenario, name: str) -> list[Json]:
        """All pods of the job."""
        found = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
        return [pod for pod in found if self.select(pod, name)]

    def running(self, scenario: Scenario, name: str) -> list[Json]:
        """The pods of the job that run."""
        return [pod for pod in self.pods_of(scenario, name) if pod["status"].get("phase") == "Running"]

    def workloads_of(self, scenario: Scenario, name: str) -> list[Json]:
        """The Workloads that the job, or a pod of the job, owns."""
        owners = {(self.kind, name)} | {("Pod", pod["metadata"]["name"]) for pod in self.pods_of(scenario, name)}
        return [
            workload
            for workload in scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))
            if any((each["kind"], each["name"]) in owners for each in workload["metadata"].get("ownerReferences", ()))
        ]
