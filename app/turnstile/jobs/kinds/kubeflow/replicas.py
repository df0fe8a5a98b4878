"""Jobs of Kubeflow's training operators: `spec.runPolicy.suspend`, and a map of replica types with a pod template each.

The operators make pods for every entry of the map, and read the known replica types in any case (`worker`, `WORKER`).
So each entry is a pod set: the known types first, in Kueue's order, then the others by name. Must never leave an entry
out that has a template. Source: Kueue's pkg/controller/jobs/kubeflow/kubeflowjob.

An operator says that a job is resumed when it has made the pods, which takes as long as the API server and its webhooks
take. Until then the condition `Suspended` is that of the time before the start. So the quota of a stopped job is kept
until the operator has said anew that the job is suspended. Kueue does not wait, and exceeds the quota then.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, TypeVar, cast

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.api.patch import JsonPatch
from turnstile.api.validation.errors import FieldError, duplicate, invalid
from turnstile.api.validation.labels import dns_label_faults
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import JobCondition, Template, TemplatedJob, acknowledged_anew, suspended_at
from turnstile.jobs.capabilities import AcknowledgedStops, Additions, Elastic, Importable
from turnstile.jobs.integration import Asked, Change, Handling, Right, Stop
from turnstile.jobs.podsets import PodSetInfo
from turnstile.jobs.remote import RemoteCopies
from turnstile.jobs.topologyrequest import REPLICA_INDEX, PodIndex

J = TypeVar("J", bound="ReplicaJob")

_RUNNING: Final = "Running"
_INDEX: Final = PodIndex(REPLICA_INDEX)


class ReplicaSpec(Object):
    """An entry of the map of replica types."""

    replicas: int | None = None
    template: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def count(self) -> int:
        """The number of pods; the operators default it to 1."""
        return 1 if self.replicas is None else self.replicas


class SchedulingPolicy(Object):
    """Requests of a job to a gang scheduler."""

    priority_class: str = ""


class RunPolicy(Object):
    """How the operator runs a job."""

    suspend: bool | None = None
    managed_by: str | None = None
    scheduling_policy: SchedulingPolicy | None = None


class ReplicaSpecs(Object):
    """The part of a spec that all kinds have. In the JSON of each kind the map of replica types has another name."""

    run_policy: RunPolicy | None = None
    replica_specs: dict[str, ReplicaSpec] = {}


class _ReplicaStatus(Object):
    active: int = 0
    succeeded: int = 0


class _Status(Object):
    conditions: list[JobCondition] = []
    replica_statuses: dict[str, _ReplicaStatus] = {}


class ReplicaJob(Kind):
    """The fields of such a job that are read; `replica_job` makes the struct of a kind."""

    GROUP: ClassVar = "kubeflow.org"
    VERSION: ClassVar = "v1"
    NAMESPACED: ClassVar = True
    HAS_TEMPLATES: ClassVar = True
    MAP_NAME: ClassVar[str]
    """Name of the map in the JSON of the spec: `pytorchReplicaSpecs`."""

    spec: ReplicaSpecs = msgspec.field(default_factory=ReplicaSpecs)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def run_policy(self) -> RunPolicy:
        """`spec.runPolicy`; an empty one if it is absent."""
        return self.spec.run_policy or RunPolicy()


def replica_job(
    kind: str, map_name: str, *, base: type[J], spec: type[ReplicaSpecs] = ReplicaSpecs, version: str = "v1"
) -> type[J]:
    """The struct of a kind whose map of replica types has this name in the JSON."""
    replicas: Any = msgspec.field(name=map_name, default_factory=dict)
    named = msgspec.defstruct(f"{kind}Spec", [("replica_specs", dict[str, ReplicaSpec], replicas)], bases=(spec,))
    constants = {"KIND": kind, "PLURAL": f"{kind.lower()}s", "VERSION": version, "MAP_NAME": map_name}
    fields = [("spec", named, msgspec.field(default_factory=named))]
    return cast(type[J], msgspec.defstruct(kind, fields, bases=(base,), namespace=constants))


class ReplicaJobs(TemplatedJob[J], AcknowledgedStops[J], Additions[J], Elastic[J], Importable[J]):
    """A kind whose pods are described by a map of replica types. `order`: the known replica types, in the order of the
    pod sets."""

    suspend_path = ("spec", "runPolicy", "suspend")
    success = "Succeeded"
    grows = True
    summary = "suspended; a pod set for each replica type"
    makes = frozenset({("", "Pod")})
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED})
    operator: ClassVar[str] = "kubeflow.org/training-operator"
    """The name in `spec.runPolicy.managedBy` if the kind's own operator runs the job."""

    def __init__(self, kind: type[J], order: Sequence[str], *, takes_prebuilt: bool = True) -> None:
        self.kind = kind
        self.framework = f"{kind.GROUP}/{kind.KIND.lower()}"
        self.handling = Handling(takes_prebuilt=takes_prebuilt)
        self.rights = (Right(f"{kind.PLURAL}/status", ("patch",)),)
        self.counts = {f"spec.{kind.MAP_NAME}.{known}.replicas": 1 for known in order}
        self._map_name = kind.MAP_NAME
        path = ("spec", "runPolicy", "managedBy")
        self.copies = RemoteCopies[Any](lambda job: job.run_policy.managed_by, native=self.operator, path=path)
        self._places: Mapping[str, int] = {known.lower(): place for place, known in enumerate(order)}

    def count(self, job: J, replica_type: str, spec: ReplicaSpec) -> int:
        """The largest number of pods of a replica type that the operator runs."""
        return spec.count

    def needed(self, job: J, replica_type: str, spec: ReplicaSpec) -> int:
        """The number of pods of a replica type without which the job cannot work."""
        return spec.count

    def templates(self, job: J) -> list[Template]:
        """One template for each entry of the map."""
        return [
            Template(
                replica_type,
                self.count(job, replica_type, spec),
                spec.template,
                ("spec", self._map_name, replica_type, "template"),
                shown=f"spec.{self._map_name}[{replica_type}].template",
                index=_INDEX,
            )
            for replica_type, spec in self._entries(job)
        ]

    def _entries(self, job: J) -> list[tuple[str, ReplicaSpec]]:
        entries, places = job.spec.replica_specs.items(), self._places
        return sorted(entries, key=lambda entry: (places.get(entry[0].lower(), len(places)), entry[0]))

    def create_errors(self, job: J) -> list[FieldError]:
        """Errors of replica types that cannot name a pod set, and those of each template's topology request."""
        return [*self._name_errors(job), *super().create_errors(job)]

    def _name_errors(self, job: J) -> Iterator[FieldError]:
        seen: set[str] = set()
        for replica_type, _ in self._entries(job):
            path, name = f"spec.{self._map_name}[{replica_type}]", replica_type.lower()
            for fault in dns_label_faults(name):
                yield invalid(path, replica_type, f"cannot name a pod set: {fault}")
            if name in seen:
                yield duplicate(path, replica_type)
            seen.add(name)

    def active(self, job: J) -> bool:
        """Whether the status counts active pods, or the operator has yet to see that the job is suspended.

        The operator sets the condition Suspended to False when it resumes a job, and to True once it has deleted the
        pods of a job that was suspended. Kueue only reads the counts, and may release the quota before that.
        """
        if any(each.active > 0 for each in job.status.replica_statuses.values()):
            return True
        return self.suspended(job) and any(
            (each.type, each.status) == ("Suspended", "False") for each in job.status.conditions
        )

    def stop(self, job: J, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Suspend and restore in one patch, after one of the status if the operator has not said that the job was
        resumed: the condition Suspended is removed, so that the operator writes it when it has read of the stop."""
        stop = super().stop(job, pod_sets, reason=reason, message=message, now=now)
        if not stop.announce or (index := suspended_at(job.status.conditions)) is None:
            return stop
        return acknowledged_anew(stop, JsonPatch().remove("status", "conditions", index))

    def acknowledged(self, job: J) -> bool:
        """Whether the condition Suspended is True, or another controller manages the job, which may not set it."""
        return suspended_at(job.status.conditions) is not None or job.run_policy.managed_by not in (None, self.operator)

    def mark_running(self, job: J, infos: Sequence[PodSetInfo]) -> Change | None:
        """Add the admission to the templates: the operator makes pods in the place of failed ones, and keeps those that
        run."""
        return self.marked(job, infos)

    def pods_ready(self, job: J) -> bool:
        """Whether the job runs, and of each replica type as many pods run or have succeeded as it needs.

        The training operator says that a job runs as soon as one pod runs; Kueue reads no more than that.
        """
        if not any(each.type == _RUNNING and each.status == "True" for each in job.status.conditions):
            return False
        up = {name.lower(): each.active + each.succeeded for name, each in job.status.replica_statuses.items()}
        return all(
            up.get(replica_type.lower(), 0) >= self.needed(job, replica_type, spec)
            for replica_type, spec in self._entries(job)
        )

    def significant(self, job: J) -> tuple[object, ...]:
        """The spec, the outcome, whether pods are active, and whether a stop was read."""
        return job.spec, self.finished(job), self.active(job), self.acknowledged(job)

    def priority_class_name(self, job: J) -> str | None:
        """The class that the scheduling policy names, else that of the first template that names one."""
        policy = job.run_policy.scheduling_policy
        return (policy.priority_class if policy is not None else "") or super().priority_class_name(job)
