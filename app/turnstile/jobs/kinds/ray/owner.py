"""RayJobs and RayServices: KubeRay makes a RayCluster for each, which scales itself while it runs.

The autoscaler in the head pod changes the replicas of that RayCluster, and neither KubeRay nor the autoscaler changes
its owner. So a job that is elastic has the numbers of pods of its RayCluster as long as that runs; before and after, it
has its own. Must never write a number of pods.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final, TypeVar

from msgspec.structs import replace

from turnstile.api.meta import Kind
from turnstile.jobs.capabilities import AwaitedChildren, SizedByAnother
from turnstile.jobs.kinds.ray.base import RayKind, WorkerGroup
from turnstile.jobs.kinds.ray.cluster import RayCluster
from turnstile.jobs.labels import is_elastic

J = TypeVar("J", bound=Kind)

GENERATION: Final = "kueue.x-k8s.io/raycluster-generation"
"""The annotation in which Kueue notes the generation of the RayCluster. Here only a job as it is read has it."""


class RayOwner(RayKind[J], AwaitedChildren[J], SizedByAnother[J]):
    """A kind whose controller makes a RayCluster."""

    sizes_in = RayCluster
    stops_children: ClassVar[bool] = True

    @abstractmethod
    def cluster_name(self, job: J) -> str:
        """The name of the RayCluster, which KubeRay reports; empty if there is none."""

    @abstractmethod
    def with_sizes(self, job: J, groups: Mapping[str, WorkerGroup]) -> J:
        """The job with the numbers of pods of these worker groups, by name."""

    def sizes_name(self, job: J) -> str:
        """The RayCluster of an elastic job that runs and scales itself."""
        if not is_elastic(job.metadata) or self.suspended(job):
            return ""
        spec = self.cluster(job)
        return self.cluster_name(job) if spec is not None and spec.autoscaling else ""

    def sized(self, job: J, made: Kind) -> J:
        """The job with the worker groups' sizes of a RayCluster that runs, and its generation."""
        assert isinstance(made, RayCluster)
        if made.metadata.deletion_timestamp or made.spec.suspend:
            return job
        found = self.with_sizes(job, {each.group_name: each for each in made.spec.worker_group_specs})
        annotations = {**job.metadata.annotations, GENERATION: str(made.metadata.generation)}
        return replace(found, metadata=replace(job.metadata, annotations=annotations))

    def revision(self, job: J) -> str:
        """The generation of the job, and that of its RayCluster, as in Kueue."""
        own, made = super().revision(job), job.metadata.annotations.get(GENERATION)
        return f"{own}_{made}" if made else own
