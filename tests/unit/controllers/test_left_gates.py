"""Which pods have the gates lifted that Kueue left in the templates of jobs."""

from typing import Any

import orjson

from tests.unit.controllers.worlds import ADMITTED, RESERVED, condition, decode, workload, world
from turnstile.api.core import Pod
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Patch, RequeueAfter
from turnstile.controllers.workloads import heldpods

TOPOLOGY, ELASTIC, ADMISSION = (f"kueue.x-k8s.io/{name}" for name in ("topology", "elastic-job", "admission"))
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job-uid", "controller": True}


def pod(name: str, *gates: str, cpu: str = "1", **more: Any) -> Pod:
    """A pod of the Job."""
    meta = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [JOB], **more}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    gated = {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {"nodeName": "node"}
    return decode(Pod, {"metadata": meta, "spec": {**spec, **gated}, "status": {"phase": "Pending"}})


def charging(*conditions: dict[str, str], count: int = 2) -> Workload:
    """The Workload of the Job, admitted for pods of one CPU."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {"podSets": [{"name": "main", "count": count, "template": template}]}
    usage = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(count)}, "count": count}
    admission = {"clusterQueue": "cq", "podSetAssignments": [usage]}
    return workload(RESERVED, ADMITTED, *conditions, spec=spec, more_status={"admission": admission})


def lifted(given: Workload, *pods: Pod) -> dict[str, Any]:
    """The gates that are left on each pod that is written."""
    decision = heldpods.lift(given, world(given, *pods))
    actions = decision.actions if decision is not None else []
    return {
        each.name: orjson.loads(each.body)["spec"]["schedulingGates"] for each in actions if isinstance(each, Patch)
    }


def test_as_many_pods_start_as_are_charged_for() -> None:
    """Those that run count; the others keep their gate until there is room."""
    waiting = [pod(name, ELASTIC) for name in "bcd"]
    assert lifted(charging(), pod("a"), *waiting) == {"b": None}
    assert lifted(charging(count=3), pod("a"), *waiting) == {"b": None, "c": None}
    assert lifted(charging(count=1), pod("a"), *waiting) == {}


def test_a_pod_that_requests_more_than_is_charged_for_keeps_its_gate() -> None:
    """Another one takes its place."""
    assert lifted(charging(count=1), pod("a", TOPOLOGY, cpu="2"), pod("b", TOPOLOGY)) == {"b": None}


def test_gates_of_others_stay() -> None:
    """A pod that waits for admission is left alone."""
    given = pod("a", TOPOLOGY, "example.com/mine"), pod("b", ADMISSION, TOPOLOGY)
    assert lifted(charging(), *given) == {"a": [{"name": "example.com/mine"}]}


def test_no_gate_is_lifted_without_an_admission() -> None:
    """Nor while the Workload is evicted, nor from a pod that is being deleted."""
    assert lifted(charging(condition("Evicted", "True", "Preempted")), pod("a", TOPOLOGY)) == {}
    assert lifted(workload(RESERVED, admission=True), pod("a", TOPOLOGY)) == {}
    assert lifted(charging(), pod("a", TOPOLOGY, deletionTimestamp="2026-01-02T03:00:00Z")) == {}


def test_what_no_quota_counts_does_not_keep_a_pod_of_an_elastic_job_gated() -> None:
    """The operator adds a container with memory, which the template does not request."""
    given = charging(count=1)
    flavor = decode(ResourceFlavor, {"metadata": {"name": "f"}})
    given.metadata.annotations = {ELASTIC: "true"}
    made = pod("a", ELASTIC)
    spec: dict[str, Any] = orjson.loads(bytes(made.spec))
    spec["initContainers"] = [{"name": "wait", "resources": {"requests": {"memory": "1Gi"}}}]
    meta = {"name": "a", "namespace": "ns", "uid": "a", "ownerReferences": [JOB]}
    added = decode(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
    decision = heldpods.lift(given, world(given, flavor, added))
    assert decision is not None
    assert [each.name for each in decision.actions if isinstance(each, Patch)] == ["a"]


def test_while_pods_may_be_unknown_it_is_asked_again_later() -> None:
    """Nothing may change when the watch goes on, so nothing else would have the gate lifted."""
    given = charging()
    cluster = world(given, pod("a", ELASTIC))
    cluster.pods.doubt()
    decision = heldpods.lift(given, cluster)
    assert decision is not None
    assert [type(each) for each in decision.actions] == [RequeueAfter]
    assert heldpods.lift(given, world(given)) is None
    given.metadata.annotations = {ELASTIC: "true"}
    surplus = heldpods.stop_surplus(given, cluster)
    assert surplus is not None
    assert [type(each) for each in surplus.actions] == [RequeueAfter]
