"""`turnstile when` on a dump: what it prints, and its exit codes."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result
from uvloop import run

from turnstile.cli import commands

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
GROUP = "kueue.x-k8s.io/v1beta2"


def conditions(**times: str) -> list[dict[str, str]]:
    """Conditions that are true, since when."""
    return [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": f"2026-01-01T{time}:00Z"}
        for kind, time in times.items()
    ]


def workload(name: str, **status: object) -> dict[str, object]:
    """A Workload of one cpu."""
    meta = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T08:00:00Z"}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]}
    return {"apiVersion": GROUP, "kind": "Workload", "metadata": meta, "spec": spec, "status": status}


@pytest.fixture
def objects() -> list[dict[str, object]]:
    """A queue of one cpu, which is held for half an hour, and a Workload that waits for it."""
    quota = {"name": "any", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "1"}}
    admission = {"clusterQueue": "main", "podSetAssignments": [assigned]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "apiVersion": GROUP,
            "kind": "ClusterQueue",
            "metadata": {"name": "main"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {
            "apiVersion": GROUP,
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "team"},
            "spec": {"clusterQueue": "main"},
        },
        workload("runs", admission=admission, conditions=conditions(QuotaReserved="09:30", Admitted="09:30")),
        workload("waits"),
    ]


@pytest.fixture
def dump(objects: list[dict[str, object]], tmp_path: Path) -> Path:
    """The same, with twenty Workloads that ran for an hour."""
    done = [
        workload(f"done-{number}", conditions=conditions(Admitted="08:00", Finished="09:00")) for number in range(20)
    ]
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump_all([*objects, *done]))
    return file


def ask(command: str, *arguments: str | Path) -> Result:
    """What a command does."""
    app = commands.create(serving=lambda _: 1, run=run, clock=lambda: NOW)
    return CliRunner().invoke(app, [command, *(str(each) for each in arguments)])


class TestWhen:
    """Forecasts for people and programs."""

    def test_one_workload(self, dump: Path) -> None:
        """The one before it has run for half of its hour."""
        done = ask("when", "workload/waits", "-n", "team", "--state", dump)
        assert done.exit_code == 0
        (line,) = done.stdout.splitlines()
        assert line.startswith(
            "team/waits: likely start Thu 10:30 (in 30 min); 8 of 10 times between Thu 10:30 and Thu 10:30"
        )

    def test_its_parts(self, dump: Path) -> None:
        """The run times that the forecast is made of follow on request."""
        done = ask("when", "workload/waits", "-n", "team", "--state", dump, "--details")
        assert "20 runs of queue team/main, priority class none, kind none" in done.stdout

    def test_all_for_programs(self, dump: Path) -> None:
        """In seconds."""
        told = json.loads(ask("when", "--all", "-n", "team", "--state", dump, "-o", "json").stdout)
        assert [(each["workload"], each["median"]) for each in told["forecasts"]] == [("team/waits", 1800.0)]

    def test_no_data(self, objects: list[dict[str, object]], tmp_path: Path) -> None:
        """No guess: the reason."""
        file = tmp_path / "dump.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        done = ask("when", "workload/waits", "-n", "team", "--state", file)
        assert done.exit_code == 0
        assert "team/waits: no forecast: no run time is known" in done.output

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((), "give the name of a job, or KIND/NAME"),
            (("workload/waits", "--all"), "give the name of a job, or KIND/NAME"),
            (("workload/runs",), "it is not pending"),
            (("workload/other",), "there is no such Workload"),
            (("job/other",), "No Workload is for job/other in namespace"),
        ],
    )
    def test_bad_input(self, dump: Path, arguments: tuple[str, ...], error: str) -> None:
        """One sentence, and exit code 2."""
        done = ask("when", *arguments, "-n", "team", "--state", dump)
        assert done.exit_code == 2
        assert error in done.output
