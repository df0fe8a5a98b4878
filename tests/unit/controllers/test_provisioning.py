"""Provisioning checks of a Workload: what is asked for, what follows from answers, and interrupted decisions."""

import copy
import dataclasses
import time
import tracemalloc
from typing import Any

import orjson
import pytest

from tests.unit.controllers.worlds import ADMITTED, EARLIER, RESERVED, condition, decode, world
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.core import LimitRange, PodTemplate, RuntimeClass
from turnstile.api.meta import Kind
from turnstile.api.patch import apply_merge_patch
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import decode as decode_workload
from turnstile.controllers.checks import checks, requests
from turnstile.controllers.checks.workloads import decide
from turnstile.controllers.runtime.actions import Action, Create, Delete, Patch, RequeueAfter
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs.options import JobOptions

Json = dict[str, Any]
KEY = "ns/wl"
KINDS: dict[str, type[Kind]] = {
    kind.KIND: kind
    for kind in (
        AdmissionCheck,
        LimitRange,
        PodTemplate,
        ProvisioningRequest,
        ProvisioningRequestConfig,
        ResourceFlavor,
        RuntimeClass,
    )
}


class Cluster:
    """Objects as the API server has them, and decisions about Workload `ns/wl` that are carried out there."""

    def __init__(self, workload: Json, *objects: Json, options: JobOptions | None = None) -> None:
        self.options = options
        self.uids = 0
        self.objects: dict[tuple[str, str], Json] = {}
        for each in (workload, config(), CHECK, FLAVOR, *objects):
            self.put(each)

    def put(self, item: Json) -> None:
        """Create an object, or replace it."""
        item = copy.deepcopy(item)
        self.uids += 1
        item["metadata"].setdefault("uid", f"uid-{self.uids}")
        self.objects[item["kind"], item["metadata"]["name"]] = item

    def view(self) -> ClusterView:
        """As a reconciler sees it."""
        found: list[Kind] = []
        for (kind, _), item in self.objects.items():
            found.append(decode_workload(orjson.dumps(item)) if kind == "Workload" else decode(KINDS[kind], item))
        return world(*found, options=self.options)

    def apply(self, action: Action) -> None:
        """What the API server makes of an action."""
        match action:
            case Create():
                assert (action.kind.KIND, action.name) not in self.objects
                self.put(orjson.loads(action.body))
            case Delete():
                del self.objects[action.kind.KIND, action.name]
            case Patch():
                item = self.objects[action.kind.KIND, action.name]
                body = orjson.loads(action.body)
                body["metadata"].pop("resourceVersion", None)
                self.put(apply_merge_patch(item, body))
            case _:
                pass

    def settle(self, *, at_once: int = 100) -> None:
        """Decide until nothing is left to write; of each decision only the first actions are carried out."""
        for _ in range(30):
            actions = [each for each in decide(KEY, self.view()).actions if not isinstance(each, RequeueAfter)]
            if not actions:
                return
            writes = 0
            for action in actions:
                if writes == at_once:
                    break
                self.apply(action)
                writes += isinstance(action, Create | Delete | Patch)
        raise AssertionError("the decisions do not end")

    def answer(self, name: str, *conditions: Json, details: dict[str, str] | None = None) -> None:
        """The autoscaler's answer."""
        status = {"conditions": list(conditions), "provisioningClassDetails": details or {}}
        self.put({**self.objects["ProvisioningRequest", name], "status": status})

    def names(self, kind: type[Kind]) -> list[str]:
        """Names of the objects of a kind."""
        return sorted(name for found, name in self.objects if found == kind.KIND)

    @property
    def check(self) -> Json:
        """The state of the check, without its time."""
        [found] = self.objects["Workload", "wl"]["status"]["admissionChecks"]
        return {key: value for key, value in found.items() if key != "lastTransitionTime" and value not in ("", [])}


CHECK: Json = {
    "kind": "AdmissionCheck",
    "metadata": {"name": "check"},
    "spec": {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"},
    },
}
FLAVOR: Json = {"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "a"}}}
OTHER_FLAVOR: Json = {"kind": "ResourceFlavor", "metadata": {"name": "g"}, "spec": {"nodeLabels": {"pool": "b"}}}


def config(**spec: Any) -> Json:
    """The configuration `config`."""
    wanted = {"provisioningClassName": "class", **spec}
    return {"kind": "ProvisioningRequestConfig", "metadata": {"name": "config"}, "spec": wanted}


def pod_set(name: str = "main", count: int = 2, **spec: Any) -> Json:
    """A pod set of `count` pods."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **spec}}}


def workload(*pod_sets: Json, admitted: bool = False, flavors: dict[str, str] | None = None, **state: Any) -> Json:
    """A Workload that holds quota, and whose check `check` is in that state."""
    sets = pod_sets or (pod_set(),)
    given = [{"name": each["name"], "flavors": {"cpu": (flavors or {}).get(each["name"], "f")}} for each in sets]
    check = {"name": "check", "state": "Pending", "message": "", "lastTransitionTime": EARLIER, **state}
    return {
        "kind": "Workload",
        "metadata": {"name": "wl", "namespace": "ns", "uid": "wl-uid"},
        "spec": {"podSets": list(sets)},
        "status": {
            "conditions": [RESERVED, *([ADMITTED] if admitted else [])],
            "admission": {"clusterQueue": "cq", "podSetAssignments": given},
            "admissionChecks": [check],
        },
    }


def true(kind: str, message: str = "") -> Json:
    """A condition of a request."""
    return condition(kind, "True", "Test", message)


def asked(cluster: Cluster, name: str = "wl-check-1") -> Json:
    """The spec of a request, once it is made."""
    cluster.settle()
    found: Json = cluster.objects["ProvisioningRequest", name]["spec"]
    return found


def template(cluster: Cluster, name: str = "ppt-wl-check-1-main") -> Json:
    """The spec of a PodTemplate, once it is made."""
    cluster.settle()
    found: Json = cluster.objects["PodTemplate", name]["template"]["spec"]
    return found


class TestWhatIsAskedFor:
    def test_long_names_end_in_a_hash(self) -> None:
        """Two attempts of a long name have different names, which an object may have."""
        first, second = (requests.request_name("w" * 200, "c" * 60, attempt) for attempt in (1, 2))
        assert len(first) == len(second) == 253
        assert first != second
        assert requests.request_name("wl", "check", 1) == "wl-check-1"

    @pytest.mark.parametrize(
        ("policy", "counts"),
        [(None, [2, 2, 2]), ("IdenticalPodTemplates", [4, 2]), ("IdenticalWorkloadSchedulingRequirements", [6])],
    )
    def test_pod_sets_are_merged_by_the_policy(self, policy: str | None, counts: list[int]) -> None:
        """Whole templates, or what matters for their place; every pod set may use the request then."""
        sets = [pod_set("a"), pod_set("b"), pod_set("c", priorityClassName="high")]
        cluster = Cluster(workload(*sets), config(**({"podSetMergePolicy": policy} if policy else {})))
        assert [each["count"] for each in asked(cluster)["podSets"]] == counts
        cluster.answer("wl-check-1", true("Provisioned"))
        cluster.settle()
        assert [each["name"] for each in cluster.check["podSetUpdates"]] == ["a", "b", "c"]

    def test_a_pod_set_without_pods_needs_no_assignment(self) -> None:
        """Nothing is asked for it, so its absence from the admission is no fault."""
        held = workload(pod_set("a"), pod_set("none", count=0))
        held["status"]["admission"]["podSetAssignments"].pop()
        assert [each["count"] for each in asked(Cluster(held))["podSets"]] == [2]

    def test_pod_sets_of_other_flavors_are_not_merged(self) -> None:
        """They run on other nodes."""
        merging = config(podSetMergePolicy="IdenticalPodTemplates")
        cluster = Cluster(workload(pod_set("a"), pod_set("b"), flavors={"b": "g"}), merging, OTHER_FLAVOR)
        assert [each["count"] for each in asked(cluster)["podSets"]] == [2, 2]
        assert template(cluster, "ppt-wl-check-1-b")["nodeSelector"] == {"pool": "b"}

    def test_a_template_requests_what_its_pods_will(self) -> None:
        """Defaults of a LimitRange, limits as requests, the overhead of its RuntimeClass, and no gate of ours."""
        limits = [{"type": "Container", "defaultRequest": {"memory": "1Gi"}, "default": {"memory": "2Gi"}}]
        ranges = {"kind": "LimitRange", "metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": limits}}
        runtime = {"kind": "RuntimeClass", "metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "250m"}}}
        container = {"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "1"}}}
        gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/gate"}]
        pods = pod_set(containers=[container], runtimeClassName="vm", schedulingGates=gates)
        spec = template(Cluster(workload(pods), ranges, runtime))
        assert spec["containers"][0]["resources"]["requests"] == {"example.com/gpu": "1", "memory": "1Gi"}
        assert spec["overhead"] == {"cpu": "250m"}
        assert spec["schedulingGates"] == [{"name": "example.com/gate"}]

    def test_a_contradiction_with_the_flavor_makes_no_request(self) -> None:
        """The pods could not be created either."""
        cluster = Cluster(workload(pod_set(nodeSelector={"pool": "other"})))
        decision = decide(KEY, cluster.view())
        assert decision.actions == []
        assert "conflict for key=pool" in decision.why

    def test_a_flavor_that_was_not_read_is_waited_for(self) -> None:
        """It is asked for again."""
        decision = decide(KEY, Cluster(workload(flavors={"main": "unknown"})).view())
        assert [type(each) for each in decision.actions] == [RequeueAfter]


class TestWhatFollows:
    @pytest.mark.parametrize(("retries", "seconds"), [(0, 60), (1, 120), (2, 240), (40, 1800)])
    def test_each_failure_waits_longer(self, retries: int, seconds: int) -> None:
        """Twice as long as before, up to the longest wait."""
        many = config(retryStrategy={"backoffLimitCount": 50})
        cluster = Cluster(workload(retryCount=retries), many)
        cluster.settle()
        cluster.answer(f"wl-check-{retries + 1}", true("Failed", "no"))
        cluster.settle()
        assert (cluster.check["state"], cluster.check["requeueAfterSeconds"]) == ("Retry", seconds)
        assert cluster.check["message"] == "Retrying after failure: no"

    @pytest.mark.parametrize("number", [2**31 - 1, -(2**31)])
    def test_no_loop_is_bounded_by_a_number_of_the_configuration_or_the_status(self, number: int) -> None:
        """A decision takes 50 ms of CPU and 10 MiB at most, whatever limit of attempts and number of retries are
        stated."""
        everywhere = dict.fromkeys(("backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"), number)
        view = Cluster(workload(retryCount=number), config(retryStrategy=everywhere)).view()
        began = time.thread_time()
        assert decide(KEY, view).actions
        assert time.thread_time() - began < 0.05
        tracemalloc.start()
        try:
            decide(KEY, view)
            assert tracemalloc.get_traced_memory()[1] < 10 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(("retries", "attempt"), [(0, 1), (7, 8), (2000, 2001)])
    @pytest.mark.parametrize(("name", "check"), [("wl", "check"), ("w" * 200, "c" * 44), ("w" * 200, "c" * 60)])
    def test_a_request_is_known_by_its_name(self, name: str, check: str, retries: int, attempt: int) -> None:
        """Which attempt it is for is told from the name, also from one that was cut, without trying all attempts."""
        found = requests.request_name(name, check, attempt)
        assert requests.attempt_of(found, name, check, near=retries) == attempt
        assert requests.attempt_of(found, name, f"{check}-x", near=retries) == 0

    @pytest.mark.parametrize("kind", ["Failed", "BookingExpired"])
    def test_the_last_failure_rejects(self, kind: str) -> None:
        """After as many attempts as the configuration says."""
        cluster = Cluster(workload(retryCount=3))
        cluster.settle()
        cluster.answer("wl-check-4", true(kind, "no"))
        cluster.settle()
        assert cluster.check == {"name": "check", "state": "Rejected", "message": "no", "retryCount": 3}

    def test_an_attempt_follows_a_failed_one_that_is_still_there(self) -> None:
        """With the gate CleanupProvisioningRequestsOnEviction off the failed request may outlive the eviction."""
        cluster = Cluster(workload(), options=JobOptions(provisioning_cleanup=False))
        cluster.settle()
        cluster.answer("wl-check-1", true("Failed", "no"))
        cluster.put(workload(retryCount=1))
        cluster.settle()
        assert cluster.names(ProvisioningRequest) == ["wl-check-2"]
        assert (cluster.check["state"], "message" in cluster.check) == ("Pending", False)

    def test_an_edit_replaces_only_what_was_not_answered(self) -> None:
        """An answered request stays, so that its capacity can still be revoked."""
        cluster = Cluster(workload())
        cluster.settle()
        cluster.put(config(provisioningClassName="new"))
        assert asked(cluster)["provisioningClassName"] == "new"
        cluster.answer("wl-check-1", true("Provisioned"))
        cluster.settle()
        cluster.put(config(provisioningClassName="newer"))
        assert asked(cluster)["provisioningClassName"] == "new"
        cluster.answer("wl-check-1", true("CapacityRevoked", "gone"))
        cluster.settle()
        assert (cluster.check["state"], cluster.check["message"]) == ("Rejected", "gone")

    def test_a_missing_configuration_takes_nothing_back(self) -> None:
        """What was provisioned stays Ready; what was not, waits."""
        cluster = Cluster(workload(state="Ready", admitted=True))
        del cluster.objects["ProvisioningRequestConfig", "config"]
        cluster.settle()
        assert cluster.check["state"] == "Ready"
        cluster.put(workload())
        cluster.settle()
        assert (cluster.check["state"], cluster.check["message"]) == ("Pending", "the check is not active")

    def test_templates_of_an_earlier_request_are_removed_first(self) -> None:
        """The garbage collector would take them from under a new request of the same name."""
        cluster = Cluster(workload())
        cluster.settle()
        del cluster.objects["ProvisioningRequest", "wl-check-1"]
        actions = decide(KEY, cluster.view()).actions
        assert [type(each) for each in actions] == [Delete, RequeueAfter]
        cluster.settle()
        request, made = (cluster.objects[each] for each in (("ProvisioningRequest", "wl-check-1"), TEMPLATE))
        assert made["metadata"]["ownerReferences"][0]["uid"] == request["metadata"]["uid"]

    def test_the_request_of_an_earlier_workload_is_waited_for(self) -> None:
        """A Workload of the same name was deleted; its request goes with it."""
        cluster = Cluster(workload())
        cluster.settle()
        cluster.objects["Workload", "wl"]["metadata"]["uid"] = "new"
        actions = decide(KEY, cluster.view()).actions
        assert [type(each) for each in actions] == [RequeueAfter]

    def test_a_request_of_another_owner_is_reported(self) -> None:
        """Once: the check has the message until the name is free."""
        foreign = {"kind": "ProvisioningRequest", "metadata": {"name": "wl-check-1", "namespace": "ns"}}
        cluster = Cluster(workload(), foreign)
        cluster.settle()
        text = 'provisioningrequests.autoscaling.x-k8s.io "wl-check-1" already exists'
        assert cluster.check["message"] == f'Error creating ProvisioningRequest "wl-check-1": {text}'
        del cluster.objects["ProvisioningRequest", "wl-check-1"]
        cluster.settle()
        assert "message" not in cluster.check

    def test_nothing_is_decided_before_all_requests_are_read(self) -> None:
        """A request that is not in the store may exist."""
        view = Cluster(workload()).view()
        view.provisioning.requests.doubt()
        assert decide(KEY, view).actions == []


TEMPLATE = ("PodTemplate", "ppt-wl-check-1-main")


class TestALostReservation:
    """A queue on hold, a gate or a short loss takes quota away without an eviction: what was booked is kept for the
    next attempt, if that asks for the same."""

    def lost(self, cluster: Cluster) -> None:
        """The Workload loses its reservation, and its check keeps its state."""
        item = copy.deepcopy(cluster.objects["Workload", "wl"])
        item["status"]["conditions"] = [condition("QuotaReserved", "False", "Suspended", "held")]
        del item["status"]["admission"]
        cluster.put(item)
        cluster.settle()

    def provisioned(self, *objects: Json, loses: bool = True) -> tuple[Cluster, str]:
        """A Workload whose request was answered; and the uid of the request."""
        cluster = Cluster(workload(), *objects)
        cluster.settle()
        cluster.answer("wl-check-1", true("Provisioned"))
        cluster.settle()
        assert cluster.check["state"] == "Ready"
        if loses:
            self.lost(cluster)
        return cluster, cluster.objects["ProvisioningRequest", "wl-check-1"]["metadata"]["uid"]

    def test_keeps_the_request_for_the_next_attempt(self) -> None:
        """Its nodes are booked."""
        cluster, uid = self.provisioned()
        assert cluster.check["state"] == "Pending"
        cluster.put(workload())
        cluster.settle()
        assert cluster.objects["ProvisioningRequest", "wl-check-1"]["metadata"]["uid"] == uid
        assert cluster.check["state"] == "Ready"
        [update] = cluster.check["podSetUpdates"]
        assert update["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] == "wl-check-1"

    def test_keeps_a_request_without_an_answer(self) -> None:
        """The autoscaler may be on its way."""
        cluster = Cluster(workload())
        cluster.settle()
        self.lost(cluster)
        assert cluster.names(ProvisioningRequest) == ["wl-check-1"]

    @pytest.mark.parametrize(
        "again",
        [workload(pod_set(count=1)), workload(flavors={"main": "g"}), workload(pod_set(nodeSelector={"disk": "ssd"}))],
        ids=["another count", "another flavor", "other pods"],
    )
    def test_replaces_the_request_when_other_nodes_are_needed(self, again: Json) -> None:
        """The booked nodes are not those of the new reservation."""
        cluster, uid = self.provisioned(OTHER_FLAVOR)
        cluster.put(again)
        cluster.settle()
        assert cluster.objects["ProvisioningRequest", "wl-check-1"]["metadata"]["uid"] != uid
        assert cluster.check["state"] == "Pending"
        pool = cluster.objects[TEMPLATE]["template"]["spec"]["nodeSelector"]["pool"]
        assert pool == ("b" if again["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] == "g" else "a")

    def test_deletes_the_requests_of_a_finished_workload(self) -> None:
        """No attempt follows."""
        cluster, _ = self.provisioned()
        item = copy.deepcopy(cluster.objects["Workload", "wl"])
        item["status"]["conditions"].append(condition("Finished", "True", "Succeeded"))
        cluster.put(item)
        cluster.settle()
        assert cluster.names(ProvisioningRequest) == []


class TestInterruptions:
    def test_a_restart_after_any_write_ends_in_the_same_state(self) -> None:
        """From the reservation to the answer, with an edit on the way: one write of each decision, or all of them."""
        ends = []
        for at_once in (1, 2, 3, 100):
            cluster = Cluster(workload(pod_set("a"), pod_set("b", priorityClassName="high")))
            cluster.settle(at_once=at_once)
            cluster.put(config(provisioningClassName="new", parameters={"key": "value"}))
            cluster.settle(at_once=at_once)
            cluster.answer("wl-check-1", true("Accepted"), true("Provisioned", "found"))
            cluster.settle(at_once=at_once)
            ends.append((cluster.check, *(_without_uids(cluster, kind) for kind in (ProvisioningRequest, PodTemplate))))
        assert [each for each in ends if each != ends[0]] == []
        assert ends[0][0]["state"] == "Ready"


def _without_uids(cluster: Cluster, kind: type[Kind]) -> list[Json]:
    """The objects of a kind; their owners by name, if they have the uid of that owner."""
    found = []
    for (name, _), item in sorted(cluster.objects.items()):
        if name == kind.KIND:
            [owner] = item["metadata"]["ownerReferences"]
            assert owner["uid"] == cluster.objects[owner["kind"], owner["name"]]["metadata"]["uid"]
            found.append({**item, "metadata": {"name": item["metadata"]["name"], "owner": owner["name"]}})
    return found


def test_the_whole_template_is_held_only_while_a_check_waits() -> None:
    """Otherwise a Workload holds the little of its templates that decisions read."""

    def held(item: Json) -> bool:
        return bool(decode_workload(orjson.dumps(item)).spec.pod_sets[0].whole_template)

    waiting = workload()
    assert held(waiting)
    assert not held(workload(state="Ready"))
    assert not held({**waiting, "status": {**waiting["status"], "conditions": []}})
    finished = [RESERVED, condition("Finished", "True", "Succeeded")]
    assert not held({**waiting, "status": {**waiting["status"], "conditions": finished}})


def test_a_check_says_whether_requests_can_be_made() -> None:
    """Without the autoscaler's definition it is not active, so that its queues admit nothing."""
    view = Cluster(workload()).view()
    [patch] = checks.decide("check", view).actions
    assert isinstance(patch, Patch)
    [active] = orjson.loads(patch.body)["status"]["conditions"]
    assert (active["status"], active["reason"]) == ("True", "Active")
    view.provisioning = dataclasses.replace(view.provisioning, served=lambda: False)
    [patch] = checks.decide("check", view).actions
    assert isinstance(patch, Patch)
    [active] = orjson.loads(patch.body)["status"]["conditions"]
    assert (active["status"], active["reason"]) == ("False", "ProvisioningRequestNotInstalled")
    [patch] = decide(KEY, view).actions
    assert isinstance(patch, Patch)
    [state] = orjson.loads(patch.body)["status"]["admissionChecks"]
    assert (state["state"], state["message"]) == ("Pending", "the check is not active")
