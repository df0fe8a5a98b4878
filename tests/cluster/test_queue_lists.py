"""`kubectl turnstile list` against a real API server: tables, formats, filters and changes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed import ControlPlane
from testbed.client import resource_path
from tests.cluster.queue_commands import (
    Program,
    admission,
    ago,
    conditions,
    job,
    plugin,
    with_status,
    workload,
)
from tests.cluster.schema_server import API_VERSION, thing

pytestmark = pytest.mark.cluster

DAYS, MINUTES = 20, 24 * 60
"""How long ago a Workload was admitted, in days, which no busy machine changes; and the minutes of a day."""
PLUGIN = Path(sys.executable).with_name("kubectl-turnstile")


@pytest.fixture(scope="module")
def turnstile(schema_server: ControlPlane) -> Program:
    """The program, with all rights."""
    return plugin(schema_server)


@pytest.fixture(scope="module")
def team(schema_server: ControlPlane) -> str:
    """A namespace with a queue and a Workload in each state; a Job and its Workload wait."""
    api = schema_server.api
    name = schema_server.namespace("listed")
    flavor = thing("ResourceFlavor", "lists-flavor", {"nodeLabels": {"pool": "a", "arch": "arm64"}})
    api.create(flavor | {"spec": flavor["spec"] | {"tolerations": [{"key": "spot", "operator": "Exists"}]}})
    groups = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "lists-flavor", "resources": [{"name": "cpu", "nominalQuota": "9"}]}],
        }
    ]
    queue = thing("ClusterQueue", "lists-on", {"cohortName": "lists", "resourceGroups": groups})
    queue["metadata"]["labels"] = {"lists": "yes"}
    with_status(api, queue, {"pendingWorkloads": 2, "admittedWorkloads": 1, "conditions": conditions("Active")})
    other = thing("ClusterQueue", "lists-off", {"stopPolicy": "Hold"})
    other["metadata"]["labels"] = {"lists": "yes"}
    with_status(api, other, {"conditions": conditions(false=("Active",))})
    local = thing("LocalQueue", "main", {"clusterQueue": "lists-on"}, namespace=name)
    with_status(api, local, {"pendingWorkloads": 2, "admittedWorkloads": 1})
    api.create(thing("LocalQueue", "held", {"clusterQueue": "lists-off", "stopPolicy": "Hold"}, namespace=name))
    made = api.create(job("train", name))
    api.create(workload("job-train", name, job=made))
    api.create(workload("waits", name, queue="held", priority=7))
    admitted = conditions("QuotaReserved", "Admitted", since=ago(minutes=DAYS * MINUTES))
    with_status(api, workload("runs", name), {"admission": admission("lists-on"), "conditions": admitted})
    finished = [*admitted, *conditions("Finished", since=ago(minutes=DAYS * MINUTES - 15))]
    with_status(api, workload("ended", name), {"admission": admission("lists-on"), "conditions": finished})
    reserved = {"admission": admission("lists-on"), "conditions": conditions("QuotaReserved")}
    with_status(api, workload("checked", name), reserved)
    return name


class TestTables:
    def test_workloads_show_jobs_queues_and_states(self, turnstile: Program, team: str) -> None:
        """kueuectl's columns: the job's type and name, the ClusterQueue also of a pending Workload, the time it ran."""
        done = turnstile("list", "workload", "-n", team)
        heading = done.out.splitlines()[0]
        expected = "NAME JOB TYPE JOB NAME LOCALQUEUE CLUSTERQUEUE STATUS POSITION IN QUEUE EXEC TIME AGE"
        assert heading.split() == expected.split()
        rows = {row[0]: row[1:8] for row in done.table}
        assert rows["job-train"] == ["job", "train", "main", "lists-on", "PENDING", "", ""]
        assert rows["waits"] == ["", "", "held", "lists-off", "PENDING", "", ""]
        assert rows["checked"][3:5] == ["lists-on", "QUOTARESERVED"]
        assert rows["ended"][3:] == ["lists-on", "FINISHED", "", "15m"]
        assert rows["runs"][4:6] == ["ADMITTED", ""]
        assert rows["runs"][6] == f"{DAYS}d"

    def test_cluster_queues(self, turnstile: Program, team: str) -> None:
        """Cohort, numbers of Workloads, and whether the queue admits; more with -o wide."""
        rows = {row[0]: row[1:] for row in turnstile("list", "cq", "-l", "lists=yes", "-o", "wide").table}
        assert rows["lists-on"][:4] == ["lists", "2", "1", "true"]
        assert rows["lists-on"][5:] == ["BestEffortFIFO", "None", "0", "lists-flavor"]
        assert rows["lists-off"][3] == "false"
        assert rows["lists-off"][6] == "Hold"

    def test_local_queues_of_all_namespaces(self, turnstile: Program, team: str) -> None:
        """With -A the namespace comes first, and other ClusterQueues' queues are left out on request."""
        done = turnstile("list", "localqueues", "-A", "--clusterqueue", "lists-on")
        assert done.out.split()[:2] == ["NAMESPACE", "NAME"]
        assert [row[:5] for row in done.table] == [[team, "main", "lists-on", "2", "1"]]

    def test_flavors(self, turnstile: Program, team: str) -> None:
        """The labels of the nodes, in order; with -o wide what pods must tolerate."""
        rows = {row[0]: row[1:] for row in turnstile("list", "rf", "-o", "wide").table}
        assert rows["lists-flavor"][0] == "arch=arm64, pool=a"
        assert rows["lists-flavor"][3] == "spot"

    def test_nothing_is_said_so(self, turnstile: Program, team: str) -> None:
        """An empty list is no error: a sentence on standard error names the namespace."""
        done = turnstile("list", "wl", "-n", "nobody-lists-here")
        assert (done.code, done.out, done.err) == (0, "", "No resources found in nobody-lists-here namespace.\n")


class TestFilters:
    @pytest.mark.parametrize(
        ("options", "names"),
        [
            (["--status", "admitted"], {"runs"}),
            (["--status", "pending"], {"job-train", "waits"}),
            (["--status", "quotareserved", "--status", "finished"], {"checked", "ended"}),
            (["--status", "all"], {"job-train", "waits", "checked", "runs", "ended"}),
            (["-q", "held"], {"waits"}),
            (["-c", "lists-off"], {"waits"}),
            (["--for", "job/train"], {"job-train"}),
            (["--for", "jobs.batch/train"], {"job-train"}),
            (["--field-selector", "metadata.name=runs"], {"runs"}),
        ],
        ids=" ".join,
    )
    def test_workloads(self, turnstile: Program, team: str, options: list[str], names: set[str]) -> None:
        """By state, queue, ClusterQueue, job or field."""
        done = turnstile("list", "workload", "-n", team, *options, "-o", "name")
        assert set(done.out.split()) == {f"workload.kueue.x-k8s.io/{name}" for name in names}

    @pytest.mark.parametrize(
        ("option", "kind", "near"), [("-q", "LocalQueue", "held"), ("-c", "ClusterQueue", "lists-on")]
    )
    def test_a_queue_that_is_not_there(self, turnstile: Program, team: str, option: str, kind: str, near: str) -> None:
        """Where nothing is found, a sentence names the nearest one."""
        done = turnstile("list", "workload", "-n", team, option, near.upper() + "x")
        where = f" in namespace {team}" if kind == "LocalQueue" else ""
        assert done.code == 0
        assert f"warning: there is no {kind} {near.upper()}x{where}: did you mean {near}?" in done.err

    def test_inactive_cluster_queues(self, turnstile: Program, team: str) -> None:
        """By whether they admit."""
        done = turnstile("list", "cq", "-l", "lists=yes", "--active", "false", "-o", "name")
        assert done.out == "clusterqueue.kueue.x-k8s.io/lists-off\n"

    def test_a_type_that_is_not_there(self, turnstile: Program, team: str) -> None:
        """The error names the option, the value and what would do."""
        done = turnstile("list", "wl", "-n", team, "--for", "jbo/train")
        assert done.code == 2
        assert done.err.startswith("error: --for jbo/train: the API server has no such type; give TYPE[.GROUP]/NAME")

    def test_a_job_that_is_not_there(self, turnstile: Program, team: str) -> None:
        """It has no Workloads."""
        done = turnstile("list", "wl", "-n", team, "--for", "job/nobody")
        assert (done.code, done.err) == (0, f"No resources found in {team} namespace.\n")


class TestFormats:
    def test_json_and_yaml_are_the_whole_objects(self, turnstile: Program, team: str) -> None:
        """Both are a WorkloadList, whose items say what they are, without managedFields."""
        listed = json.loads(turnstile("list", "wl", "-n", team, "-o", "json").out)
        assert (listed["kind"], listed["apiVersion"]) == ("WorkloadList", API_VERSION)
        assert {(each["kind"], each["apiVersion"]) for each in listed["items"]} == {("Workload", API_VERSION)}
        assert not any("managedFields" in each["metadata"] for each in listed["items"])
        assert yaml.safe_load(turnstile("list", "wl", "-n", team, "-o", "yaml").out)["items"] == listed["items"]

    def test_jsonpath(self, turnstile: Program, schema_server: ControlPlane, team: str) -> None:
        """A template prints what kubectl prints for it."""
        template = "jsonpath={range .items[*]}{.metadata.name}{'\\t'}{.spec.queueName}{'\\n'}{end}"
        expected = schema_server.kubectl("get", "workloads", "-n", team, "-o", template)
        assert turnstile("list", "wl", "-n", team, "-o", template).out == expected
        assert "job-train\tmain" in expected

    @pytest.mark.parametrize("output", ["xml", "json=1", "jsonpath", "jsonpath={.items"])
    def test_what_is_no_format(self, turnstile: Program, output: str) -> None:
        """The error names the option and the value."""
        done = turnstile("list", "wl", "-o", output)
        assert done.code == 2
        assert done.err.startswith(f"error: --output {output}: ")


class TestChanges:
    @pytest.fixture
    def watching(self, schema_server: ControlPlane, team: str) -> Iterator[subprocess.Popen[str]]:
        """`list -w` of LocalQueues in a process of its own, whose list is printed."""
        command = [PLUGIN, "list", "lq", "-n", team, "-w"]
        environment = {**os.environ, "KUBECONFIG": str(schema_server.kubeconfig())}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("NAME")
            yield process
            process.kill()

    def test_each_change_is_a_line_until_it_is_interrupted(
        self, schema_server: ControlPlane, team: str, watching: subprocess.Popen[str]
    ) -> None:
        """A new queue is printed when it is created; Ctrl-C ends the command with 130, without a traceback."""
        assert watching.stdout is not None
        known = {watching.stdout.readline().split()[0] for _ in range(2)}
        assert known == {"main", "held"}
        schema_server.api.create(thing("LocalQueue", "later", {"clusterQueue": "lists-on"}, namespace=team))
        line = watching.stdout.readline()
        assert line.split()[:2] == ["later", "lists-on"]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=30) == 130
        schema_server.api.delete(resource_path(API_VERSION, "localqueues", "later", namespace=team))


class TestConnection:
    def test_the_options_of_kubectl(self, turnstile: Program, schema_server: ControlPlane, team: str) -> None:
        """Impersonation asks with the rights of another user, who has none."""
        done = turnstile("list", "cq", "--as", "somebody", "--as-group", "nobodies")
        assert done.code == 2
        assert 'User "somebody" cannot list resource "clusterqueues"' in done.err

    def test_a_user_without_rights_is_told(self, schema_server: ControlPlane, team: str) -> None:
        """One sentence, exit code 2."""
        done = plugin(schema_server, user="carol")("list", "wl", "-n", team)
        assert done.code == 2
        assert done.err.startswith("error: the API server refuses: 403 Forbidden: ")

    def test_a_server_that_is_not_there(self, turnstile: Program) -> None:
        """The error names the server."""
        done = turnstile("list", "cq", "-s", "https://127.0.0.1:1", "--request-timeout", "2s")
        assert done.code == 2
        assert "no API server answers at https://127.0.0.1:1" in done.err
