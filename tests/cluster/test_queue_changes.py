"""`kubectl turnstile` create, stop, resume, delete and what is passed on to kubectl, against a real API server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from testbed import Api, ControlPlane
from testbed.client import Json, resource_path
from tests.cluster.queue_commands import Done, Program, job, plugin, workload
from tests.cluster.schema_server import API_VERSION, thing

pytestmark = pytest.mark.cluster

PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def turnstile(schema_server: ControlPlane) -> Program:
    """The program, with all rights."""
    return plugin(schema_server)


@pytest.fixture(scope="module")
def team(schema_server: ControlPlane) -> str:
    """A namespace."""
    return schema_server.namespace("changed")


def found(api: Api, plural: str, name: str, namespace: str | None = None) -> Json:
    """The spec of an object."""
    spec: Json = api.get(resource_path(API_VERSION, plural, name, namespace=namespace))["spec"]
    return spec


class TestCreate:
    def test_a_cluster_queue(self, turnstile: Program, crd_api: Api) -> None:
        """Flavors with the same resources are one group; every option is in the spec."""
        done = turnstile(
            *("create", "clusterqueue", "made", "--cohort", "all", "--queuing-strategy", "StrictFIFO"),
            *("--namespace-selector", "team=a,tier=b", "--reclaim-within-cohort", "Any"),
            *("--preemption-within-cluster-queue", "LowerPriority"),
            *("--nominal-quota", "alpha:cpu=9;memory=36Gi,beta:memory=72Gi;cpu=18"),
            *("--borrowing-limit", "alpha:cpu=1;memory=1Gi", "--lending-limit", "alpha:cpu=2;memory=2Gi"),
        )
        assert (done.code, done.out) == (0, "clusterqueue.kueue.x-k8s.io/made created\n"), done.err
        spec = found(crd_api, "clusterqueues", "made")
        [group] = spec["resourceGroups"]
        assert group["coveredResources"] == ["cpu", "memory"]
        alpha, beta = group["flavors"]
        assert alpha["resources"] == [
            {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1", "lendingLimit": "2"},
            {"name": "memory", "nominalQuota": "36Gi", "borrowingLimit": "1Gi", "lendingLimit": "2Gi"},
        ]
        assert [each["nominalQuota"] for each in beta["resources"]] == ["18", "72Gi"]
        assert (spec["cohortName"], spec["queueingStrategy"]) == ("all", "StrictFIFO")
        assert spec["namespaceSelector"] == {"matchLabels": {"team": "a", "tier": "b"}}
        assert spec["preemption"]["reclaimWithinCohort"] == "Any"
        assert spec["preemption"]["withinClusterQueue"] == "LowerPriority"

    def test_a_flavor(self, turnstile: Program, crd_api: Api) -> None:
        """Labels, taints and tolerations in kueuectl's short form."""
        done = turnstile(
            *("create", "rf", "made", "--node-labels", "arch=arm64,os=linux", "--node-taints", "a=b:NoSchedule"),
            *("--tolerations", "key1=value:NoSchedule,key2:NoExecute,key3,:PreferNoSchedule"),
        )
        assert done.out == "resourceflavor.kueue.x-k8s.io/made created\n", done.err
        spec = found(crd_api, "resourceflavors", "made")
        assert spec["nodeLabels"] == {"arch": "arm64", "os": "linux"}
        assert spec["nodeTaints"] == [{"key": "a", "value": "b", "effect": "NoSchedule"}]
        assert spec["tolerations"] == [
            {"key": "key1", "operator": "Equal", "value": "value", "effect": "NoSchedule"},
            {"key": "key2", "operator": "Exists", "effect": "NoExecute"},
            {"key": "key3", "operator": "Exists"},
            {"operator": "Exists", "effect": "PreferNoSchedule"},
        ]

    def test_a_local_queue_needs_its_cluster_queue(self, turnstile: Program, crd_api: Api, team: str) -> None:
        """It is not created for a ClusterQueue that is not there, but on request."""
        refused = turnstile("create", "lq", "main", "-c", "nowhere", "-n", team)
        assert refused.code == 2
        assert refused.err.startswith("error: --clusterqueue nowhere: not found; --ignore-unknown-cq creates")
        done = turnstile("create", "lq", "main", "-c", "nowhere", "-n", team, "-i")
        assert done.out == "localqueue.kueue.x-k8s.io/main created\n", done.err
        assert found(crd_api, "localqueues", "main", team) == {"clusterQueue": "nowhere", "stopPolicy": "None"}

    def test_what_is_there_already(self, turnstile: Program, crd_api: Api) -> None:
        """The API server's word, as an error in one sentence."""
        crd_api.create(thing("ResourceFlavor", "twice", {}))
        done = turnstile("create", "rf", "twice")
        assert done.code == 2
        assert done.err == (
            'error: the API server refuses: 409 AlreadyExists: resourceflavors.kueue.x-k8s.io "twice" already exists\n'
        )

    def test_a_server_dry_run_creates_nothing(self, turnstile: Program, crd_api: Api) -> None:
        """What the API server would have made is printed, with its defaults."""
        done = turnstile("create", "cq", "tried", "--dry-run", "server")
        assert done.out == "clusterqueue.kueue.x-k8s.io/tried created (server dry run)\n"
        shown = yaml.safe_load(turnstile("create", "cq", "tried", "--dry-run", "server", "-o", "yaml").out)
        assert shown["metadata"]["uid"]
        assert crd_api.find(resource_path(API_VERSION, "clusterqueues", "tried")) is None


class TestStopAndResume:
    @pytest.mark.parametrize(
        ("kind", "options", "policy"),
        [
            ("clusterqueue", [], "HoldAndDrain"),
            ("cq", ["--keep-already-running"], "Hold"),
            ("localqueue", [], "HoldAndDrain"),
            ("lq", ["--keep-already-running"], "Hold"),
        ],
    )
    def test_queues(
        self, turnstile: Program, crd_api: Api, team: str, kind: str, options: list[str], policy: str
    ) -> None:
        """A queue is drained, or held on request, and resumed."""
        name, local = f"stop-{kind}", kind in ("localqueue", "lq")
        plural, word, where = ("localqueues", "localqueue", team) if local else ("clusterqueues", "clusterqueue", None)
        spec = {"clusterQueue": "any"} if local else {}
        crd_api.create(thing("LocalQueue" if local else "ClusterQueue", name, spec, namespace=where or ""))
        tried = turnstile("stop", kind, name, "-n", team, "--dry-run", "server")
        assert tried.out == f"{word}.kueue.x-k8s.io/{name} stopped (server dry run)\n", tried.err
        assert found(crd_api, plural, name, where)["stopPolicy"] == "None"
        assert turnstile("stop", kind, name, "-n", team, *options).out == f"{word}.kueue.x-k8s.io/{name} stopped\n"
        assert found(crd_api, plural, name, where)["stopPolicy"] == policy
        assert turnstile("resume", kind, name, "-n", team).out == f"{word}.kueue.x-k8s.io/{name} resumed\n"
        assert found(crd_api, plural, name, where)["stopPolicy"] == "None"

    def test_a_workload(self, turnstile: Program, crd_api: Api, team: str) -> None:
        """It is deactivated and activated again."""
        crd_api.create(workload("stopped", team))
        assert turnstile("stop", "wl", "stopped", "-n", team).out == "workload.kueue.x-k8s.io/stopped stopped\n"
        assert found(crd_api, "workloads", "stopped", team)["active"] is False
        shown = turnstile("resume", "wl", "stopped", "-n", team, "--dry-run", "client", "-o", "yaml").out
        assert yaml.safe_load(shown)["spec"]["active"] is True
        assert found(crd_api, "workloads", "stopped", team)["active"] is False
        turnstile("resume", "workload", "stopped", "-n", team)
        assert found(crd_api, "workloads", "stopped", team)["active"] is True

    def test_what_is_not_there(self, turnstile: Program, team: str) -> None:
        """An error in one sentence, exit code 2."""
        done = turnstile("stop", "wl", "nobody", "-n", team)
        assert done.code == 2
        assert 'workloads.kueue.x-k8s.io "nobody" not found' in done.err


class TestDelete:
    @pytest.fixture
    def owned(self, crd_api: Api, team: str) -> str:
        """The path of a Job, whose Workload has the name `owned`; another Workload is named `alone`."""
        made = crd_api.create(job("train", team))
        crd_api.create(workload("owned", team, job=made))
        crd_api.create(workload("alone", team))
        return crd_api.path_of(made)

    def path(self, team: str, name: str) -> str:
        """The path of a Workload."""
        return resource_path(API_VERSION, "workloads", name, namespace=team)

    @pytest.fixture(autouse=True)
    def leave_nothing(self, crd_api: Api, team: str, owned: str) -> object:
        """No controller runs that would delete the Workload of a Job that is gone."""
        yield
        for path in (owned, self.path(team, "owned"), self.path(team, "alone")):
            if crd_api.find(path) is not None:
                crd_api.delete(path)
        return None

    def test_jobs_go_after_a_question(self, turnstile: Program, crd_api: Api, team: str, owned: str) -> None:
        """Without a yes nothing is deleted; with it the Job, and not the Workload, which goes with it."""
        refused = turnstile("delete", "wl", "owned", "-n", team, text="n\n")
        assert refused.out == (
            "This operation will also delete:\n"
            f"  - jobs.batch/train associated with the {team}/owned workload\n"
            "Do you want to proceed (y/n)? Deletion is canceled\n"
        )
        assert crd_api.find(owned) is not None
        done = turnstile("delete", "wl", "owned", "-n", team, text="y\n")
        assert done.out.endswith("jobs.batch/train deleted\n"), done.err
        assert crd_api.find(owned) is None or "deletionTimestamp" in crd_api.get(owned)["metadata"]
        assert crd_api.find(self.path(team, "owned")) is not None

    def test_a_workload_without_a_job(self, turnstile: Program, crd_api: Api, team: str) -> None:
        """It is deleted itself, without a question; a name that is not there makes the exit code 1."""
        done = turnstile("delete", "workload", "alone", "nobody", "-n", team)
        assert (done.code, done.out) == (1, "workload.kueue.x-k8s.io/alone deleted\n")
        assert 'workloads.kueue.x-k8s.io "nobody" not found' in done.err
        assert crd_api.find(self.path(team, "alone")) is None

    @pytest.mark.parametrize("strategy", ["client", "server"])
    def test_a_dry_run(self, turnstile: Program, crd_api: Api, team: str, owned: str, strategy: str) -> None:
        """All of the namespace, without a question and without a deletion."""
        done = turnstile("delete", "wl", "--all", "-n", team, "--dry-run", strategy)
        assert f"jobs.batch/train deleted ({strategy} dry run)\n" in done.out
        assert f"workload.kueue.x-k8s.io/alone deleted ({strategy} dry run)\n" in done.out
        assert crd_api.find(owned) is not None

    @pytest.mark.parametrize("arguments", [[], ["a", "--all"], ["a", "-A"]], ids=" ".join)
    def test_names_or_all(self, turnstile: Program, team: str, arguments: list[str]) -> None:
        """One of them, and a sentence that says so."""
        done = turnstile("delete", "wl", *arguments, "-n", team)
        assert done.code == 2
        assert done.err.startswith("error: ")
        assert "--all" in done.err


class TestPassedOn:
    def run(self, control_plane: ControlPlane, *arguments: str, program: str = "kubectl-turnstile") -> Done:
        """A program of the installation in a process of its own, with the kubectl of the test bed."""
        environment = {
            **os.environ,
            "HOME": str(control_plane.directory / "home"),
            "KUBECONFIG": str(control_plane.kubeconfig()),
            "PATH": f"{control_plane.tools['kubectl'].parent}:{PROGRAMS}:{os.environ['PATH']}",
        }
        done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def test_kubectl_finds_the_plugin_and_the_plugin_kubectl(self, schema_server: ControlPlane, crd_api: Api) -> None:
        """`kubectl turnstile get cq` is kubectl's own get, with its options."""
        crd_api.create(thing("ClusterQueue", "passed-on", {}))
        done = self.run(schema_server, "turnstile", "get", "cq", "passed-on", "-o", "name", program="kubectl")
        assert (done.code, done.out) == (0, "clusterqueue.kueue.x-k8s.io/passed-on\n"), done.err

    def test_patch(self, schema_server: ControlPlane, crd_api: Api) -> None:
        """What is passed on reaches kubectl word by word."""
        crd_api.create(thing("ClusterQueue", "patched", {}))
        patch = '{"spec":{"stopPolicy":"Hold"}}'
        done = self.run(schema_server, "patch", "clusterqueue", "patched", "--type", "merge", "-p", patch)
        assert done.out == "clusterqueue.kueue.x-k8s.io/patched patched\n", done.err
        assert found(crd_api, "clusterqueues", "patched")["stopPolicy"] == "Hold"

    def test_names_are_completed_for_kubectl(self, schema_server: ControlPlane, crd_api: Api) -> None:
        """kubectl's own completion asks the plugin, which asks the API server for names."""
        crd_api.create(thing("ClusterQueue", "completed", {}))
        done = self.run(schema_server, "__complete", "turnstile", "stop", "cq", "compl", program="kubectl")
        assert done.out.splitlines()[0] == "completed", done.err

    def test_pods_of_a_job(self, schema_server: ControlPlane, crd_api: Api, team: str) -> None:
        """kubectl lists the pods that have the label of the Job."""
        crd_api.create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": team}}
        )
        made = crd_api.create(job("with-pods", team))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "with-pods-0",
                "namespace": team,
                "labels": {"batch.kubernetes.io/job-name": made["metadata"]["name"]},
            },
            "spec": made["spec"]["template"]["spec"],
        }
        crd_api.create(pod)
        crd_api.create({**pod, "metadata": {"name": "of-nobody", "namespace": team}})
        done = self.run(schema_server, "list", "pods", "--for", "job/with-pods", "-n", team)
        heading, line = done.out.splitlines()
        assert heading.startswith("NAME ")
        assert line.startswith("with-pods-0 ")

    def test_without_a_kubectl(self, schema_server: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
        """The error says what is missing."""
        monkeypatch.setenv("PATH", "/nowhere")
        done = plugin(schema_server)("get", "cq")
        assert done.code == 2
        assert done.err == "error: PATH /nowhere: has no kubectl, which does this: install it\n"
