"""Which job kinds there are, and which of them are enabled: a value, built from the configuration and passed along.

A new kind is a module in `kinds` and a line in `ALL`. There is no global registry: two processes, or two tests, may
enable different kinds. Must never know which kinds the API server serves; `app.kube.caches` finds that out.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from app.api.meta import Kind, OwnerReference
from app.api.workload import Workload
from app.jobs.integration import Integration
from app.jobs.kinds.batch_job import BatchJob
from app.jobs.kinds.deployment import Deployments
from app.jobs.kinds.jobset import JobSets
from app.jobs.kinds.pod import PlainPod
from app.jobs.naming import group_of, job_key, owner_keys

ALL: Final[tuple[Integration[Any], ...]] = (
    BatchJob(),
    JobSets(),
    PlainPod(),
    Deployments(),
)


class Registry:
    """The job kinds of one process.

    `frameworks` names those that are enabled, None for all of `kinds`. `external` gives group and kind of owners that
    are managed elsewhere (Kueue's `externalFrameworks`): their children are not queued by themselves.
    """

    def __init__(
        self,
        frameworks: Collection[str] | None = None,
        *,
        kinds: Iterable[Integration[Any]] = ALL,
        external: Collection[tuple[str, str]] = (),
    ) -> None:
        known = {each.framework: each for each in kinds}
        named = set(known) if frameworks is None else {each for each in frameworks if each in known}
        for framework in sorted(named):
            for needed in known[framework].needs:
                if needed not in named and needed == PlainPod.framework:
                    known[needed] = PlainPod(parents_only=True)
                named.add(needed)
        self.known: Mapping[str, Integration[Any]] = known
        self.enabled: tuple[Integration[Any], ...] = tuple(each for each in known.values() if each.framework in named)
        self.external = frozenset(external)
        self._by_framework = {each.framework: each for each in self.enabled}
        self._by_kind = {(each.kind.GROUP, each.kind.KIND): each for each in self.enabled}
        self._frameworks = {key: each.framework for key, each in self._by_kind.items()}

    @property
    def watched(self) -> tuple[Integration[Any], ...]:
        """The enabled kinds whose jobs the reconciler handles."""
        return tuple(each for each in self.enabled if each.watched)

    def by_framework(self, framework: str) -> Integration[Any] | None:
        """The enabled integration of that name."""
        return self._by_framework.get(framework)

    def of(self, job: Kind) -> Integration[Any]:
        """The integration of a job. Raises KeyError if its kind is not enabled."""
        return self._by_kind[job.GROUP, job.KIND]

    def by_owner(self, owner: OwnerReference) -> Integration[Any] | None:
        """The enabled integration of an owner's kind, whatever its version; None if it is no such kind."""
        return self._by_kind.get((group_of(owner), owner.kind))

    def manages(self, owner: OwnerReference | None) -> bool:
        """Whether an owner is of an enabled or external kind."""
        return owner is not None and (self.is_external(owner) or self.by_owner(owner) is not None)

    def is_external(self, owner: OwnerReference) -> bool:
        """Whether an owner is of a kind that another controller manages."""
        return (group_of(owner), owner.kind) in self.external

    def key_of(self, job: Kind) -> str:
        """The key of a job for the work queue: `batch/job:team-a/train`."""
        return job_key(self.of(job).framework, job.metadata.namespace, job.metadata.name)

    def jobs_of(self, workload: Workload) -> list[str]:
        """Keys of the jobs that own a Workload, by name."""
        return list(owner_keys(workload, self._frameworks))
