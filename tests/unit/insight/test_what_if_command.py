"""`turnstile what-if` on a dump: what it prints, and its exit codes."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result
from uvloop import run

from turnstile.cli import commands

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GROUP = "kueue.x-k8s.io/v1beta2"


def template(cpu: str) -> dict[str, object]:
    """A pod template that asks for cpus."""
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}


def workload(name: str, cpu: str, status: dict[str, object] | None = None) -> dict[str, object]:
    """A Workload of one pod."""
    meta = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template(cpu)}]}
    return {"apiVersion": GROUP, "kind": "Workload", "metadata": meta, "spec": spec, "status": status or {}}


def queue(cpu: str, **spec: object) -> dict[str, object]:
    """A ClusterQueue with so many cpus."""
    quota = {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    body = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
    return {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": "main"}, "spec": body}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A queue of 4 cpus of two nodes, in which 3 are held, and a Workload that waits for 2."""
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "3"}}
    conditions = [
        {"type": each, "status": "True", "reason": each, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for each in ("QuotaReserved", "Admitted")
    ]
    held = {"admission": {"clusterQueue": "main", "podSetAssignments": [assigned]}, "conditions": conditions}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {
            "apiVersion": GROUP,
            "kind": "ResourceFlavor",
            "metadata": {"name": "spot"},
            "spec": {"nodeLabels": {"pool": "spot"}},
        },
        queue("4", preemption={"withinClusterQueue": "LowerPriority"}),
        {
            "apiVersion": GROUP,
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "team"},
            "spec": {"clusterQueue": "main"},
        },
        {"apiVersion": GROUP, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 9},
        *(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{zone}", "labels": {"pool": "spot", "zone": zone}},
                "status": {"allocatable": {"cpu": "2"}},
            }
            for zone in ("a", "b")
        ),
        workload("runs", "3", held),
        workload("waits", "2"),
    ]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return file


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A Job of one cpu."""
    meta = {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    file = tmp_path / "job.yaml"
    file.write_text(
        yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template("1")}})
    )
    return file


def ask(*arguments: str | Path) -> Result:
    """What the command does."""
    app = commands.create(serving=lambda _: 1, run=run, clock=lambda: NOW)
    return CliRunner().invoke(app, ["what-if", "-n", "team", *(str(each) for each in arguments)])


class TestJobs:
    """Jobs, with other sizes and queues."""

    def test_a_job_that_fits(self, dump: Path, job: Path) -> None:
        """Is admitted, and nobody else is affected."""
        done = ask("--state", dump, "-f", job)
        assert done.exit_code == 0
        assert "would be admitted now in ClusterQueue main with flavor spot." in done.output
        assert "No other Workload is affected." in done.output

    def test_other_sizes(self, dump: Path, job: Path) -> None:
        """Of each pod, and of their number."""
        assert (
            "Waits for 1 more CPU on spot nodes: asks 2, 1 free."
            in ask("--state", dump, "-f", job, "--set", "cpu=2").output
        )
        assert (
            "Waits for 2 more CPUs on spot nodes: asks 3, 1 free."
            in ask("--state", dump, "-f", job, "--set", "main/count=3").output
        )
        assert "would be admitted now" in ask("--state", dump, "workload/waits", "--set", "cpu=500m").output

    def test_another_priority_class_in_ci(self, dump: Path, job: Path) -> None:
        """It preempts, and the command fails as it was told."""
        arguments = ("--state", dump, "-f", job, "--set", "cpu=2", "--priority-class", "urgent")
        done = ask(*arguments, "--fail-on", "preempted", "--fail-on", "starves")
        assert done.exit_code == 1
        assert "team/runs (main) by team/job-train-" in done.output
        assert "failed, because of --fail-on: preempted" in done.output
        assert ask(*arguments, "--fail-on", "starves").exit_code == 0

    def test_for_programs(self, dump: Path, job: Path) -> None:
        """As JSON."""
        told = json.loads(ask("--state", dump, "-f", job, "--set", "cpu=9", "-o", "json").stdout)
        assert [(each["outcome"], each["cluster_queue"]) for each in told["asked"]] == [("starves", "main")]

    def test_as_yaml(self, dump: Path, job: Path) -> None:
        """The same document in YAML."""
        told = [ask("--state", dump, "-f", job, "-o", form).stdout for form in ("json", "yaml")]
        assert yaml.safe_load(told[1]) == json.loads(told[0])

    def test_another_queue(self, dump: Path, job: Path) -> None:
        """It need not exist; a warning names the one that was meant."""
        asked = ask("--state", dump, "-f", job, "--queue", "mian")
        assert "There is no LocalQueue mian in its namespace" in asked.stdout
        assert asked.stderr == "warning: there is no LocalQueue mian in namespace team: did you mean main?\n"


class TestObjects:
    """Queues, flavors and nodes."""

    def test_a_file_of_changes(self, dump: Path, tmp_path: Path) -> None:
        """A larger quota, as a pipeline would check it."""
        file = tmp_path / "change.yaml"
        file.write_text(yaml.safe_dump(queue("5")))
        done = ask("--state", dump, "-f", file)
        assert (
            "team/waits (main) with flavor spot; without the change after the jobs that run now have ended"
            in done.output
        )

    def test_deleted(self, dump: Path) -> None:
        """Kinds may be abbreviated."""
        assert (
            "team/waits: There is no LocalQueue main in its namespace"
            in ask("--state", dump, "--drop", "lq/main").output
        )
        assert "team/waits (main) with flavor spot" in ask("--state", dump, "--drop", "workload/runs").output

    def test_a_drained_pool(self, dump: Path) -> None:
        """Who runs there, and what would follow from smaller quotas."""
        done = ask("--state", dump, "--drain", "pool=spot,zone=a")
        assert "Flavor spot loses 1 of 2 nodes, with 2 cpu." in done.output
        assert "Pods of some of these run there: team/runs" in done.output
        assert "ClusterQueue main is over quota: it holds 3 CPUs on spot nodes" in done.output
        assert (
            "team/waits (main): Can never start as it is: it asks for 2 CPUs on spot nodes"
            in ask("--state", dump, "--drain", "pool=spot").output
        )

    def test_only_some_objects_matter(self, dump: Path, tmp_path: Path) -> None:
        """Others are named and left out."""
        file = tmp_path / "change.yaml"
        file.write_text(
            yaml.safe_dump_all([queue("5"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}])
        )
        assert "Note: Secret s is not counted with." in ask("--state", dump, "-f", file).output


class TestErrors:
    """One sentence, and exit code 2."""

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((), "say what would change"),
            (("--set", "cpu=1", "--drop", "cq/main"), "give -f FILE or KIND/NAME"),
            (("workload/other",), "there is no such Workload"),
            (("workload/waits", "--set", "cpu"), "give [POD_SET/]RESOURCE=AMOUNT"),
            (("workload/waits", "--set", "cpu=lots"), "lots"),
            (("workload/waits", "--set", "other/cpu=1"), "the pod sets of team/waits are main"),
            (("workload/waits", "--priority-class", "other"), "there is no such WorkloadPriorityClass"),
            (("--drop", "cq/other"), "there is no such object"),
            (("--drain", "pool=other"), "no ResourceFlavor has such nodes"),
            (("-f", "missing.yaml"), "cannot be read"),
        ],
    )
    def test_bad_input(self, dump: Path, arguments: tuple[str, ...], error: str) -> None:
        """Names what is wrong."""
        done = ask("--state", dump, *arguments)
        assert done.exit_code == 2, done.output
        assert error in done.output
