"""Jobs wait for their team's quota, start when it is there, and give it back."""

import pytest

from testbed.client import condition, resource_path, wait_until
from testbed.controlplane import ControlPlane
from tests.cluster.scenario import GROUP, Scenario, job, job_path
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


class TestOverQuota:
    def test_a_job_over_quota_stays_suspended_and_says_what_is_missing(self, scenario: Scenario) -> None:
        """The reason is Kueue's to the letter, for tools; an event names what was asked for and what is free."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 4}})
        scenario.job("first", queue="team", cpu="1", pods=3)
        scenario.wait_started("first")
        scenario.job("second", queue="team", cpu="1", pods=2)
        waiting = scenario.wait_pending("second", reason="WaitingForQuota")
        assert scenario.suspended("second")
        missing = f"insufficient unused quota for cpu in flavor {flavor}, 1 more needed"
        assert waiting["message"] == f"couldn't assign flavors to pod set main: {missing}"
        workload = scenario.workload_of("second")["metadata"]["name"]
        assert scenario.wait_event(workload, reason="WaitingForQuota")["note"] == waiting["message"]
        told = scenario.wait_event(workload, reason="InsufficientQuota")
        amounts = f"Waits for 1 more CPU on {flavor} nodes: asks 2, 1 free."
        assert (told["type"], told["note"]) == ("Normal", amounts)

    def test_a_job_larger_than_the_queue_says_that_it_can_never_fit(self, scenario: Scenario) -> None:
        """A request above the maximum gets another reason than one that only has to wait."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 4}})
        scenario.job("huge", queue="team", cpu="5")
        waiting = scenario.wait_pending("huge", reason="ExceedsMaxQuota")
        assert "maximum capacity" in waiting["message"]

    def test_a_job_larger_than_can_be_counted_says_so_too(self, scenario: Scenario) -> None:
        """Amounts end at int64; the status takes what is written there."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 4}})
        scenario.job("endless", queue="team", cpu="99999999999999999999")
        scenario.wait_pending("endless", reason="ExceedsMaxQuota")

    def test_jobs_that_ask_for_the_same_all_say_why_they_wait(self, scenario: Scenario) -> None:
        """Only the first of them is looked at; what is missing is told of each."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 1}})
        names = [f"same-{number}" for number in range(5)]
        for name in names:
            scenario.job(name, queue="team", cpu="1")
        scenario.wait_started("same-0")
        for name in names[1:]:
            waiting = scenario.wait_pending(name, reason="WaitingForQuota")
            bypassed = "Bypassed scheduling evaluation because an equivalent workload recently failed"
            assert waiting["message"].startswith(("couldn't assign flavors to pod set main: ", bypassed))
            told = scenario.wait_event(scenario.workload_of(name)["metadata"]["name"], reason="InsufficientQuota")
            assert "asks 1, 0 free" in told["note"]

    def test_amounts_are_those_of_its_own_queue(self, scenario: Scenario) -> None:
        """Also where one that asks for the same waits in another queue."""
        flavors = {name: scenario.flavor(name) for name in ("one", "two")}
        for name, flavor in flavors.items():
            scenario.queue(name, {flavor: {"cpu": 1}})
            scenario.job(f"{name}-0", queue=name, cpu="1")
            scenario.wait_admitted(f"{name}-0")
            for number in (1, 2):
                scenario.job(f"{name}-{number}", queue=name, cpu="1")
        for name, flavor in flavors.items():
            for number in (1, 2):
                scenario.wait_pending(f"{name}-{number}", reason="WaitingForQuota")
                workload = scenario.workload_of(f"{name}-{number}")["metadata"]["name"]
                told = scenario.wait_event(workload, reason="InsufficientQuota")
                assert f" on {flavor} nodes: " in told["note"]

    def test_a_workload_without_pod_sets_is_admitted_without_quota(self, scenario: Scenario) -> None:
        """That of an AppWrapper without a pod template: the API server takes it, and nothing is charged for it."""
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 0}})
        meta = {"name": "nothing", "namespace": scenario.namespace}
        body = {"metadata": meta, "spec": {"queueName": "team"}}
        scenario.create({"apiVersion": GROUP, "kind": "Workload", **body})
        path = resource_path(GROUP, "workloads", "nothing", namespace=scenario.namespace)
        seen = scenario.api.wait_for(
            path, lambda each: condition(each, "Admitted").get("status") == "True", describe="admitted"
        )
        assert not seen["status"]["admission"].get("podSetAssignments")

    def test_a_job_in_a_queue_that_does_not_exist_says_so(self, scenario: Scenario) -> None:
        """A typing error in the queue name is told, not met with silence."""
        scenario.job("lost", queue="no-such-queue")
        waiting = scenario.wait_pending("lost", reason="Misconfigured")
        assert waiting["message"] == "LocalQueue no-such-queue doesn't exist"
        assert scenario.suspended("lost")


class TestReturn:
    """A Workload that leaves its queue and comes back says again why it waits, not that it is yet to be looked at."""

    def test_after_it_was_inactive(self, scenario: Scenario) -> None:
        """An equal Workload failed meanwhile or before: no cycle looks at this one."""
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
        scenario.job("huge", queue="team", cpu="5")
        scenario.wait_pending("huge", reason="ExceedsMaxQuota")
        path = scenario.api.path_of(scenario.workload_of("huge"))
        scenario.api.patch(path, {"spec": {"active": False}})
        scenario.wait_workload("huge", lambda w: condition(w, "QuotaReserved")["reason"] != "ExceedsMaxQuota")
        scenario.api.patch(path, {"spec": {"active": True}})
        scenario.wait_pending("huge", reason="ExceedsMaxQuota")

    @pytest.mark.parametrize("kind", ["clusterqueues", "localqueues"])
    def test_after_its_queue_was_stopped(self, scenario: Scenario, kind: str) -> None:
        """The queue is resumed and nothing else has changed."""
        full = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
        scenario.job("huge", queue="team", cpu="5")
        scenario.wait_pending("huge", reason="ExceedsMaxQuota")
        path = (
            resource_path(GROUP, kind, full)
            if kind == "clusterqueues"
            else resource_path(GROUP, kind, "team", namespace=scenario.namespace)
        )
        scenario.api.patch(path, {"spec": {"stopPolicy": "Hold"}})
        scenario.wait_pending("huge", reason="Suspended")
        scenario.api.patch(path, {"spec": {"stopPolicy": "None"}})
        scenario.wait_pending("huge", reason="ExceedsMaxQuota")


class TestRoom:
    def test_the_next_head_starts_when_a_job_finishes(self, scenario: Scenario) -> None:
        """Finishing frees room at once; the first in line gets it."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 2}})
        scenario.job("short", queue="team", cpu="2", run_for="2s")
        scenario.wait_started("short")
        scenario.job("next", queue="team", cpu="2", run_for="60s")
        scenario.wait_pending("next")
        scenario.wait_started("next", timeout=15)
        finished = scenario.workload_of("short")
        assert condition(finished, "Finished")["reason"] == "Succeeded"

    def test_quota_edited_up_admits(self, scenario: Scenario) -> None:
        """A waiting job starts when its queue grows."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": 1}})
        scenario.job("big", queue="team", cpu="3")
        scenario.wait_pending("big")
        scenario.patch_queue(queue, {"resourceGroups": _cpu(flavor, 3)})
        scenario.wait_started("big")

    def test_quota_edited_down_admits_no_more_and_stops_nothing(self, scenario: Scenario) -> None:
        """What runs goes on above the new quota; nothing new starts until it is below."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": 4}})
        scenario.job("running", queue="team", cpu="3")
        scenario.wait_started("running")
        scenario.patch_queue(queue, {"resourceGroups": _cpu(flavor, 2)})
        scenario.job("small", queue="team", cpu="1")
        scenario.wait_pending("small")
        assert scenario.suspended("small")
        assert not scenario.suspended("running")
        scenario.delete_job("running")
        scenario.wait_started("small")


class TestCohort:
    def test_a_queue_borrows_what_its_cohort_does_not_use(self, scenario: Scenario) -> None:
        """Unused quota of a sibling is lent."""
        flavor = scenario.flavor("plain")
        scenario.queue("a", {flavor: {"cpu": 2}}, cohort="all")
        scenario.queue("b", {flavor: {"cpu": 2}}, cohort="all")
        scenario.job("wide", queue="a", cpu="4")
        scenario.wait_started("wide")
        scenario.job("own", queue="b", cpu="1")
        scenario.wait_pending("own")

    def test_borrowing_stops_at_its_limit(self, scenario: Scenario) -> None:
        """Nominal plus borrowing limit is the end, however much is free."""
        flavor = scenario.flavor("plain")
        scenario.queue("a", {flavor: {"cpu": {"nominalQuota": 2, "borrowingLimit": 1}}}, cohort="all")
        scenario.queue("b", {flavor: {"cpu": 8}}, cohort="all")
        scenario.job("within", queue="a", cpu="3")
        scenario.wait_started("within")
        scenario.job("beyond", queue="a", cpu="1")
        scenario.wait_pending("beyond")
        assert scenario.suspended("beyond")


class TestFlavors:
    def test_a_tainted_flavor_is_only_for_those_who_tolerate_it(
        self, scenario: Scenario, nodes: dict[str, str]
    ) -> None:
        """The first flavor is passed over without the toleration, and taken with it."""
        spot = scenario.flavor(
            "spot",
            labels={"pool": nodes["spot"]},
            taints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        )
        plain = scenario.flavor("plain", labels={"pool": nodes["plain"]})
        scenario.queue("team", {spot: {"cpu": 4}, plain: {"cpu": 4}})
        scenario.job("careful", queue="team", cpu="1")
        tolerant = {"tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]}
        scenario.job("tolerant", queue="team", cpu="1", template=tolerant)
        assert scenario.wait_admitted("careful")["podSetAssignments"][0]["flavors"] == {"cpu": plain}
        assert scenario.wait_admitted("tolerant")["podSetAssignments"][0]["flavors"] == {"cpu": spot}

    def test_affinity_chooses_the_flavor(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """Required node affinity on a flavor's label rules the others out."""
        first = scenario.flavor("first", labels={"pool": nodes["plain"]})
        second = scenario.flavor("second", labels={"pool": nodes["spot"]})
        scenario.queue("team", {first: {"cpu": 4}, second: {"cpu": 4}})
        terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [nodes["spot"]]}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        scenario.job("picky", queue="team", cpu="1", template={"affinity": affinity})
        assert scenario.wait_admitted("picky")["podSetAssignments"][0]["flavors"] == {"cpu": second}

    def test_pods_land_only_on_nodes_of_the_flavor(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """The flavor's labels become the pods' node selector, its tolerations theirs."""
        spot = scenario.flavor(
            "spot",
            labels={"pool": nodes["spot"]},
            taints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}],
            tolerations=[{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        )
        scenario.queue("team", {spot: {"cpu": 8}})
        scenario.job("wide", queue="team", cpu="1", pods=4)

        def placed() -> list[str] | None:
            names = [pod["spec"].get("nodeName", "") for pod in scenario.pods_of("wide")]
            return names if len(names) == 4 and all(names) else None

        names = wait_until(placed, timeout=15, describe=lambda: f"pods are {scenario.pods_of('wide')}")
        for name in names:
            node = scenario.api.get(resource_path("v1", "nodes", name))
            assert node["metadata"]["labels"]["pool"] == nodes["spot"]


class TestPriorityClass:
    @pytest.mark.parametrize("of_pods", [False, True], ids=["of the Workload", "of the pods"])
    def test_a_job_whose_class_is_missing_starts_when_it_comes(self, scenario: Scenario, *, of_pods: bool) -> None:
        """Until then it has no Workload and its owner is told why."""
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
        name = scenario.named("late")
        labels = {} if of_pods else {"kueue.x-k8s.io/priority-class": name}
        template = {"priorityClassName": name} if of_pods else None
        scenario.job("job", queue="team", labels=labels, template=template)
        scenario.wait_event("job", reason="PriorityClassNotFound" if of_pods else "WorkloadPriorityClassNotFound")
        if of_pods:
            scenario.create(
                {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
            )
        else:
            scenario.priority_class("late", 7)
        scenario.wait_started("job")
        assert scenario.workload_of("job")["spec"]["priority"] == 7


class TestDefaultQueue:
    def test_a_job_without_a_queue_gets_the_default_one(self, scenario: Scenario) -> None:
        """A LocalQueue named default takes what names no queue."""
        flavor = scenario.flavor("plain")
        scenario.local_queue("default", scenario.cluster_queue("team", {flavor: {"cpu": 4}}))
        wait_until(lambda: _default_given(scenario), timeout=10, describe=lambda: "no job was given the default queue")

    def test_without_a_default_queue_a_job_is_left_alone(self, scenario: Scenario) -> None:
        """A job that names no queue runs as if Turnstile were not there."""
        created = scenario.job("free", queue=None)
        assert not created["spec"].get("suspend")
        assert "kueue.x-k8s.io/queue-name" not in created["metadata"].get("labels", {})


class TestDeletion:
    @pytest.mark.parametrize("state", ["pending", "running"])
    def test_a_deleted_job_leaves_nothing_behind(self, scenario: Scenario, state: str) -> None:
        """No Workload, no finalizer, no quota held."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": 2}})
        scenario.job("doomed", queue="team", cpu="2" if state == "running" else "3")
        if state == "running":
            scenario.wait_started("doomed")
        else:
            scenario.wait_pending("doomed")
        name = scenario.workload_of("doomed")["metadata"]["name"]
        scenario.delete_job("doomed")
        scenario.api.wait_gone(job_path(scenario.namespace, "doomed"))
        # The garbage collector takes up to half a minute to learn of a CRD that is as young as this cluster's.
        scenario.api.wait_gone(resource_path(GROUP, "workloads", name, namespace=scenario.namespace), timeout=60)
        wait_until(lambda: not scenario.pods_of("doomed"), timeout=15, describe=lambda: "its pods are still there")
        scenario.job("after", queue="team", cpu="2")
        scenario.wait_started("after")
        status = scenario.api.wait_for(
            resource_path(GROUP, "clusterqueues", queue),
            lambda q: q["status"].get("admittedWorkloads") == 1 and not q["status"].get("pendingWorkloads"),
            describe="one admitted, none pending",
        )["status"]
        assert status["flavorsUsage"][0]["resources"][0]["total"] == "2"


class TestStopping:
    def test_deactivating_a_workload_suspends_its_job_and_restores_the_template(
        self, scenario: Scenario, nodes: dict[str, str]
    ) -> None:
        """What was injected at the start is taken out again."""
        flavor = scenario.flavor("plain", labels={"pool": nodes["plain"]})
        scenario.queue("team", {flavor: {"cpu": 2}})
        scenario.job("job", queue="team", cpu="1")
        started = scenario.wait_started("job")
        assert started["spec"]["template"]["spec"]["nodeSelector"] == {"pool": nodes["plain"]}
        workload = scenario.workload_of("job")
        scenario.api.patch(scenario.api.path_of(workload), {"spec": {"active": False}})
        scenario.wait_suspended("job")
        stopped = scenario.wait_workload("job", lambda w: condition(w, "QuotaReserved").get("status") == "False")
        assert condition(stopped, "Evicted")["reason"] == "Deactivated"
        assert "admission" not in stopped["status"]
        assert "nodeSelector" not in scenario.read_job("job")["spec"]["template"]["spec"]
        scenario.api.patch(scenario.api.path_of(workload), {"spec": {"active": True}})
        scenario.wait_started("job")

    def test_hold_and_drain_stops_what_runs_and_restarting_lets_it_in_again(self, scenario: Scenario) -> None:
        """HoldAndDrain evicts; setting the policy back readmits."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": 2}})
        scenario.job("job", queue="team", cpu="1")
        scenario.wait_started("job")
        scenario.patch_queue(queue, {"stopPolicy": "HoldAndDrain"})
        scenario.wait_suspended("job")
        evicted = scenario.wait_workload("job", lambda w: condition(w, "QuotaReserved").get("status") == "False")
        assert condition(evicted, "Evicted")["reason"] == "ClusterQueueStopped"
        scenario.patch_queue(queue, {"stopPolicy": "None"})
        scenario.wait_started("job")

    def test_hold_lets_what_runs_go_on(self, scenario: Scenario) -> None:
        """Hold admits nothing new and stops nothing."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": 2}})
        scenario.job("before", queue="team", cpu="1")
        scenario.wait_started("before")
        scenario.patch_queue(queue, {"stopPolicy": "Hold"})
        scenario.job("after", queue="team", cpu="1")
        scenario.wait_pending("after", reason="Suspended")
        assert not scenario.suspended("before")
        scenario.patch_queue(queue, {"stopPolicy": "None"})
        scenario.wait_started("after")

    def test_a_cycle_of_cohorts_closes_its_queues_until_it_is_mended(self, scenario: Scenario) -> None:
        """ClusterQueue and LocalQueue say so at once, and open again when the parent is taken away."""
        outer = scenario.cohort("outer")
        scenario.cohort("inner", parent=outer)
        queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, cohort="inner")
        paths = (
            resource_path(GROUP, "clusterqueues", queue),
            resource_path(GROUP, "localqueues", "team", namespace=scenario.namespace),
        )

        def wait_active(status: str, *reasons: str) -> None:
            for path, reason in zip(paths, reasons, strict=True):
                scenario.api.wait_for(
                    path,
                    lambda found, reason=reason: (
                        (condition(found, "Active").get("status"), condition(found, "Active").get("reason"))
                        == (status, reason)
                    ),
                    timeout=10,
                    describe=f"Active {status}: {reason}",
                )

        wait_active("True", "Ready", "Ready")
        top = resource_path(GROUP, "cohorts", outer)
        scenario.api.patch(top, {"spec": {"parentName": scenario.named("inner")}})
        wait_active("False", "Unknown", "ClusterQueueIsInactive")
        scenario.job("job", queue="team", cpu="1")
        scenario.wait_pending("job", reason="Suspended")
        scenario.api.patch(top, {"spec": {"parentName": None}})
        wait_active("True", "Ready", "Ready")
        scenario.wait_started("job")

    def test_a_workload_deleted_by_hand_stops_its_job_and_a_fresh_one_takes_its_place(self, scenario: Scenario) -> None:
        """Nobody runs without a Workload, and nobody is lost for want of one."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 2}})
        scenario.job("job", queue="team", cpu="1")
        scenario.wait_started("job")
        first = scenario.workload_of("job")
        scenario.api.delete(scenario.api.path_of(first))
        fresh = scenario.wait_workload("job", lambda w: w["metadata"]["uid"] != first["metadata"]["uid"])
        assert condition(fresh, "Finished") == {}
        scenario.wait_started("job")

    def test_a_job_whose_node_selector_contradicts_its_flavor_is_refused_on_its_workload(
        self, scenario: Scenario, nodes: dict[str, str]
    ) -> None:
        """A conflict at the start is an error on the Workload, not a crash and not a wrong node."""
        flavor = scenario.flavor("plain", labels={"pool": nodes["plain"]})
        scenario.queue("team", {flavor: {"cpu": 2}})
        scenario.job("job", queue="team", cpu="1", template={"nodeSelector": {"pool": "another"}})
        waiting = scenario.wait_pending("job", reason="NoMatchingFlavor")
        assert f"flavor {flavor} doesn't match node affinity" in waiting["message"]


class TestPod:
    def test_a_plain_pod_is_gated_until_its_quota_is_there(self, scenario: Scenario, nodes: dict[str, str]) -> None:
        """Two pods, room for one: the second waits with its gate on and runs when the first is gone."""
        flavor = scenario.flavor("plain", labels={"pool": nodes["plain"]})
        scenario.queue("team", {flavor: {"cpu": 1}})
        for name in ("one", "two"):
            scenario.create(_pod(name, scenario.namespace))
            if name == "one":
                scenario.wait_admitted("one", kind="Pod")
        path = resource_path("v1", "pods", namespace=scenario.namespace)
        scenario.wait_pending("two", kind="Pod")
        gated = scenario.api.get(f"{path}/two")
        assert {"name": "kueue.x-k8s.io/admission"} in gated["spec"]["schedulingGates"]
        running = scenario.api.wait_for(f"{path}/one", lambda p: p["spec"].get("nodeName"), describe="bound")
        assert running["spec"]["nodeSelector"] == {"pool": nodes["plain"]}
        scenario.api.delete(f"{path}/one")
        scenario.api.wait_gone(f"{path}/one")
        scenario.api.wait_for(f"{path}/two", lambda p: p["spec"].get("nodeName"), describe="bound")


def _cpu(flavor: str, amount: int) -> list[dict[str, object]]:
    return [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": amount}]}],
        }
    ]


def _default_given(scenario: Scenario) -> bool:
    """Whether a new job gets the default queue; the webhook hears of a LocalQueue by watch, so the first may not."""
    name = f"any-{len(scenario.made)}"
    created = scenario.job(name, queue=None)
    if created["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name") != "default":
        return False
    assert created["spec"]["suspend"] is True
    scenario.wait_started(name)
    return True


def _pod(name: str, namespace: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
            ],
        },
    }


class TestNamespace:
    def test_a_namespace_that_opts_in_later_has_its_waiting_jobs_looked_at(
        self, control_plane: ControlPlane, turnstile: Turnstile
    ) -> None:
        """A Job that somebody suspended by hand before starts when its namespace joins and there is quota."""
        late = Scenario(control_plane.api, control_plane.namespace("late"))
        flavor = late.flavor("plain")
        late.queue("team", {flavor: {"cpu": 1}})
        body = job("early", namespace=late.namespace, queue="team")
        body["spec"]["suspend"] = True
        late.create(body)
        control_plane.kubectl("label", "namespace", late.namespace, "kueue-managed=true")
        late.wait_started("early")
        late.remove()

    def test_a_namespace_that_leaves_a_queue_has_its_waiting_jobs_told(
        self, control_plane: ControlPlane, scenario: Scenario
    ) -> None:
        """The reason follows the labels: while the selector does not match, room is not what is missing."""
        flavor = scenario.flavor("plain")
        full = scenario.cluster_queue(
            "team", {flavor: {"cpu": 1}}, namespaceSelector={"matchLabels": {"kueue-managed": "true", "tier": "one"}}
        )
        scenario.local_queue("team", full)
        control_plane.kubectl("label", "namespace", scenario.namespace, "tier=one")
        scenario.job("first", queue="team", cpu="1")
        scenario.wait_started("first")
        scenario.job("second", queue="team", cpu="1")
        scenario.wait_pending("second", reason="WaitingForQuota")
        control_plane.kubectl("label", "namespace", scenario.namespace, "tier-")
        scenario.wait_pending("second", reason="Misconfigured")
        control_plane.kubectl("label", "namespace", scenario.namespace, "tier=one")
        scenario.wait_pending("second", reason="WaitingForQuota")
