"""All that is known about one Workload that is sent to other clusters, as the decisions read it: values, no I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

import msgspec

from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, Object
from turnstile.api.workload import AdmissionCheckState, PodSet, Workload
from turnstile.kube.raws import STRIPPED

LABELS: Final = frozenset({names.MULTIKUEUE_ORIGIN, names.PREBUILT_WORKLOAD})
ANNOTATIONS: Final = frozenset({names.MULTIKUEUE_ORIGIN_UID, names.PREBUILT_WORKLOAD})
"""The labels and annotations of an object on a worker by which it is known as a copy. Others decide nothing."""
LONGEST: Final = 256
"""Characters that are held of one: more than any name and uid has, so that a longer one equals none."""
LONGEST_STATUS: Final = 16 << 10
"""Bytes of a copy's status that are held. A longer one is read from its worker when it is copied to the manager."""


def reduce(found: Kind) -> None:
    """Take out of an object of a worker the metadata that decides nothing, and a long status. Editors of its namespace
    there may write 256 KiB of annotations, as much of labels, and more of finalizers and owners, on each of any number
    of objects; the status of a workflow may name each of its thousands of steps."""
    meta = found.metadata
    meta.labels = {key: meta.labels[key][:LONGEST] for key in LABELS if key in meta.labels}
    meta.annotations = {key: meta.annotations[key][:LONGEST] for key in ANNOTATIONS if key in meta.annotations}
    meta.finalizers, meta.owner_references = (), ()
    if isinstance(found, RemoteJob) and len(memoryview(found.status)) > LONGEST_STATUS:
        found.status = STRIPPED


class RemoteSpec(Object):
    """The size of a job, of a kind that may change it on a worker cluster."""

    parallelism: int | None = None
    replicas: int | None = None


class RemoteJob(Kind):
    """A job on a worker cluster: its metadata, and its status as it is; `STRIPPED` in the place of a long one."""

    NAMESPACED: ClassVar = True

    status: msgspec.Raw = msgspec.Raw(b"{}")


class SizedRemoteJob(RemoteJob):
    """A job on a worker cluster, of a kind that may change its size there. The spec of another kind is not read: its
    fields may have these names and other types."""

    spec: RemoteSpec = msgspec.field(default_factory=RemoteSpec)


def remote_kind(kind: type[Kind], *, sized: bool = True) -> type[RemoteJob]:
    """The struct for jobs of a kind on worker clusters; with their size if it may change there."""
    constants = {name: getattr(kind, name) for name in ("GROUP", "VERSION", "KIND", "PLURAL", "GUESSED")}
    base = SizedRemoteJob if sized else RemoteJob
    return cast(type[RemoteJob], msgspec.defstruct(f"Remote{kind.KIND}", [], bases=(base,), namespace=constants))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """One worker cluster, and what it has of the Workload.

    `lost_seconds` is for how long the manager has not heard of it, if it is not `connected`. `lacks` is why it takes no
    jobs of this kind. `jobs` are the copies of the job's objects: of one, but for a group. `seen` is the place of the
    Workload in the order in which the manager saw Workloads admitted: the clocks of workers do not count.
    """

    connected: bool = True
    lost_seconds: float = 0.0
    lacks: str = ""
    taken: str = ""
    """Which object of the cluster's own has the name of the Workload or of its job; empty if none has."""
    workload: Workload | None = None
    jobs: Sequence[RemoteJob] = ()
    missing: Sequence[Kind] = ()
    """The objects of the manager's job that have no copy there, and are to have one."""
    strays: Sequence[RemoteJob] = ()
    """Copies of objects that the manager's job does not consist of any more."""
    shared: bool = False
    """Whether the copy there serves another Workload too."""
    size: Mapping[str, Any] | None = None
    """The part of the spec by which the copy has as many pods as the job; None if the copy keeps its size, or another
    Workload of the job decides about it."""
    seen: int = 0

    @property
    def holds(self) -> bool:
        """Whether quota of the cluster is held for the Workload: only when its pods are gone does it release that,
        whatever labels the copy has."""
        found = self.workload
        return found is not None and found.quota_reserved and not found.finished

    @property
    def jobs_left(self) -> Sequence[RemoteJob]:
        """The copies that are to be deleted when nothing of the Workload is to stay."""
        mine = self.strays if self.shared else (*self.jobs, *self.strays)
        return [each for each in mine if not each.metadata.deletion_timestamp]

    @property
    def admitted(self) -> bool:
        """Whether the Workload may run there."""
        found = self.workload
        return self.connected and found is not None and found.admitted and not (found.evicted or found.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A Workload on the manager with the state of its check, and all that the manager knows of it elsewhere."""

    workload: Workload
    check: AdmissionCheckState
    refusal: str = ""
    """Why the job cannot be sent to another cluster at all."""
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    """By the name of the MultiKueueCluster; those of the configuration and all that have something of the Workload."""
    nominees: Sequence[str] | None = None
    """The clusters to nominate now; None if another controller nominates."""
    follows: bool = True
    """Whether the job has the status of its copy."""
    job_waits: bool = False
    """Whether the job on the manager is suspended."""
    job_active: bool = False
    """Whether the copied status says that pods of the job run."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """The version of each copy whose status was copied, by the uid of the copy."""
    lost_limit: float = 900.0
    reports_in: float = 0.0
    """Seconds until the check may say again why no cluster has admitted the Workload."""
    give_up: float | None = None
    """Seconds until the Workload gives its quota back if no cluster admits it; None if never."""


@dataclass(frozen=True, slots=True)
class WorkerQueues:
    """The queues of one worker that is connected."""

    local_queues: Iterable[LocalQueue]
    cluster_queues: Iterable[ClusterQueue]


def is_ours(found: Kind | None, origin: str) -> bool:
    """Whether an object on a worker has the label of this manager. The label is the only proof of that."""
    return bool(origin) and found is not None and found.metadata.labels.get(names.MULTIKUEUE_ORIGIN) == origin


NOT_SAME: Final = "OutOfSync"
"""Why a worker finishes a Workload whose job there is another one."""


def counts_of(workload: Workload) -> dict[str, int]:
    """The numbers of pods of a Workload, by pod set."""
    return {each.name: each.count for each in workload.spec.pod_sets}


def same_spec(here: Workload, there: Workload, *, resized: bool = False) -> bool:
    """Whether the Workload on a worker is a copy of the one on the manager, apart from its priority; with `resized`,
    apart from its numbers of pods too."""
    mine, theirs = here.spec, there.spec
    if (mine.queue_name, mine.maximum_execution_time_seconds) != (
        theirs.queue_name,
        theirs.maximum_execution_time_seconds,
    ) or len(mine.pod_sets) != len(theirs.pod_sets):
        return False
    pairs = zip(mine.pod_sets, theirs.pod_sets, strict=True)
    return all(_pod_set(one) == _pod_set(other) and (resized or one.count == other.count) for one, other in pairs)


def same_priority(here: Workload, there: Workload) -> bool:
    """Whether both have the same priority and class."""
    mine, theirs = here.spec, there.spec
    return (mine.priority or 0, mine.priority_class_ref) == (theirs.priority or 0, theirs.priority_class_ref)


def _pod_set(value: PodSet) -> tuple[object, ...]:
    template = value.template
    shape = template.metadata, template.spec, value.containers_digest
    return value.name, value.min_count, value.topology_request, shape
