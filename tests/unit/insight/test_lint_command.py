"""`turnstile lint` on files: what is printed, and how it ends."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from turnstile.cli import commands

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: main}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: main}
"""
SENTENCE = (
    "the job can never start as it is: its pod asks for 3 CPUs on plain nodes,"
    " where ClusterQueue main can have 2 at most"
)


def never(*_: Any) -> Any:
    """Called where no cluster may be asked."""
    raise AssertionError("a cluster was asked")


def lint(*arguments: str | Path, text: str = "") -> Result:
    """How the command ended."""
    app = commands.create(serving=never, run=never, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    return CliRunner().invoke(app, ["lint", *map(str, arguments)], input=text)


def batch_job(cpu: str, *, queue: str = "main") -> dict[str, Any]:
    """A Job of one pod."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    """A folder with a queue of 2 cpus."""
    (tmp_path / "queues.yaml").write_text(QUEUES)
    (tmp_path / "README.md").write_text("not a manifest")
    return tmp_path


class TestFindings:
    """A job that never fits."""

    def test_as_text(self, queues: Path) -> None:
        """A line each, and the sum."""
        (queues / "train.json").write_text(json.dumps(batch_job("3")))
        done = lint("-f", queues)
        fix = "ask for less, or raise the quota"
        where = queues / "train.json"
        assert done.exit_code == 1
        assert done.stdout.splitlines() == [
            f"{where}: Job default/train: error NeverFits: {SENTENCE} ({fix})",
            "errors: 1, warnings: 0, infos: 0",
        ]

    def test_for_programs(self, queues: Path) -> None:
        """As JSON."""
        (found,) = json.loads(lint("-f", queues, "-f", "-", "-o", "json", text=json.dumps(batch_job("3"))).stdout)
        assert found == {
            "file": "standard input",
            "kind": "Job",
            "object": "default/train",
            "rule": "NeverFits",
            "severity": "error",
            "sentence": SENTENCE,
            "fix": "ask for less, or raise the quota",
        }

    def test_for_a_workflow(self, queues: Path) -> None:
        """A colon in a property is escaped."""
        done = lint("-f", queues, "-f", "-", "-o", "github", text=json.dumps(batch_job("3")))
        told = f"::error file=standard input,title=NeverFits%3A Job default/train::{SENTENCE} (ask for less, or raise"
        assert done.stdout.startswith(told)

    def test_of_a_cron_job(self, queues: Path) -> None:
        """The Jobs that it will make."""
        made = batch_job("3")
        spec = {"schedule": "* * * * *", "jobTemplate": {"metadata": made["metadata"], "spec": made["spec"]}}
        cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "night"}, "spec": spec}
        assert "CronJob default/night: error NeverFits" in lint("-f", queues, "-f", "-", text=json.dumps(cron)).stdout

    def test_of_a_dump(self, queues: Path) -> None:
        """Only the files are told of, unless there are none."""
        dump = queues / "queues.yaml"
        done = lint("--state", dump, "-f", "-", text=json.dumps(batch_job("2", queue="typo")))
        assert "LocalQueueNotFound" in done.stdout
        assert done.stdout.endswith("errors: 1, warnings: 0, infos: 0\n")
        assert "SelectsNoNamespace" in lint("--state", dump).stdout


class TestSoundManifests:
    """Nothing is wrong."""

    def test_a_job_that_fits(self, queues: Path) -> None:
        """Exit code 0."""
        done = lint("-f", queues, "-f", "-", text=json.dumps(batch_job("2")))
        assert (done.exit_code, done.stdout) == (0, "errors: 0, warnings: 0, infos: 0\n")

    def test_a_rule_that_is_switched_off(self, queues: Path) -> None:
        """By its name."""
        done = lint("-f", queues, "-f", "-", "--off", "NeverFits", text=json.dumps(batch_job("3")))
        assert done.exit_code == 0

    def test_a_job_that_names_no_queue(self, queues: Path) -> None:
        """Turnstile does not hold it."""
        assert lint("-f", queues, "-f", "-", text=json.dumps(batch_job("3", queue=""))).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "--file (none): name manifests, or give --live or --state"),
        (("-f", "nowhere.yaml"), "--file nowhere.yaml: cannot be read: No such file or directory"),
        (("-f", "-", "--off", "Neverfits"), "--off Neverfits: there is no such rule: AnnotatedDuration, "),
        (("--live", "--state", "dump.yaml"), "--live --state: give one of them"),
        (("-f", "-"), "standard input document 1: is no object: give it apiVersion and kind"),
    ],
)
def test_what_cannot_be_done(arguments: tuple[str, ...], complaint: str) -> None:
    """One sentence, and exit code 2."""
    done = lint(*arguments, text="just text")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {complaint}")
