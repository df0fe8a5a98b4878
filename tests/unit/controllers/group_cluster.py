"""Pods of one group, of two sizes, with the scheduler, the kubelet and the garbage collector around them."""

from datetime import timedelta
from typing import Any

from tests.unit.controllers.job_cluster import NOW, TEMPLATE, Body, Cluster
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.workload import Workload
from turnstile.jobs.options import JobOptions

GROUP = "pod:team/group/ring"
GATE = {"name": "kueue.x-k8s.io/admission"}
FINALIZER = "kueue.x-k8s.io/managed"


class GroupCluster(Cluster):
    """A namespace with the group `ring` of so many pods."""

    def __init__(self, *, total: int = 2, options: JobOptions | None = None) -> None:
        super().__init__(options=options)
        self.total = total
        self.flavor(nodeLabels={"pool": "a"}, tolerations=[{"key": "a", "operator": "Exists"}])

    def member(
        self, name: str, *, cpu: int = 1, held: bool = True, labels: Body | None = None, **annotations: str
    ) -> None:
        """A pod of the group as the webhook leaves it; annotations of Kueue's group by the end of their names."""
        given = {"pod_group_total_count": str(self.total), **annotations}
        container = {"name": "c", "image": name, "resources": {"requests": {"cpu": str(cpu)}}}
        meta = {
            "name": name,
            "namespace": "team",
            "creationTimestamp": f"2026-01-02T03:00:{len(self.pods):02}Z",
            "labels": {
                "kueue.x-k8s.io/queue-name": "main",
                "kueue.x-k8s.io/managed": "true",
                "kueue.x-k8s.io/pod-group-name": "ring",
                **(labels or {}),
            },
            "annotations": {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in given.items()},
            "finalizers": [FINALIZER],
        }
        spec = {**TEMPLATE["spec"], "containers": [container], "schedulingGates": [GATE] if held else []}
        self.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    @property
    def pods(self) -> dict[str, Body]:
        """All pods by name."""
        found = (self.get(Pod, key) for kind, key in self._bodies if kind is Pod)
        return {each["metadata"]["name"]: each for each in found if each is not None}

    def held(self) -> list[str]:
        """Names of pods with our gate."""
        return sorted(name for name, each in self.pods.items() if GATE in (each["spec"].get("schedulingGates") or []))

    def started(self) -> list[str]:
        """Names of pods without our gate that are not over and not being deleted."""
        return sorted(
            name
            for name, each in self.pods.items()
            if name not in self.held()
            and each["status"]["phase"] not in ("Succeeded", "Failed")
            and not each["metadata"].get("deletionTimestamp")
        )

    def admit_all(self) -> None:
        """The scheduler's write for all pod sets, of which `reclaimablePods` need nothing."""
        sets = self.workload["spec"]["podSets"]
        assignments = [{"name": s["name"], "flavors": {"cpu": "default"}, "count": s["count"]} for s in sets]
        admission = {"clusterQueue": "cq", "podSetAssignments": assignments}
        self.patch(Workload, self.workload_key, {"status": {"admission": admission}})
        for kind in ("QuotaReserved", "Admitted"):
            self.set_condition(kind)
        if self.condition("Evicted") is not None:
            self.set_condition("Evicted", status="False")

    def bind(self) -> None:
        """kube-scheduler and kubelets: what is not held runs."""
        for name in self.started():
            self.patch(Pod, f"team/{name}", {"spec": {"nodeName": "node"}, "status": {"phase": "Running"}})

    def end(self, name: str, phase: str) -> None:
        """A pod's containers end by themselves."""
        self.patch(Pod, f"team/{name}", {"status": {"phase": phase}})

    def kubelet_stops(self) -> None:
        """Containers of deleted pods end."""
        for name, each in self.pods.items():
            if each["metadata"].get("deletionTimestamp") and each["status"]["phase"] == "Running":
                self.end(name, "Failed")

    def collect(self) -> None:
        """The garbage collector: a Workload without a living owner is deleted."""
        uids = {each["metadata"]["uid"] for each in self.pods.values()}
        for workload in self.workloads:
            meta = workload["metadata"]
            owners = meta.get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                self.delete(Workload, f"team/{meta['name']}")

    def containers(self) -> list[int]:
        """CPU of each pod whose containers run: the kubelet kills those whose grace period is over."""
        return [
            int(each["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            for each in self.pods.values()
            if each["status"]["phase"] == "Running"
            and (instant(each["metadata"].get("deletionTimestamp")) or NOW + timedelta(days=9)) > self.now
        ]

    def leaving(self) -> list[str]:
        """Names of deleted pods that keep their places: nobody has reported their end, and twice their grace period is
        not over, because the clock of a node may be late."""
        return sorted(
            name
            for name, each in self.pods.items()
            if each["status"]["phase"] == "Running" and self._believed_to_run(each["metadata"])
        )

    def _believed_to_run(self, meta: Body) -> bool:
        end = instant(meta.get("deletionTimestamp"))
        return end is not None and self.now < end + timedelta(seconds=meta["deletionGracePeriodSeconds"])

    def charged(self) -> int:
        """CPU that the ClusterQueue counts as used."""
        return sum(_charge(workload) for workload in self.workloads)


def _charge(workload: Body) -> int:
    status: dict[str, Any] = workload.get("status") or {}
    true = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
    if "QuotaReserved" not in true or "Finished" in true:
        return 0
    done = {each["name"]: each["count"] for each in status.get("reclaimablePods") or ()}
    return sum(
        (each["count"] - done.get(each["name"], 0))
        * int(each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for each in workload["spec"]["podSets"]
    )
