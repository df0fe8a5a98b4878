"""Lifecycles of jobs that are placed on racks, that grow while they run, and whose pods claim devices."""

from typing import Final

from testbed import nodes
from testbed.client import resource_path, wait_until
from testbed.components import STOP_FOR
from tests.cluster import test_devices as devices
from tests.cluster.racks import Racks
from tests.cluster.scenario import Scenario, job
from tests.cluster.serving import PRIORITY
from tests.cluster.test_elastic_jobs import ELASTIC, bound, scale, sizes
from tests.faults.steps import WAIT, becomes, end_pod, queue, running, started, waits

INDEX: Final = "batch.kubernetes.io/job-completion-index"
CLAIMING: Final = """
resources:
  deviceClassMappings:
  - {name: example.com/gpus, deviceClassNames: [gpu.example.com]}
"""


def racks_of(scenario: Scenario, hosts: dict[str, list[int]]) -> Racks:
    """Racks whose nodes go with the scenario."""

    def add(name: str, **options: object) -> str:
        scenario.create(nodes.node(name, **options))  # type: ignore[arg-type]
        path = resource_path("v1", "nodes", name)
        scenario.api.wait_for(path, nodes.is_ready, timeout=WAIT, describe="Ready and untainted")
        return name

    return Racks(scenario, add, hosts)


def _placed(racks: Racks, name: str, wanted: list[str]) -> None:
    """Until pods of a Job run on these nodes, in the order of their indexes."""

    def found() -> list[str]:
        pods = [each for each in racks.scenario.pods_of(name) if each["status"].get("phase") == "Running"]
        live = [each for each in pods if not each["metadata"].get("deletionTimestamp")]
        live.sort(key=lambda each: int(each["metadata"]["labels"][INDEX]))
        return [racks.short(each["spec"]["nodeName"]) for each in live]

    wait_until(lambda: found() == wanted, timeout=WAIT, describe=lambda: f"pods run on {found()}, not on {wanted}")


def gang_on_a_rack(scenario: Scenario) -> None:
    """The node of a pod is to be rid of its pods: a new pod of the same rank runs on another node of the rack."""
    racks = racks_of(scenario, {"r1": [1, 1, 1, 1], "r2": [1, 1]})
    racks.queue(9)
    racks.job("gang", 3, indexed=True, required=racks.rack)
    _placed(racks, "gang", ["r1-0", "r1-1", "r1-2"])
    taints = [{"key": "example.com/maintenance", "effect": "NoExecute"}]
    scenario.api.patch(resource_path("v1", "nodes", scenario.named("r1-1")), {"spec": {"taints": taints}})
    _placed(racks, "gang", ["r1-0", "r1-3", "r1-2"])


def rack_freed_by_preemption(scenario: Scenario) -> None:
    """There is quota for two gangs, and one rack that is large enough: the gang of higher priority gets that."""
    racks = racks_of(scenario, {"r1": [1, 1, 1], "r2": [1]})
    racks.queue(9, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    racks.job("low", 2, indexed=True, required=racks.rack, labels={PRIORITY: low})
    _placed(racks, "low", ["r1-0", "r1-1"])
    racks.job("high", 3, indexed=True, required=racks.rack, labels={PRIORITY: high})
    becomes(scenario, "low", "Evicted", reason="Preempted")
    _placed(racks, "high", ["r1-0", "r1-1", "r1-2"])
    waits(scenario, "low")


def growing_job(scenario: Scenario) -> None:
    """A Job grows within the quota, waits for more than that, gets it, and shrinks."""
    queue(scenario, 3)
    body = job("grows", namespace=scenario.namespace, queue="team", pods=1)
    body["metadata"]["annotations"] = {ELASTIC: "true"}
    body["spec"] |= {"completions": 100, "backoffLimit": 9}
    body["spec"]["template"]["metadata"]["annotations"] |= {STOP_FOR: "100ms"}
    scenario.create(body)
    _grown(scenario, 1, [(1, True)])
    scenario.job("beside", queue="team")
    started(scenario, "beside")
    running(scenario, 2)
    scale(scenario, 2)
    _grown(scenario, 2, [(2, True)])
    scale(scenario, 3)
    _grown(scenario, 2, [(2, True), (3, False)])
    (pod,) = scenario.pods_of("beside")
    end_pod(scenario, pod["metadata"]["name"])
    becomes(scenario, "beside", "Finished")
    _grown(scenario, 3, [(3, True)])
    scale(scenario, 1)
    _grown(scenario, 1, [(1, True)])


def _grown(scenario: Scenario, pods: int, slices: list[tuple[int, bool]]) -> None:
    """Until so many pods of the Job run, and its unfinished slices have so many pods and are admitted."""

    def found() -> tuple[int, list[tuple[int, bool]]]:
        return bound(scenario), sizes(scenario)

    wait_until(lambda: found() == (pods, slices), timeout=WAIT, describe=lambda: f"{found()}, not {pods}, {slices}")


def claimed_devices(scenario: Scenario) -> None:
    """A Job whose pods claim devices waits for the quota of another one, and gets its devices."""
    devices.publish_devices(scenario, "plain-0", 2)
    devices.template(scenario)
    devices.team(scenario, 2)
    devices.claiming(scenario, "first", pods=2)
    started(scenario, "first")
    running(scenario, 2)
    devices.claiming(scenario, "second")
    waits(scenario, "second")
    scenario.delete_job("first")
    started(scenario, "second")
    running(scenario, 1)
    wait_until(
        lambda: devices.allocated(scenario) == 1,
        timeout=WAIT,
        describe=lambda: f"{devices.allocated(scenario)} devices are allocated, not 1",
    )
