"""Jobs that wait until a cluster autoscaler has found capacity for them."""

from collections.abc import Iterator
from typing import Any

import pytest

from testbed.autoscaler import CHECK_CAPACITY, Autoscaler
from testbed.client import Json, condition, resource_path, wait_until
from testbed.controlplane import ControlPlane
from tests.cluster.scenario import GROUP, Scenario
from tests.cluster.test_admission_checks import answer, check, states
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"


@pytest.fixture(scope="module")
def autoscaler(control_plane: ControlPlane) -> Iterator[Autoscaler]:
    """The autoscaler's kind is served; requests are answered by the test."""
    found = Autoscaler(control_plane.api, details={"pool": "plain", "other": "x"})
    found.install()
    yield found
    found.remove()


class World:
    """A queue whose Workloads need capacity, and its requests."""

    def __init__(self, scenario: Scenario, autoscaler: Autoscaler) -> None:
        self.scenario = scenario
        self.autoscaler = autoscaler

    def config(self, name: str = "config", **spec: Any) -> str:
        """A ProvisioningRequestConfig whose attempts follow each other within seconds; returns its full name."""
        full = self.scenario.named(name)
        retries = {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
        wanted = {"provisioningClassName": CHECK_CAPACITY, "retryStrategy": retries, **spec}
        made = {"apiVersion": GROUP, "kind": "ProvisioningRequestConfig", "metadata": {"name": full}, "spec": wanted}
        self.scenario.create(made)
        return full

    def check(self, config: str, name: str = "capacity") -> str:
        """An AdmissionCheck that the controller answers; returns its full name."""
        full = self.scenario.named(name)
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config}
        spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
        self.scenario.create({"apiVersion": GROUP, "kind": "AdmissionCheck", "metadata": {"name": full}, "spec": spec})
        return full

    def queue(self, *checks: str, labels: dict[str, str] | None = None) -> None:
        """The queue `team` with these checks, for 4 cpu."""
        strategy = {"admissionChecks": [{"name": each} for each in checks]}
        flavor = self.scenario.flavor("plain", labels=labels)
        self.scenario.queue("team", {flavor: {"cpu": 4}}, admissionChecksStrategy=strategy)

    def wait_request(self, check: str, attempt: int = 1, *, job: str = "asks") -> str:
        """Wait until the request of an attempt is there; its name."""
        name = self.name(check, attempt, job=job)
        wait_until(
            lambda: name in self.requests or None,
            timeout=20,
            describe=lambda: f"{name} is not among {sorted(self.requests)}; {self.scenario.workload_of(job)['status']}",
        )
        return name

    def name(self, check: str, attempt: int = 1, *, job: str = "asks") -> str:
        """The name of the request of an attempt."""
        return f"{self.scenario.workload_of(job)['metadata']['name']}-{check}-{attempt}"

    @property
    def requests(self) -> dict[str, Json]:
        """All requests of the namespace."""
        return self.autoscaler.requests(self.scenario.namespace)

    def wait_requests_gone(self) -> None:
        """Wait until no request is left."""
        wait_until(lambda: not self.requests or None, timeout=60, describe=lambda: f"{sorted(self.requests)} are left")

    def wait_templates(self, count: int) -> list[Json]:
        """Wait until so many PodTemplates are left; the PodTemplates."""
        path = resource_path("v1", "podtemplates", namespace=self.scenario.namespace)
        found: list[Json] = []

        def look() -> bool:
            nonlocal found
            found = self.scenario.api.items(path)
            return len(found) == count

        # The garbage collector knows a new kind within half a minute.
        wait_until(look, timeout=45, describe=lambda: f"{[each['metadata'] for each in found]}")
        return found

    def answer(self, name: str, kind: str, **more: str) -> None:
        """The autoscaler's answer to a request."""
        self.autoscaler.answer(self.scenario.namespace, name, kind, **more)

    def wait_state(self, check: str, state: str, *, message: str = "", job: str = "asks") -> Json:
        """Wait until a check is in that state with that text in its message; the Workload."""

        def told(workload: Json) -> bool:
            found = states(workload).get(check, {})
            return found.get("state") == state and message in found.get("message", "")

        return self.scenario.wait_workload(job, told, timeout=20)


@pytest.fixture
def world(scenario: Scenario, autoscaler: Autoscaler) -> World:
    """An empty namespace."""
    return World(scenario, autoscaler)


def test_a_job_starts_on_what_was_provisioned(world: World) -> None:
    """The request has the pods as they will be created; they get its name, its class and the node selector."""
    selector = {"key": "pool", "valueFromProvisioningClassDetail": "pool"}
    parameters = {"ValidUntilSeconds": "60", "zone": "a"}
    config = world.config(parameters=parameters, podSetUpdates={"nodeSelector": [selector]})
    capacity = world.check(config)
    world.queue(capacity, labels={"disk": "ssd"})
    scenario = world.scenario
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "asks",
            "namespace": scenario.namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "team"},
            "annotations": {"provreq.kueue.x-k8s.io/zone": "b"},
        },
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "1"}}}],
                }
            },
        },
    }
    scenario.create(job)
    name = world.wait_request(capacity)
    request = world.requests[name]
    assert request["spec"]["provisioningClassName"] == CHECK_CAPACITY
    assert request["spec"]["parameters"] == {"ValidUntilSeconds": "60", "zone": "b"}
    assert request["spec"]["podSets"] == [{"count": 2, "podTemplateRef": {"name": f"ppt-{name}-main"}}]
    [template] = world.wait_templates(1)
    spec = template["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert spec["containers"][0]["image"] == "busybox"
    workload = scenario.workload_of("asks")
    scenario.wait_event(workload["metadata"]["name"], reason="ProvisioningRequestCreated")

    def adopted() -> bool:
        [found] = world.wait_templates(1)
        return [each["name"] for each in found["metadata"]["ownerReferences"]] == [name]

    wait_until(adopted, timeout=10, describe=lambda: "the template does not belong to the request")
    world.answer(name, "Provisioned", status="False", message="ETA: 2099-01-01T00:00:00Z")
    world.wait_state(capacity, "Pending", message="ETA: 2099")
    assert scenario.suspended("asks")
    world.answer(name, "Provisioned")
    started = scenario.wait_started("asks", timeout=20)["spec"]["template"]
    annotations = started["metadata"]["annotations"]
    assert (annotations[CONSUMES], annotations[CLASS]) == (name, CHECK_CAPACITY)
    assert started["spec"]["nodeSelector"] == {"disk": "ssd", "pool": "plain"}
    scenario.delete_job("asks")
    world.wait_requests_gone()
    world.wait_templates(0)


def test_a_failed_request_is_repeated_until_the_limit(world: World) -> None:
    """After a wait there is a second request; after its failure the job is deactivated, and keeps no quota."""
    capacity = world.check(world.config())
    world.queue(capacity)
    scenario = world.scenario
    scenario.job("asks", queue="team")
    first = world.wait_request(capacity)
    world.answer(first, "Failed", message="no machines")
    evicted = scenario.wait_workload("asks", lambda w: condition(w, "Evicted").get("status") == "True", timeout=20)
    assert condition(evicted, "Evicted")["reason"] == "AdmissionCheck"
    assert f'"{capacity}" (Retrying after failure: no machines)' in condition(evicted, "Evicted")["message"]
    second = world.wait_request(capacity, 2)
    assert states(scenario.workload_of("asks"))[capacity]["retryCount"] == 1
    wait_until(lambda: first not in world.requests, timeout=10, describe=lambda: "the first request is still there")
    world.answer(second, "Failed", message="still none")
    seen = scenario.wait_workload("asks", lambda w: condition(w, "QuotaReserved").get("status") == "False", timeout=20)
    assert seen["spec"]["active"] is False
    assert condition(seen, "Evicted")["reason"] == "DeactivatedDueToAdmissionCheck"
    assert f'"{capacity}" (still none)' in condition(seen, "Evicted")["message"]
    world.wait_requests_gone()


def test_an_expired_booking_is_repeated_before_the_job_starts(world: World) -> None:
    """While another check is pending the capacity is lost, and asked for again."""
    capacity = world.check(world.config())
    other = check(world.scenario, "budget")
    world.queue(capacity, other)
    world.scenario.job("asks", queue="team")
    first = world.wait_request(capacity)
    world.answer(first, "Provisioned")
    world.wait_state(capacity, "Ready")
    world.answer(first, "BookingExpired")
    second = world.wait_request(capacity, 2)
    evicted = condition(world.scenario.workload_of("asks"), "Evicted")
    assert "Retrying after booking expired: Capacity reservation time is expired" in evicted["message"]
    world.answer(second, "Provisioned")
    world.wait_state(capacity, "Ready")
    answer(world.scenario, "asks", other, "Ready")
    started = world.scenario.wait_started("asks", timeout=20)["spec"]["template"]
    assert started["metadata"]["annotations"][CONSUMES] == second
    world.answer(second, "BookingExpired")  # its pods are on the nodes
    world.scenario.job("later", queue="team")
    world.wait_request(capacity, job="later")
    assert not world.scenario.suspended("asks")


def test_a_job_ends_whose_capacity_is_revoked(world: World) -> None:
    """Its pods could not come back: it is stopped and deactivated while it runs."""
    capacity = world.check(world.config())
    world.queue(capacity)
    world.scenario.job("asks", queue="team")
    name = world.wait_request(capacity)
    world.answer(name, "Provisioned")
    world.scenario.wait_started("asks", timeout=20)
    world.answer(name, "CapacityRevoked", message="taken away")
    world.scenario.wait_suspended("asks", timeout=20)
    seen = world.scenario.wait_workload("asks", lambda w: not w["spec"].get("active", True), timeout=20)
    assert "(taken away)" in condition(seen, "Evicted")["message"]
    world.wait_requests_gone()


def test_what_loses_its_reservation_keeps_its_request(world: World) -> None:
    """A stopped queue takes the quota back, without an eviction: what was booked is for the next reservation."""
    capacity, budget = world.check(world.config()), check(world.scenario, "budget")
    world.queue(capacity, budget)
    world.scenario.job("asks", queue="team")
    name = world.wait_request(capacity)
    with world.autoscaler.playing(world.scenario.namespace):
        world.wait_state(capacity, "Ready")
        full, uid = world.scenario.named("team"), world.requests[name]["metadata"]["uid"]
        world.scenario.patch_queue(full, {"stopPolicy": "Hold"})
        world.wait_state(capacity, "Pending")
        world.scenario.patch_queue(full, {"stopPolicy": "None"})
        world.wait_state(capacity, "Ready")
        answer(world.scenario, "asks", budget, "Ready")
        world.scenario.wait_started("asks", timeout=30)
    assert world.requests[name]["metadata"]["uid"] == uid


def test_two_configurations_are_asked_at_once(world: World) -> None:
    """The job starts when both have answered, if they do not contradict each other."""
    mine = world.check(world.config(), "one")
    other = world.check(world.config("unused", managedResources=["example.com/gpu"]), "two")
    third = check(world.scenario, "budget")
    world.queue(mine, other, third)
    world.scenario.job("asks", queue="team")
    world.wait_state(other, "Ready", message="the provisioning request is not needed")
    world.answer(world.wait_request(mine), "Provisioned")
    world.wait_state(mine, "Ready")
    assert world.scenario.suspended("asks")
    answer(world.scenario, "asks", third, "Ready")
    world.scenario.wait_started("asks", timeout=20)
    assert list(world.requests) == [world.name(mine)]


def test_contradicting_answers_end_the_workload(world: World) -> None:
    """A pod cannot use two requests: the Workload names the check, the key and both values."""
    one, two = world.check(world.config(), "one"), world.check(world.config("second"), "two")
    world.queue(one, two)
    world.scenario.job("asks", queue="team")
    for each in (one, two):
        world.answer(world.wait_request(each), "Provisioned")
    seen = world.scenario.wait_workload("asks", lambda w: condition(w, "Finished").get("status") == "True", timeout=20)
    message = condition(seen, "Finished")["message"]
    assert condition(seen, "Finished")["reason"] == "FailedToStart"
    assert f'in admission check "{two}"' in message
    assert f"conflict for key={CONSUMES}, value1={world.name(one)}, value2={world.name(two)}" in message
    world.wait_requests_gone()


def test_an_edited_configuration_is_asked_for(world: World) -> None:
    """The request is replaced by one of the new class, also under the same name; an answered one stays."""
    config = world.config()
    capacity = world.check(config)
    world.queue(capacity)
    world.scenario.job("asks", queue="team")
    name = world.wait_request(capacity)
    path = resource_path(GROUP, "provisioningrequestconfigs", config)
    world.scenario.api.patch(path, {"spec": {"provisioningClassName": "atomic.example.com"}})

    def replaced() -> bool:
        found = world.requests.get(name)
        return found is not None and found["spec"]["provisioningClassName"] == "atomic.example.com"

    wait_until(replaced, timeout=20, describe=lambda: f"{world.requests}")
    with world.autoscaler.playing(world.scenario.namespace):  # with the templates that it needs
        world.scenario.wait_started("asks", timeout=30)
    uid = world.requests[name]["metadata"]["uid"]
    world.scenario.api.patch(path, {"spec": {"provisioningClassName": "other.example.com"}})
    world.scenario.job("later", queue="team")
    later = world.wait_request(capacity, job="later")
    assert world.requests[later]["spec"]["provisioningClassName"] == "other.example.com"
    assert world.requests[name]["metadata"]["uid"] == uid


def test_a_missing_configuration_closes_the_queue(world: World) -> None:
    """The check and its queue say what is missing, and what waits says it too; both go on when it is there."""
    config = world.scenario.named("config")
    capacity = world.check(config)
    world.queue(capacity)
    world.scenario.job("asks", queue="team")
    path = resource_path(GROUP, "admissionchecks", capacity)

    def told(reason: str, text: str) -> None:
        world.scenario.api.wait_for(
            path,
            lambda found: (
                condition(found, "Active").get("reason") == reason and text in condition(found, "Active")["message"]
            ),
            timeout=15,
        )

    told("BadParametersRef", f'provisioningrequestconfigs.kueue.x-k8s.io "{config}" not found')
    world.scenario.wait_pending("asks", reason="Suspended")
    world.config()
    told("Active", "The admission check is active")
    world.wait_request(capacity)
    world.scenario.api.delete(resource_path(GROUP, "provisioningrequestconfigs", config))
    world.wait_state(capacity, "Pending", message="the check is not active")


def test_a_request_that_is_refused_is_reported(world: World) -> None:
    """The check has the words of the API server, and the request is made once it takes it."""
    config = world.config(parameters={"key": "x"})
    capacity = world.check(config)
    world.queue(capacity)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    quota["metadata"]["namespace"] = world.scenario.namespace  # type: ignore[index]
    world.scenario.create({**quota, "spec": {"hard": {"count/podtemplates": "0"}}})
    path = resource_path("v1", "resourcequotas", "none", namespace=world.scenario.namespace)
    world.scenario.api.wait_for(path, lambda found: found.get("status", {}).get("hard"), timeout=15)
    world.scenario.job("asks", queue="team")
    seen = world.wait_state(capacity, "Pending", message="Error creating PodTemplate")
    assert "exceeded quota" in states(seen)[capacity]["message"]
    world.scenario.wait_event(seen["metadata"]["name"], reason="FailedCreate")
    world.scenario.api.delete(path)
    world.answer(world.wait_request(capacity), "Provisioned")
    world.scenario.wait_started("asks", timeout=20)


@pytest.mark.parametrize("moment", ["created", "provisioned"])
def test_a_restart_changes_nothing(world: World, turnstile: Turnstile, moment: str) -> None:
    """Killed after the request was made, or while the answer comes: the job starts on the same request."""
    capacity = world.check(world.config())
    world.queue(capacity)
    world.scenario.job("asks", queue="team")
    name = world.wait_request(capacity)
    uid = world.requests[name]["metadata"]["uid"]
    turnstile.crash()
    if moment == "provisioned":
        world.answer(name, "Provisioned")
    turnstile.start()
    if moment == "created":
        world.answer(name, "Provisioned")
    world.scenario.wait_started("asks", timeout=60)
    assert world.requests[name]["metadata"]["uid"] == uid
    world.scenario.delete_job("asks")
    world.wait_requests_gone()


def test_the_kind_may_come_later(scenario: Scenario, autoscaler: Autoscaler) -> None:
    """Without the definition the check says what is missing; with it, the job that waited goes on."""
    world = World(scenario, autoscaler)
    autoscaler.remove()
    try:
        capacity = world.check(world.config())
        world.queue(capacity)
        scenario.job("asks", queue="team")
        path = resource_path(GROUP, "admissionchecks", capacity)
        scenario.api.wait_for(
            path, lambda found: "is not installed" in condition(found, "Active").get("message", ""), timeout=30
        )
    finally:
        autoscaler.install()
    world.answer(world.wait_request(capacity), "Provisioned")
    scenario.wait_started("asks", timeout=20)


def test_an_autoscaler_may_serve_the_older_version(scenario: Scenario, autoscaler: Autoscaler) -> None:
    """Requests are created, read and owned in v1beta1 where that is the only version."""
    autoscaler.remove()
    older = Autoscaler(scenario.api, version="v1beta1")
    older.install()
    try:
        world = World(scenario, older)
        capacity = world.check(world.config())
        world.queue(capacity)
        scenario.job("asks", queue="team")
        name = world.wait_request(capacity)
        world.answer(name, "Provisioned")
        scenario.wait_started("asks", timeout=20)
        [owner] = world.wait_templates(1)[0]["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["name"]) == ("autoscaling.x-k8s.io/v1beta1", name)
    finally:
        older.remove()
        autoscaler.install()
