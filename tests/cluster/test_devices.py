"""Jobs whose pods claim devices: quota counts their devices, and kube-scheduler allocates them from real slices."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from testbed import ApiError
from testbed.client import Api, Json, condition, resource_path, wait_until
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, Scenario
from turnstile.api.quantity import parse

pytestmark = pytest.mark.cluster

DRA = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"
FILE = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
resources:
  deviceClassMappings:
  - name: example.com/gpus
    deviceClassNames: [{DRIVER}, backing.example.com]
  - name: example.com/gpu-memory
    deviceClassNames: [mig.example.com]
    sources:
    - counter: {{name: memory, driver: mig.example.com, deviceSelector: {{cel: {{expression: "true"}}}}}}
leaderElection: {{leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}}
"""


@pytest.fixture(scope="module")
def installed(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """Turnstile with a mapping for GPUs; a driver's four GPUs on the node, and its DeviceClass."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        publish_devices(found.cp.api, "plain", 4)
        found.start()
        yield found


@pytest.fixture
def world(installed: Configured) -> Iterator[Scenario]:
    """An empty managed namespace."""
    with installed.team() as scenario:
        yield scenario


def publish_devices(api: Api | Scenario, node: str, count: int) -> None:
    """What the kubelet plugin of a driver publishes for a node, and the class that its chart brings."""
    devices = [{"name": f"gpu-{index}", "attributes": {"index": {"int": index}}} for index in range(count)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    api.create({"apiVersion": DRA, "kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"}, "spec": spec})
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    api.create(
        {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {"selectors": selectors}}
    )


def template(
    world: Scenario, count: int = 1, *, name: str = "gpu", device_class: str = DRIVER, selectors: Sequence[str] = ()
) -> Json:
    """Create a ResourceClaimTemplate of one request."""
    exactly = {
        "deviceClassName": device_class,
        "count": count,
        "selectors": [{"cel": {"expression": each}} for each in selectors],
    }
    requests = [{"name": "gpu", "exactly": exactly}]
    meta = {"name": name, "namespace": world.namespace}
    spec = {"spec": {"devices": {"requests": requests}}}
    made = {"apiVersion": DRA, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec}
    return world.create(made)


def claim(world: Scenario, count: int = 1) -> Json:
    """Create a ResourceClaim of one request."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": count}}]
    meta = {"name": "gpu", "namespace": world.namespace}
    return world.create(
        {"apiVersion": DRA, "kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": requests}}}
    )


def claiming(world: Scenario, name: str, *, pods: int = 1, of: str = "resourceClaimTemplateName", **more: Any) -> None:
    """Create a Job whose pods have a claim named gpu."""
    main = {
        "name": "main",
        "image": "registry.example/main:1",
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
    }
    spec = {"containers": [main], "resourceClaims": [{"name": "gpu", of: "gpu"}], **more}
    world.job(name, queue="team", pods=pods, template=spec)


def team(world: Scenario, gpus: int) -> str:
    """A queue with quota for GPUs; its full name."""
    return world.queue("team", {world.flavor("plain"): {"cpu": 9, "example.com/gpus": gpus}})


def wait_held(world: Scenario, name: str, message: str, requeued: str = "") -> None:
    """Until the Workload of a Job has both of Kueue's conditions."""

    def held() -> bool:
        workload = world.workload_of(name)
        told = [
            (each.get("reason"), each.get("message"))
            for each in (condition(workload, kind) for kind in ("QuotaReserved", "Requeued"))
        ]
        return told == [("Misconfigured", message), ("Inadmissible", requeued or message)]

    wait_until(held, timeout=20, describe=lambda: f"not held: {world.workload_of(name).get('status')}")


def charged(world: Scenario, name: str) -> str:
    """The GPUs that the admission of a Job's Workload charges."""
    (assigned,) = world.workload_of(name)["status"]["admission"]["podSetAssignments"]
    return str(assigned["resourceUsage"].get("example.com/gpus", "0"))


def allocated(world: Scenario) -> int:
    """Devices that kube-scheduler has allocated to claims of the namespace."""
    claims = world.api.items(resource_path(DRA, "resourceclaims", namespace=world.namespace))
    return sum(
        len(claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())) for claim in claims
    )


def test_devices_of_claims_are_charged_allocated_and_freed(world: Scenario) -> None:
    """Two pods of two GPUs each fill the quota; the next Job starts when they are gone."""
    team(world, gpus=4)
    template(world, count=2)
    claiming(world, "first", pods=2)
    world.wait_started("first")
    assert charged(world, "first") == "4"
    wait_until(lambda: allocated(world) == 4, timeout=30, describe=lambda: f"{allocated(world)} allocated")
    claiming(world, "second")
    wait_until(
        lambda: "insufficient" in condition(world.workload_of("second"), "QuotaReserved").get("message", ""),
        timeout=20,
        describe=lambda: str(world.workload_of("second").get("status")),
    )
    assert world.suspended("second")
    world.delete_job("first")
    world.wait_started("second", timeout=30)
    wait_until(lambda: allocated(world) == 2, timeout=30, describe=lambda: f"{allocated(world)} allocated")


def test_a_template_that_comes_late_starts_its_job(world: Scenario) -> None:
    """At once: the Job waits with Kueue's sentence until then, and others in its queue start."""
    team(world, gpus=1)
    claiming(world, "late")
    path = "spec.podSets[0].template.spec.resourceClaims[0]"
    missing = (
        f"{path}: Internal error: failed to get claim spec for ResourceClaimTemplate gpu in podset main: "
        'resourceclaimtemplates.resource.k8s.io "gpu" not found'
    )
    wait_held(world, "late", missing)
    world.job("plain", queue="team")
    world.wait_started("plain")
    template(world)
    world.wait_started("late")
    assert charged(world, "late") == "1"
    assert not condition(world.workload_of("late"), "Requeued")


def test_claims_that_are_not_counted_hold_their_job(world: Scenario) -> None:
    """Of a class that no mapping has: the Job says why, as by Kueue."""
    team(world, gpus=9)
    template(world, device_class="unknown.example.com")
    claiming(world, "unmapped")
    told = "DeviceClass unknown.example.com is not mapped in DRA configuration for podset main"
    path = "spec.podSets[0].template.spec.resourceClaims[0].resourceClaimTemplateName"
    wait_held(world, "unmapped", f'{path}: Not found: "{told}"')
    assert world.suspended("unmapped")


def test_a_claim_that_pods_share_is_charged_once(world: Scenario) -> None:
    """However many pods name it; it may come late. Swapped for a larger one before the pods have it, it stops all
    Jobs that name it, whose tenant has held the pods back for that."""
    team(world, gpus=2)
    claiming(world, "shared", pods=3, of="resourceClaimName")
    path = "spec.podSets[0].template.spec.resourceClaims[0]"
    missing = (
        f"{path}: Internal error: failed to get claim spec for ResourceClaim gpu in podset main: "
        'resourceclaims.resource.k8s.io "gpu" not found'
    )
    wait_held(world, "shared", missing)
    claim(world, 2)
    world.wait_started("shared")
    assert charged(world, "shared") == "2"
    wait_until(lambda: allocated(world) == 2, timeout=60, describe=lambda: f"{allocated(world)} allocated")
    world.delete_job("shared")
    for name in ("swaps", "rides"):
        claiming(world, name, of="resourceClaimName", schedulingGates=[{"name": "example.com/later"}])
        world.wait_started(name, timeout=60)
        assert charged(world, name) == "2"
    path = resource_path(DRA, "resourceclaims", "gpu", namespace=world.namespace)
    world.api.delete(path)
    wait_until(lambda: world.api.find(path) is None, timeout=60, describe=lambda: "the claim is still there")
    claim(world, 4)
    for name in ("swaps", "rides"):
        world.wait_suspended(name, timeout=60)
        assert world.workload_of(name)["spec"]["active"] is False
    assert allocated(world) == 0


def held_in(world: Scenario, queue: str) -> str:
    """The GPUs that the status of a ClusterQueue counts as reserved."""
    (flavor,) = world.api.get(resource_path(GROUP, "clusterqueues", queue))["status"]["flavorsReservation"]
    return next(str(each["total"]) for each in flavor["resources"] if each["name"] == "example.com/gpus")


def test_jobs_that_name_one_claim_are_charged_for_it_together(installed: Configured, world: Scenario) -> None:
    """The devices are counted once, and until the last of the Jobs is gone, also if the first goes while no leader
    runs. A Job of another ClusterQueue that names the claim is charged for it too: nobody has devices on the quota of
    another team."""
    flavor = world.flavor("plain")
    queue = world.queue("team", {flavor: {"cpu": 9, "example.com/gpus": 2}})
    strangers = world.queue("strangers", {flavor: {"cpu": 9, "example.com/gpus": 1}})
    claim(world, 2)
    for name in ("first", "second"):
        claiming(world, name, of="resourceClaimName")
        world.wait_started(name)
        assert charged(world, name) == "2"
    main = {"name": "main", "image": "registry.example/main:1", "resources": {"claims": [{"name": "gpu"}]}}
    named = {"containers": [main], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    world.job("rides", queue="strangers", template=named)
    template(world)
    claiming(world, "waits")
    wait_until(lambda: allocated(world) == 2, timeout=60, describe=lambda: f"{allocated(world)} allocated")
    wait_until(lambda: held_in(world, queue) == "2", timeout=30, describe=lambda: held_in(world, queue))
    installed.started[-1].terminate()
    world.delete_job("first")
    installed.start()
    path = resource_path(GROUP, "workloads", namespace=world.namespace)
    wait_until(lambda: len(world.api.items(path)) == 3, timeout=60, describe=lambda: str(world.api.items(path)))
    for name, kept in (("waits", queue), ("rides", strangers)):
        wait_until(
            lambda name=name: "insufficient" in condition(world.workload_of(name), "QuotaReserved").get("message", ""),
            timeout=30,
            describe=lambda name=name, kept=kept: f"{kept}: {world.workload_of(name).get('status')}",
        )
        assert world.suspended(name)
    assert held_in(world, queue) == "2"
    world.delete_job("second")
    world.wait_started("waits", timeout=60)
    wait_until(lambda: held_in(world, queue) == "1", timeout=30, describe=lambda: held_in(world, queue))
    assert world.suspended("rides")


def test_an_extended_resource_is_charged_as_its_device_class_is_mapped(world: Scenario) -> None:
    """From the next reservation on; the class that backs it may come later."""
    resource = f"{world.namespace}.example.com/gpu"
    queue = world.queue("team", {world.flavor("plain"): {"cpu": 9, "example.com/gpus": 1, resource: 0}})
    main = {"name": "main", "image": "registry.example/main:1", "resources": {"limits": {"cpu": "1", resource: "1"}}}
    world.job("extended", queue="team", template={"containers": [main]})
    wait_until(
        lambda: "insufficient" in condition(world.workload_of("extended"), "QuotaReserved").get("message", ""),
        timeout=20,
        describe=lambda: f"{queue}: {world.workload_of('extended').get('status')}",
    )
    spec = {"extendedResourceName": resource}
    world.create({"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": "backing.example.com"}, "spec": spec})
    world.wait_started("extended")
    assert charged(world, "extended") == "1"


def test_a_job_waits_for_devices_that_its_selector_matches(world: Scenario) -> None:
    """Until a driver publishes them; a selector that takes too long is refused with a sentence."""
    team(world, gpus=9)
    expression = f'device.attributes["{DRIVER}"].index == 77'
    template(world, selectors=[expression])
    claiming(world, "job")
    path = "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0].exactly.selectors"
    short = (
        f"{path}: Internal error: ResourceClaimTemplate gpu: insufficient matching devices for CEL selector in "
        f"DeviceClass {DRIVER}: 0 device(s) match in the cluster but 1 requested"
    )
    wait_held(world, "job", short)
    pool = {"name": world.namespace, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "late", "attributes": {"index": {"int": 77}}}]
    spec = {"driver": DRIVER, "nodeName": "plain", "pool": pool, "devices": devices}
    meta = {"name": world.named("late")}
    world.create({"apiVersion": DRA, "kind": "ResourceSlice", "metadata": meta, "spec": spec})
    world.wait_started("job", timeout=20)


def test_partitions_are_charged_by_their_counter(world: Scenario) -> None:
    """Two partitions of 10Gi each."""
    name = "mig.example.com"
    api = world.api
    pool = {"name": "mig", "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]
    consumes = [{"counterSet": "gpu", "counters": {"memory": {"value": "10Gi"}}}]
    devices = [{"name": f"mig-{index}", "consumesCounters": consumes} for index in range(4)]
    for part, more in (("counters", {"sharedCounters": counters}), ("devices", {"devices": devices})):
        spec = {"driver": name, "nodeName": "plain", "pool": pool, **more}
        meta = {"name": world.named(part)}
        world.create({"apiVersion": DRA, "kind": "ResourceSlice", "metadata": meta, "spec": spec})
    selectors = [{"cel": {"expression": f'device.driver == "{name}"'}}]
    world.create(
        {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}
    )
    assert api.get(resource_path(DRA, "resourceslices", world.named("devices")))["spec"]["devices"][0][
        "consumesCounters"
    ]
    world.queue("team", {world.flavor("plain"): {"cpu": 9, "example.com/gpu-memory": "20Gi"}})
    template(world, count=2, device_class=name)
    claiming(world, "job")
    world.wait_started("job", timeout=20)
    (assigned,) = world.workload_of("job")["status"]["admission"]["podSetAssignments"]
    assert parse(assigned["resourceUsage"]["example.com/gpu-memory"]) == 20 << 30


def test_charges_stay_over_a_restart(installed: Configured, world: Scenario) -> None:
    """Also if the template went meanwhile: the charge is that of the admission."""
    team(world, gpus=2)
    made = template(world, count=2)
    claiming(world, "first")
    world.wait_started("first")
    claiming(world, "second")
    installed.started[-1].terminate()
    world.api.delete(world.api.path_of(made))
    installed.start()
    template(world, count=1)
    wait_until(
        lambda: "insufficient" in condition(world.workload_of("second"), "QuotaReserved").get("message", ""),
        timeout=30,
        describe=lambda: str(world.workload_of("second").get("status")),
    )
    assert charged(world, "first") == "2"
    world.delete_job("first")
    world.wait_started("second", timeout=30)
    assert charged(world, "second") == "1"


def test_a_template_that_is_swapped_after_the_admission_stops_its_job(world: Scenario) -> None:
    """A tenant with quota for two GPUs makes the template anew, with three, once the Job is admitted; quota is kept
    until the pods are gone. A template with less changes nothing."""
    team(world, gpus=2)
    made = template(world, count=2)
    claiming(world, "job")
    world.wait_started("job")
    world.api.delete(world.api.path_of(made))
    template(world, count=1)
    world.job("other", queue="team")
    world.wait_started("other")
    assert world.workload_of("job")["spec"].get("active", True)
    world.api.delete(world.api.path_of(made))
    template(world, count=3)
    world.wait_suspended("job", timeout=20)
    assert world.workload_of("job")["spec"]["active"] is False
    path = resource_path("v1", "events", namespace=world.namespace)

    def told() -> list[str]:
        return [each["message"] for each in world.api.items(path) if each["reason"] == "NotCharged"]

    wait_until(
        lambda: any("asks for 3 example.com/gpus" in each for each in told()), timeout=20, describe=lambda: str(told())
    )


def test_a_claim_whose_devices_pods_use_stays(installed: Configured, world: Scenario) -> None:
    """A tenant takes the finalizer of Kubernetes off the claim of a pod that runs, to make another of its name: pods
    that start later would get further devices on the same charge. The claim goes once its Job is gone."""
    team(world, gpus=2)
    claim(world, 2)
    claiming(world, "uses", of="resourceClaimName")
    wait_until(lambda: allocated(world) == 2, timeout=60, describe=lambda: f"{allocated(world)} allocated")
    path = resource_path(DRA, "resourceclaims", "gpu", namespace=world.namespace)
    edit = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "edit", "namespace": world.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dana"}],
    }
    world.create(edit)
    tenant = installed.cp.api_as("dana")
    tenant.delete(path)
    with pytest.raises(ApiError, match="devices are allocated to the claim, and pods may use them"):
        tenant.patch(path, {"metadata": {"finalizers": None}})
    world.delete_job("uses")
    wait_until(lambda: world.api.find(path) is None, timeout=60, describe=lambda: "the claim is still there")


def test_the_page_of_devices(installed: Configured) -> None:
    """Every manifest is applied, every command run."""
    page = Reader("devices.md", installed.cp)
    page.skip("yaml")
    page.do()
    page.do()
    page.see('resourceclaimtemplates.resource.k8s.io "one-gpu" not found')
    page.do()
    page.see('"example.com/gpus":"2"')
    page.end()
    api = installed.cp.api
    api.delete(resource_path("batch/v1", "jobs", "train", namespace="vision"))
    api.delete(resource_path(GROUP, "clusterqueues", "vision"))
