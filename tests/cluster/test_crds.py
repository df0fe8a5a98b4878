"""The CRDs on a real API server: what they are called, show, fill in, drop and merge."""

import msgspec
import pytest

from testbed import Api, ControlPlane
from testbed.errors import ApiError
from tests.cluster.schema_server import API_VERSION, DEFINITIONS, thing, update
from tests.versions import at_least
from turnstile.api.clusterqueue import ClusterQueue, ClusterQueueSpec, ClusterQueueStatus, FlavorUsage, ResourceUsage
from turnstile.api.conditions import set_condition
from turnstile.api.quota import FairSharing, FairSharingStatus, FlavorQuotas, ResourceGroup, ResourceQuota
from turnstile.api.workload import (
    Admission,
    AdmissionCheckState,
    PodSetAssignment,
    SchedulingStats,
    Workload,
    WorkloadSchedulingStatsEviction,
    WorkloadStatus,
)

pytestmark = pytest.mark.cluster

TIME = "2026-01-02T03:04:05Z"
POD_SET = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}


WITHOUT_STATUS = {
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
}


def group(*flavors: str) -> dict[str, object]:
    """A resource group of cpu, with 1 of each flavor."""
    resources = [{"name": "cpu", "nominalQuota": "1"}]
    return {"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": resources} for name in flavors]}


class TestNames:
    """The kinds answer to Kueue's names."""

    @pytest.mark.parametrize(
        ("plural", "kind", "namespaced", "short"),
        [
            ("clusterqueues", "ClusterQueue", False, ["cq"]),
            ("cohorts", "Cohort", False, ["co"]),
            ("localqueues", "LocalQueue", True, ["queue", "queues", "lq"]),
            ("resourceflavors", "ResourceFlavor", False, ["flavor", "flavors", "rf"]),
            ("workloads", "Workload", True, ["kwl", "kueueworkload", "kueueworkloads"]),
            ("workloadpriorityclasses", "WorkloadPriorityClass", False, ["wpc"]),
            ("admissionchecks", "AdmissionCheck", False, ["ac"]),
            ("topologies", "Topology", False, ["topo"]),
            ("provisioningrequestconfigs", "ProvisioningRequestConfig", False, ["prc"]),
            ("multikueueconfigs", "MultiKueueConfig", False, ["mkconf"]),
            ("multikueueclusters", "MultiKueueCluster", False, ["mkc"]),
        ],
    )
    def test_served(self, crd_api: Api, plural: str, kind: str, namespaced: bool, short: list[str]) -> None:
        """Each kind is served in its scope, under its short names."""
        resources = {resource["name"]: resource for resource in crd_api.get(f"/apis/{API_VERSION}")["resources"]}
        served = resources[plural]
        assert (served["kind"], served["namespaced"], served["shortNames"]) == (kind, namespaced, short)
        assert (f"{plural}/status" in resources) == (plural not in WITHOUT_STATUS)

    def test_no_short_name_is_taken_twice(self, crd_api: Api) -> None:
        """Every name is accepted: none clashes with another kind."""
        for crd in crd_api.items(DEFINITIONS):
            states = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
            assert states["NamesAccepted"] == "True", crd["metadata"]["name"]
            assert states.get("NonStructuralSchema", "False") == "False", crd["metadata"]["name"]

    @pytest.mark.parametrize(
        ("plural", "columns"),
        [
            ("clusterqueues", ["Name", "Cohort", "Strategy", "Pending Workloads", "Admitted Workloads"]),
            ("localqueues", ["Name", "ClusterQueue", "Pending Workloads", "Admitted Workloads"]),
            ("workloads", ["Name", "Queue", "Reserved in", "Admitted", "Finished", "Age"]),
            ("workloadpriorityclasses", ["Name", "Value"]),
            ("resourceflavors", ["Name", "Age"]),
            ("cohorts", ["Name", "Age"]),
            ("admissionchecks", ["Name", "Age"]),
            ("topologies", ["Name", "Age"]),
            ("provisioningrequestconfigs", ["Name", "Age"]),
            ("multikueueconfigs", ["Name", "Age"]),
            ("multikueueclusters", ["Name", "Connected", "Age"]),
        ],
    )
    def test_columns(self, crd_api: Api, plural: str, columns: list[str]) -> None:
        """`kubectl get` shows Kueue's columns; where there are none, the age."""
        version, *_ = crd_api.get(f"{DEFINITIONS}/{plural}.kueue.x-k8s.io")["spec"]["versions"]
        shown = [column["name"] for column in version.get("additionalPrinterColumns", [{"name": "Age"}])]
        assert ["Name", *shown] == columns

    def test_kubectl(self, schema_server: ControlPlane) -> None:
        """A short name lists the queues with their columns."""
        schema_server.api.create(thing("ClusterQueue", "shown", {"cohortName": "all"}))
        heading, row = schema_server.kubectl("get", "cq", "shown").splitlines()
        assert heading.split() == ["NAME", "COHORT", "PENDING", "WORKLOADS"]
        assert row.split()[:2] == ["shown", "all"]


class TestDefaults:
    """The API server fills in what Kueue's would."""

    def test_cluster_queue(self, crd_api: Api) -> None:
        """An empty ClusterQueue gets order, fungibility, preemption and stop policy, and no namespace selector."""
        created = crd_api.create(thing("ClusterQueue", "defaults", {}), dry_run=True)
        assert created["spec"] == {
            "queueingStrategy": "BestEffortFIFO",
            "stopPolicy": "None",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "reclaimWithinCohort": "Never",
                "withinClusterQueue": "Never",
                "borrowWithinCohort": {"policy": "Never"},
            },
        }

    def test_local_queue(self, crd_api: Api) -> None:
        """A LocalQueue is not stopped, and its weight is 1 once it has one at all."""
        created = crd_api.create(thing("LocalQueue", "defaults", {"fairSharing": {}}), dry_run=True)
        assert created["spec"] == {"stopPolicy": "None", "fairSharing": {"weight": 1}}

    def test_workload(self, crd_api: Api) -> None:
        """A Workload is active; a pod set is called main and has one pod."""
        spec = {"podSets": [{"template": POD_SET["template"]}]}
        created = crd_api.create(thing("Workload", "defaults", spec), dry_run=True)
        assert created["spec"] == {"active": True, "podSets": [POD_SET]}

    @pytest.mark.parametrize("kind", ["ResourceFlavor", "Cohort", "Workload", "ClusterQueue"])
    def test_no_spec(self, crd_api: Api, kind: str) -> None:
        """An object without a spec is accepted and stays so."""
        assert "spec" not in crd_api.create(
            {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "bare"}}, dry_run=True
        )


class TestStructs:
    """What Turnstile encodes is what the API server takes and gives back."""

    def test_status(self, crd_api: Api) -> None:
        """A status with every field that has to be written, empty or not, is accepted and reads back the same."""
        obj = thing("Workload", "encoded", {"podSets": [POD_SET]})
        crd_api.create(obj)
        quota = PodSetAssignment(flavors={"cpu": "a"}, resource_usage={"cpu": "1"}, count=1)
        status = WorkloadStatus(
            conditions=set_condition([], type="QuotaReserved", status="True", reason="R", now=TIME),
            admission=Admission(cluster_queue="q", pod_set_assignments=[quota]),
            admission_checks=[AdmissionCheckState(name="c", state="Ready", last_transition_time=TIME)],
            scheduling_stats=SchedulingStats(evictions=[WorkloadSchedulingStatsEviction(reason="Preempted")]),
        )
        answer = update(crd_api, obj, {"status": msgspec.to_builtins(status)}, subresource="status")
        assert msgspec.convert(answer, Workload).status == status

    def test_queues(self, crd_api: Api) -> None:
        """Usage that is zero, and a quota of nothing, are written."""
        resources = [ResourceQuota(name="cpu")]
        groups = [ResourceGroup(covered_resources=["cpu"], flavors=[FlavorQuotas(name="a", resources=resources)])]
        spec = ClusterQueueSpec(resource_groups=groups, fair_sharing=FairSharing())
        obj = thing("ClusterQueue", "encoded", msgspec.to_builtins(spec))
        crd_api.create(obj)
        usage = [FlavorUsage(name="a", resources=[ResourceUsage(name="cpu")])]
        status = ClusterQueueStatus(flavors_usage=usage, fair_sharing=FairSharingStatus())
        answer = update(crd_api, obj, {"status": msgspec.to_builtins(status)}, subresource="status")
        assert msgspec.convert(answer, ClusterQueue).status == status
        assert answer["status"]["pendingWorkloads"] == 0


class TestPruning:
    """Fields that nobody knows are dropped; a pod template keeps all it has."""

    def test_unknown_field(self, crd_api: Api) -> None:
        """An unknown field of a spec is gone."""
        created = crd_api.create(thing("Cohort", "pruned", {"parentName": "up", "quota": 1}), dry_run=True)
        assert created["spec"] == {"parentName": "up"}

    def test_template(self, crd_api: Api) -> None:
        """The spec of a pod template is stored as it came, its metadata reduced to what a pod takes over."""
        spec = {"containers": [{"name": "c", "image": "busybox", "env": [{"name": "A"}]}], "volumes": [{"name": "v"}]}
        metadata = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "creationTimestamp": None, "uid": "x"}
        pod_set = {"template": {"metadata": metadata, "spec": spec}}
        created = crd_api.create(thing("Workload", "kept", {"podSets": [pod_set]}), dry_run=True)
        template = created["spec"]["podSets"][0]["template"]
        assert template == {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": spec}


class TestApply:
    """Two managers that apply to one list own their own entries."""

    def test_status(self, crd_api: Api) -> None:
        """Conditions are merged by type, admission checks by name."""
        obj = thing("Workload", "shared", {"podSets": [POD_SET]})
        crd_api.create(obj)
        for manager, kind in (("one", "QuotaReserved"), ("two", "Finished")):
            condition = {"type": kind, "status": "False", "reason": "R", "message": "", "lastTransitionTime": TIME}
            check = {"name": manager, "state": "Pending", "message": "", "lastTransitionTime": TIME}
            status = {"conditions": [condition], "admissionChecks": [check]}
            applied = {key: obj[key] for key in ("apiVersion", "kind", "metadata")} | {"status": status}
            crd_api.apply(applied, field_manager=manager, force=False, subresource="status")
        status = crd_api.get(crd_api.path_of(obj))["status"]
        assert [condition["type"] for condition in status["conditions"]] == ["QuotaReserved", "Finished"]
        assert [check["name"] for check in status["admissionChecks"]] == ["one", "two"]

    def test_pod_sets(self, crd_api: Api) -> None:
        """A manager that drops its pod set takes away that one alone, and may not touch the other's."""
        name = "podsets"
        first, second = POD_SET, POD_SET | {"name": "second"}
        crd_api.apply(thing("Workload", name, {"podSets": [first]}), field_manager="one")
        crd_api.apply(thing("Workload", name, {"podSets": [second]}), field_manager="two")
        with pytest.raises(ApiError, match="conflict") as refused:
            crd_api.apply(
                thing("Workload", name, {"podSets": [first | {"count": 2}]}), field_manager="two", force=False
            )
        assert refused.value.code == 409
        left = crd_api.apply(thing("Workload", name, {"podSets": []}), field_manager="one")
        assert [pod_set["name"] for pod_set in left["spec"]["podSets"]] == ["second"]

    def test_resource_groups(self, crd_api: Api) -> None:
        """Resource groups are one value: the second manager conflicts with the first."""
        name = "groups"
        crd_api.apply(thing("ClusterQueue", name, {"resourceGroups": [group("a")]}), field_manager="one")
        other = thing("ClusterQueue", name, {"resourceGroups": [group("b")]})
        with pytest.raises(ApiError, match="conflict"):
            crd_api.apply(other, field_manager="two", force=False)

    @pytest.mark.skipif(not at_least(31), reason="Kubernetes 1.30 selects no fields of custom resources")
    def test_selectable_field(self, crd_api: Api) -> None:
        """Workloads can be listed by the ClusterQueue that admitted them."""
        obj = thing("Workload", "selected", {"podSets": [POD_SET]})
        crd_api.create(obj)
        update(crd_api, obj, {"status": {"admission": {"clusterQueue": "mine"}}}, subresource="status")
        path = f"/apis/{API_VERSION}/namespaces/default/workloads"
        found = crd_api.items(path, fields="status.admission.clusterQueue=mine")
        assert [item["metadata"]["name"] for item in found] == ["selected"]
