"""`turnstile what-if` on a real cluster: what it says of a change is what happens when the change is made."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from testbed import ControlPlane
from testbed.client import Json, resource_path, wait_until
from tests.cluster.command import turnstile
from tests.cluster.scenario import GROUP, Scenario, job, resource_groups

pytestmark = pytest.mark.cluster

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(control_plane: ControlPlane, scenario: Scenario) -> Ask:
    """Asks about manifests, or with other arguments."""

    def asking(*arguments: str, manifests: tuple[Json, ...] = ()) -> dict[str, Any]:
        files = ["-f", "-"] if manifests else []
        where = ["-n", scenario.namespace, "--kubeconfig", str(control_plane.kubeconfig()), "-o", "json"]
        code, out, err = turnstile("what-if", *files, *arguments, *where, text=yaml.safe_dump_all(manifests))
        assert code == 0, err
        told: dict[str, Any] = json.loads(out)
        return told

    return asking


def effects(told: dict[str, Any], scenario: Scenario) -> list[tuple[str, str]]:
    """Effects on Workloads of the scenario, by the name of the Job."""
    names = {scenario.workload_of(each)["metadata"]["name"]: each for each in ("runs", "waits")}
    found = [(names.get(each["workload"].partition("/")[2], ""), each["what"]) for each in told["effects"]]
    return sorted(each for each in found if each[0])


class TestAClusterInUse:
    """A queue of 4 cpus, in which a Job of 3 runs and another of 2 waits."""

    @pytest.fixture(autouse=True)
    def jobs(self, scenario: Scenario) -> str:
        """The name of the ClusterQueue."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": "4"}}, preemption={"withinClusterQueue": "LowerPriority"})
        scenario.job("runs", queue="team", cpu="3")
        scenario.wait_admitted("runs")
        scenario.job("waits", queue="team", cpu="2")
        scenario.wait_pending("waits")
        return queue

    def test_a_job_that_preempts(self, scenario: Scenario, ask: Ask) -> None:
        """Predicted, then made: the same Workload as the controller's, the same victim, the same that is admitted."""
        urgent = scenario.priority_class("urgent", 9)
        manifest = job(
            "new",
            namespace=scenario.namespace,
            queue="team",
            cpu="2",
            labels={"kueue.x-k8s.io/priority-class": urgent},
        )
        told = ask(manifests=(manifest,))
        (verdict,) = told["asked"]
        victim = scenario.workload_of("runs")["metadata"]["name"]
        assert verdict["outcome"] == "admitted"
        assert verdict["preempts"] == [f"{scenario.namespace}/{victim}"]
        assert effects(told, scenario) == [("runs", "preempted"), ("waits", "admitted")]

        scenario.create(manifest)

        scenario.wait_started("new", timeout=30)
        scenario.wait_started("waits", timeout=30)
        scenario.wait_suspended("runs", timeout=30)
        assignments = scenario.workload_of("new")["status"]["admission"]["podSetAssignments"]
        assert [each["flavors"] for each in assignments] == verdict["flavors"]

    def test_a_queue_is_drained(self, scenario: Scenario, ask: Ask, jobs: str) -> None:
        """Predicted, then stopped: who runs is evicted, and who waits goes on waiting."""
        path = resource_path(GROUP, "clusterqueues", jobs)
        spec = scenario.api.get(path)["spec"] | {"stopPolicy": "HoldAndDrain"}
        manifest = {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": jobs}, "spec": spec}
        told = ask(manifests=(manifest,))
        assert effects(told, scenario) == [("runs", "evicted"), ("waits", "starves")]
        (evicted,) = [each for each in told["effects"] if each["what"] == "evicted"]

        scenario.patch_queue(jobs, {"stopPolicy": "HoldAndDrain"})

        scenario.wait_suspended("runs", timeout=30)
        conditions = {each["type"]: each for each in scenario.workload_of("runs")["status"]["conditions"]}
        assert (conditions["Evicted"]["reason"], conditions["Evicted"]["message"]) == (
            evicted["reason"],
            evicted["message"],
        )

    def test_a_quota_is_cut(self, scenario: Scenario, ask: Ask, jobs: str) -> None:
        """Predicted, then cut: nobody is evicted, and who waits is told that it never fits."""
        path = resource_path(GROUP, "clusterqueues", jobs)
        groups = resource_groups({scenario.named("plain"): {"cpu": "1"}})
        spec = scenario.api.get(path)["spec"] | {"resourceGroups": groups}
        manifest = {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": jobs}, "spec": spec}
        told = ask(manifests=(manifest,))
        assert effects(told, scenario) == [("waits", "starves")]
        assert [each["what"] for each in told["queues"] if each["cluster_queue"] == jobs] == ["over quota"]

        scenario.patch_queue(jobs, {"resourceGroups": groups})

        def never_fits() -> bool:
            conditions = scenario.workload_of("waits")["status"]["conditions"]
            return any("maximum capacity (1)" in each["message"] for each in conditions)

        wait_until(never_fits, timeout=30, describe=lambda: "waits is told that it never fits")
        assert not scenario.suspended("runs")


class TestWhatTheClusterAdds:
    """What a manifest does not say itself."""

    def test_limit_ranges(self, scenario: Scenario, ask: Ask) -> None:
        """A pod without requests asks for the default of its namespace; the reason is the one that is written then."""
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": "4"}})
        limits = [{"type": "Container", "defaultRequest": {"cpu": "5"}}]
        meta = {"name": "limits", "namespace": scenario.namespace}
        scenario.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": limits}})
        manifest = job("new", namespace=scenario.namespace, queue="team")
        del manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
        (verdict,) = ask(manifests=(manifest,))["asked"]
        assert verdict["outcome"] == "starves"
        assert "asks for 5 CPUs" in verdict["explanation"]

        scenario.create(manifest)

        assert scenario.wait_pending("new", reason=verdict["reason"], timeout=30)["message"] == verdict["message"]
