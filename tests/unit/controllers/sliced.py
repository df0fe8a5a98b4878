"""Jobs that change their number of pods while they run, and the scheduler's part of it."""

from typing import Any

from tests.unit.controllers.job_cluster import Cluster
from turnstile.api import names
from turnstile.api.workload import Workload

Body = dict[str, Any]
ELASTIC = {names.ELASTIC_JOB: "true"}
GATE = {"name": names.ELASTIC_GATE}


class Sliced(Cluster):
    """A cluster with one flavor, in which a job has slices."""

    def __init__(self) -> None:
        super().__init__()
        self.flavor()

    def let_in(self, name: str) -> None:
        """The scheduler's write."""
        found = self.get(Workload, f"team/{name}")
        assert found is not None
        at = {"status": "True", "reason": "ByTest", "message": "", "lastTransitionTime": "2026-01-02T03:04:00Z"}
        assigned = [
            {"name": each["name"], "flavors": {"cpu": "default"}, "count": each["count"]}
            for each in found["spec"]["podSets"]
        ]
        conditions = [{"type": kind, **at} for kind in ("QuotaReserved", "Admitted")]
        admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
        self.patch(Workload, f"team/{name}", {"status": {"conditions": conditions, "admission": admission}})

    def slices(self, pod_set: int = -1) -> dict[str, int]:
        """The pods of a pod set that each unfinished slice is for, by name."""
        return {
            each["metadata"]["name"]: each["spec"]["podSets"][pod_set]["count"]
            for each in self.workloads
            if not any(c["type"] == "Finished" for c in each.get("status", {}).get("conditions", []))
        }
