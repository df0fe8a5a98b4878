"""ray.io RayService: suspended by `spec.rayClusterConfig.suspend`, the pod sets of one RayCluster.

KubeRay upgrades a running RayService by a second RayCluster, which no Workload is charged for: a change of
`rayClusterConfig` suspends the RayService instead, so that KubeRay changes the RayCluster that there is. Source:
Kueue's pkg/controller/jobs/rayservice.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from turnstile.api.meta import Kind, Object
from turnstile.api.remembered import remembered
from turnstile.jobs.bases.templated import JobCondition
from turnstile.jobs.integration import Handling, Outcome, Right
from turnstile.jobs.kinds.ray.base import OPERATOR, RAY, ClusterSpec, WorkerGroup
from turnstile.jobs.kinds.ray.owner import RayOwner
from turnstile.jobs.remote import RemoteCopies

_decode_cluster: Final[Callable[[bytes], ClusterSpec]] = msgspec.json.Decoder(ClusterSpec).decode


class _Spec(Object):
    managed_by: str | None = None
    ray_cluster_config: msgspec.Raw = msgspec.Raw(b"{}")


class _ServiceStatus(Object):
    ray_cluster_name: str = ""


class _Status(Object):
    conditions: list[JobCondition] = []
    active_service_status: _ServiceStatus = msgspec.field(default_factory=_ServiceStatus)
    pending_service_status: _ServiceStatus = msgspec.field(default_factory=_ServiceStatus)


class RayService(Kind):
    """The fields of a RayService that are read. All fields of its RayCluster are compared, so the spec stays JSON."""

    GROUP: ClassVar = RAY
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "RayService"
    PLURAL: ClassVar = "rayservices"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class RayServices(RayOwner[RayService]):
    """Kueue's `ray.io/rayservice`."""

    kind = RayService
    framework = "ray.io/rayservice"
    summary = "suspended; a pod set for the head and for each worker group"
    handling = Handling(serves=True)
    makes = frozenset({(RAY, "RayCluster")})
    copies = RemoteCopies[RayService](lambda job: job.spec.managed_by, native=OPERATOR)
    rights = (Right("rayservices/status", ("patch",)),)  # of a copy on another cluster
    suspend_path = ("spec", "rayClusterConfig", "suspend")
    cluster_path = ("spec", "rayClusterConfig")
    cluster_field = "spec.rayClusterSpec"

    def cluster(self, job: RayService) -> ClusterSpec:
        """`spec.rayClusterConfig`."""
        return _cluster(bytes(job.spec.ray_cluster_config))

    def cluster_name(self, job: RayService) -> str:
        """The RayCluster that serves, else the one that is to serve."""
        return job.status.active_service_status.ray_cluster_name or job.status.pending_service_status.ray_cluster_name

    def with_sizes(self, job: RayService, groups: Mapping[str, WorkerGroup]) -> RayService:
        """The RayService with other sizes in `spec.rayClusterConfig`."""
        config = msgspec.json.decode(bytes(job.spec.ray_cluster_config))
        for each in config.get("workerGroupSpecs") or ():
            if (group := groups.get(each.get("groupName", ""))) is not None:
                each |= {
                    "replicas": group.replicas,
                    "minReplicas": group.min_replicas,
                    "numOfHosts": group.num_of_hosts,
                }
        return replace(job, spec=replace(job.spec, ray_cluster_config=msgspec.Raw(msgspec.json.encode(config))))

    def suspended(self, job: RayService) -> bool:
        """Whether `spec.rayClusterConfig.suspend` is set."""
        return bool(self.cluster(job).suspend)

    def outgrown(self, old: RayService, new: RayService) -> bool:
        """Whether anything of the RayCluster's spec differs: KubeRay would make a second RayCluster."""
        return _plain(old) != _plain(new)

    def active(self, job: RayService) -> bool:
        """Whether it serves and is not suspended; whether its RayClusters have pods, they report themselves."""
        return not self.suspended(job) and self.pods_ready(job)

    def finished(self, job: RayService) -> Outcome | None:
        """Always None: a RayService runs until it is deleted."""
        return None

    def pods_ready(self, job: RayService) -> bool:
        """Whether the condition `Ready` is True."""
        return any(each.type == "Ready" and each.status == "True" for each in job.status.conditions)

    def significant(self, job: RayService) -> tuple[object, ...]:
        """The spec, the name of its RayCluster, and whether it serves."""
        return job.spec, self.cluster_name(job), self.active(job)


@remembered()
def _cluster(config: bytes) -> ClusterSpec:
    """The spec in its JSON, which a RayService of a namespace that is not managed is cached without."""
    return _decode_cluster(config) if config else ClusterSpec()


def _plain(job: RayService) -> dict[str, Any]:
    """The RayCluster's spec, without whether it is suspended."""
    found: dict[str, Any] = msgspec.json.decode(bytes(job.spec.ray_cluster_config))
    found.pop("suspend", None)
    return found
