"""Nodes and pods that are simulated behave like real ones as far as a queue can tell."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed import Api, ControlPlane, resource_path
from testbed.client import condition
from testbed.components import EXIT_CODE, KILLED_IN_TIME, RUN_FOR, STOP_FOR

Maker = Callable[..., dict[str, Any]]


def phase(wanted: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a pod is in a phase."""
    return lambda pod: pod["status"].get("phase") == wanted


class TestNodes:
    """Nodes come ready and go with their pods."""

    def test_node_is_ready_and_has_its_capacity(self, control_plane: ControlPlane, api: Api) -> None:
        """add_node returns when pods can land on the node; extra resources are allocatable."""
        try:
            node = control_plane.add_node(
                "big", taints=["gpu=true:NoSchedule"], cpu=64, memory="1Ti", extra={"example.com/gpu": 8}
            )
            assert condition(node, "Ready")["status"] == "True"
            assert node["spec"]["taints"] == [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]
            assert node["status"]["allocatable"] == {
                "cpu": "64", "memory": "1Ti", "pods": "110", "example.com/gpu": "8",
            }  # fmt: skip
        finally:
            control_plane.remove_node("big")

    def test_a_removed_node_takes_its_pods(
        self, control_plane: ControlPlane, api: Api, make_pod: Maker, node: str
    ) -> None:
        """No pod is left that claims to run on a node that is gone."""
        pod = api.create(make_pod("a"))
        api.wait_for(api.path_of(pod), phase("Running"))
        control_plane.remove_node(node)
        api.wait_gone(api.path_of(pod))

    def test_bad_taint_is_named(self, control_plane: ControlPlane) -> None:
        """A taint text without an effect is refused before anything is created."""
        with pytest.raises(ValueError, match="taint: 'gpu=true' is not of the form"):
            control_plane.add_node("never", taints=["gpu=true"])


class TestPods:
    """Pods are bound, run, end and stop."""

    def test_pod_runs_on_the_node_it_asks_for(self, api: Api, make_pod: Maker, node: str) -> None:
        """The scheduler binds it, kwok runs it, and it goes on running."""
        pod = api.wait_for(api.path_of(api.create(make_pod("a"))), phase("Running"))
        assert pod["spec"]["nodeName"] == node
        assert condition(pod, "Ready")["status"] == "True"

    def test_pod_that_fits_nowhere_stays_pending(self, api: Api, make_pod: Maker) -> None:
        """The real scheduler says why."""
        pod = make_pod("a", nodeSelector={"pool": "no-such-pool"})
        seen = api.wait_for(api.path_of(api.create(pod)), lambda obj: condition(obj, "PodScheduled"))
        assert condition(seen, "PodScheduled")["reason"] == "Unschedulable"

    def test_gated_pod_waits_for_its_gate(self, api: Api, make_pod: Maker) -> None:
        """A scheduling gate holds the pod until it is lifted."""
        pod = api.create(make_pod("a", schedulingGates=[{"name": "example.com/wait"}]))
        path = api.path_of(pod)
        api.wait_for(path, lambda obj: condition(obj, "PodScheduled").get("reason") == "SchedulingGated")
        api.patch(path, {"spec": {"schedulingGates": []}})
        api.wait_for(path, phase("Running"))

    def test_pod_ends_after_its_time(self, api: Api, make_pod: Maker) -> None:
        """The annotation run-for ends the pod with success."""
        pod = api.create(make_pod("a", {RUN_FOR: "200ms"}))
        done = api.wait_for(api.path_of(pod), phase("Succeeded"))
        assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0

    def test_pod_fails_with_its_exit_code(self, api: Api, make_pod: Maker) -> None:
        """The annotation exit-code makes the end a failure."""
        pod = api.create(make_pod("a", {RUN_FOR: "0s", EXIT_CODE: "3"}))
        done = api.wait_for(api.path_of(pod), phase("Failed"))
        assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3

    def test_deleted_pod_stops_first(self, api: Api, make_pod: Maker) -> None:
        """With stop-for the pod is seen terminating, then failed with SIGTERM's code, then gone."""
        path = api.path_of(api.create(make_pod("a", {STOP_FOR: "300ms"})))
        api.wait_for(path, phase("Running"))
        api.delete(path)
        assert api.get(path)["metadata"]["deletionTimestamp"]
        api.wait_gone(path)

    def test_deleted_pod_is_killed_when_its_grace_period_is_over(self, api: Api, make_pod: Maker) -> None:
        """With killed-in-time a pod that would take long to stop ends with its grace period, also a shortened one."""
        made = make_pod("a", {STOP_FOR: "1h", KILLED_IN_TIME: "true"})
        path = api.path_of(api.create(made))
        api.wait_for(path, phase("Running"))
        api.delete(path, grace_seconds=31536000)
        assert api.get(path)["metadata"]["deletionGracePeriodSeconds"] == 31536000
        api.delete(path, grace_seconds=1)
        api.wait_gone(path)


class TestJobs:
    """Jobs complete, fail and suspend."""

    def test_job_completes(self, api: Api, make_job: Maker) -> None:
        """Three pods with a time each, and the Job is complete."""
        job = api.create(make_job("a", {RUN_FOR: "100ms"}, completions=3, parallelism=2))
        done = api.wait_for(api.path_of(job), lambda obj: condition(obj, "Complete"), timeout=30)
        assert done["status"]["succeeded"] == 3

    def test_job_runs_until_it_is_finished(self, control_plane: ControlPlane, api: Api, make_job: Maker) -> None:
        """Without an annotation a pod runs on; finish_job ends it now."""
        job = api.create(make_job("a"))
        path = api.path_of(job)
        api.wait_for(path, lambda obj: obj["status"].get("ready") == 1)
        control_plane.finish_job(job["metadata"]["namespace"], "a")
        api.wait_for(path, lambda obj: condition(obj, "Complete"), timeout=30)

    def test_job_fails(self, control_plane: ControlPlane, api: Api, make_job: Maker) -> None:
        """finish_job with an exit code fails the Job."""
        job = api.create(make_job("a"))
        api.wait_for(api.path_of(job), lambda obj: obj["status"].get("active") == 1)
        control_plane.finish_job(job["metadata"]["namespace"], "a", exit_code=1)
        api.wait_for(api.path_of(job), lambda obj: condition(obj, "Failed"), timeout=30)

    @pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
    def test_suspended_job_stops_its_pods(self, api: Api, make_job: Maker, policy: str) -> None:
        """Suspending takes the pods away, whichever way the Job counts terminating ones."""
        job = api.create(make_job("a", podReplacementPolicy=policy))
        path = api.path_of(job)
        api.wait_for(path, lambda obj: obj["status"].get("ready") == 1)
        api.patch(path, {"spec": {"suspend": True}})
        seen = api.wait_for(path, lambda obj: condition(obj, "Suspended").get("status") == "True")
        assert not seen["status"].get("active")
        pods = resource_path("v1", "pods", namespace=job["metadata"]["namespace"])
        api.wait_for(pods, lambda listed: not listed["items"], describe="no pod left")
