"""`turnstile explain` on a real cluster: it says why a Job waits, and what it proposes works."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import ControlPlane
from tests.cluster.command import turnstile
from tests.cluster.scenario import Scenario, resource_groups

pytestmark = pytest.mark.cluster


def run(*arguments: str | Path, text: str = "") -> tuple[int, str, str]:
    """Exit code, output and complaints of the command."""
    return turnstile("explain", *arguments, text=text)


class TestAJobThatWaits:
    """A queue of 2 cpus, in which one Job runs and another waits."""

    @pytest.fixture
    def waits(self, scenario: Scenario) -> str:
        """The name of the ClusterQueue."""
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": "2"}})
        scenario.job("runs", queue="team", cpu="1")
        scenario.wait_admitted("runs")
        scenario.job("waits", queue="team", cpu="2")
        scenario.wait_pending("waits")
        return queue

    def explained(self, control_plane: ControlPlane, scenario: Scenario, target: str) -> dict[str, Any]:
        """What is told of an object of the scenario."""
        code, out, err = run(target, "-n", scenario.namespace, "--kubeconfig", control_plane.kubeconfig(), "-o", "json")
        assert code == 0, err
        told: dict[str, Any] = json.loads(out)
        return told

    def test_it_is_told_what_is_short_and_a_remedy_works(
        self, control_plane: ControlPlane, scenario: Scenario, waits: str
    ) -> None:
        """The quota is raised by what was said, and the Job starts."""
        told = self.explained(control_plane, scenario, "waits")
        where, holder = f"{scenario.named('plain')} nodes", f"{scenario.namespace}/runs"
        assert told["sentence"] == f"Waits for 1 more CPU on {where}: asks 2, 1 free; {holder} holds it."
        assert told["job"] == f"{scenario.namespace}/waits"
        assert told["blockers"][0]["holders"] == [{"cluster_queue": waits, "amount": "1", "hidden": False}]
        does = [each["does"] for each in told["remedies"]]
        assert does[0] == "ask for 1 CPU instead of 2 in each pod"
        assert f"raise the nominal quota of ClusterQueue {waits} for {scenario.named('plain')} nodes by 1 CPU" in does
        scenario.patch_queue(waits, {"resourceGroups": resource_groups({scenario.named("plain"): {"cpu": "3"}})})
        scenario.wait_started("waits")
        assert self.explained(control_plane, scenario, "job/waits")["state"] == "admitted"

    def test_for_people_and_of_a_dump(self, control_plane: ControlPlane, scenario: Scenario, waits: str) -> None:
        """The same is told of what kubectl prints, without a cluster."""
        kinds = "namespaces,resourceflavors,cohorts,clusterqueues,localqueues,workloads"
        dump = control_plane.kubectl("get", "-A", "-o", "yaml", kinds)
        name = scenario.workload_of("waits")["metadata"]["name"]
        where = ("-n", scenario.namespace)
        live = run(f"workload/{name}", *where, "--kubeconfig", control_plane.kubeconfig())
        assert live[0] == 0, live[2]
        assert run("job/waits", *where, "--state", "-", text=dump) == live
        assert "Each of these alone would admit it now:" in live[1]
        assert "It is the first in line of its ClusterQueue." in live[1]

    def test_a_user_of_the_namespace_alone(self, control_plane: ControlPlane, scenario: Scenario, waits: str) -> None:
        """What may not be read is said; the condition of the Workload still tells why."""
        user = f"user-{scenario.namespace}"
        rules = [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": ["get", "list"]}]
        where = {"namespace": scenario.namespace}
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        scenario.create({**kind, "kind": "Role", "metadata": {"name": "reader", **where}, "rules": rules})
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "reader", **where}, "subjects": [subject], "roleRef": role}
        scenario.create({**kind, "kind": "RoleBinding", **binding})
        code, out, err = run("job/waits", "-n", scenario.namespace, "--kubeconfig", control_plane.kubeconfig(user))
        assert code == 0, err
        assert f"Why: Waits for 1 more CPU on {scenario.named('plain')} nodes." in out
        assert "This answer is not complete: you may not list" in out


def test_what_does_not_exist(control_plane: ControlPlane, scenario: Scenario) -> None:
    """One sentence, and exit code 2."""
    kubeconfig = ("--kubeconfig", control_plane.kubeconfig())
    code, out, err = run("job/nothing", "-n", scenario.namespace, *kubeconfig)
    assert (code, out) == (2, "")
    assert err == f'error: There is no Job "nothing" in namespace {scenario.namespace}.\n'
    code, _, err = run("", *kubeconfig)
    assert code == 2
    assert "give the name of a job, or KIND/NAME" in err
