"""example.com Simulation: suspended by `spec.suspend`, `spec.workers` pods of one template."""

from typing import ClassVar

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import JobCondition, Template, TemplatedJob
from turnstile.jobs.integration import Asked


class _Spec(Object):
    suspend: bool | None = None
    workers: int = 1
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _Status(Object):
    conditions: list[JobCondition] = []  # noqa: RUF012 -- msgspec copies it for each struct
    active: int = 0
    ready: int = 0


class Simulation(Kind):
    """The fields of a Simulation that are read."""

    GROUP: ClassVar = "example.com"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Simulation"
    PLURAL: ClassVar = "simulations"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class Simulations(TemplatedJob[Simulation]):
    """`example.com/simulation`."""

    kind = Simulation
    framework = "example.com/simulation"
    summary = "suspended; one pod set"
    makes = frozenset({("", "Pod")})
    success = "Succeeded"
    counts: ClassVar = {"spec.workers": 1}
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED})

    def templates(self, job: Simulation) -> list[Template]:
        """One template, for all workers."""
        return [Template("main", job.spec.workers, job.spec.template, ("spec", "template"))]

    def active(self, job: Simulation) -> bool:
        """Whether the status counts any active worker."""
        return job.status.active > 0

    def pods_ready(self, job: Simulation) -> bool:
        """Whether every worker is ready."""
        return job.status.ready >= job.spec.workers

    def significant(self, job: Simulation) -> tuple[object, ...]:
        """The spec, the outcome, and whether pods are active."""
        return job.spec, self.finished(job), self.active(job)
