"""Commands on quota that another controller has written into a status: they count with it, and name whose it is."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result
from uvloop import run

from turnstile.cli import commands

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GROUP = "kueue.x-k8s.io/v1beta2"
BY = {"apiGroup": "example.com", "kind": "Schedule", "name": "nights"}
FILE = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
ELSEWHERE = "the quota of ClusterQueue main is set by Schedule nights, in the place of its spec"


def groups(cpu: str) -> list[object]:
    """Quota of so many cpus."""
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": resources}]}]


def queue(spec: str, status: str = "") -> dict[str, object]:
    """A ClusterQueue with so many cpus in its spec, and in its status."""
    body = {"namespaceSelector": {}, "resourceGroups": groups(spec)}
    found: dict[str, object] = {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": "main"}, "spec": body}
    if status:
        found["status"] = {"effectiveQuotas": {"orchestratorRef": BY, "resourceGroups": groups(status)}}
    return found


def write(file: Path, *objects: object) -> Path:
    """A file of objects."""
    file.write_text(yaml.safe_dump_all(objects))
    return file


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A queue with 10 cpus in its spec and 2 in its status; a Workload waits for 3."""
    meta = {"name": "waits", "namespace": "team", "uid": "waits", "creationTimestamp": "2026-01-01T00:00:00Z"}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}
    spec = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]}
    local = {"metadata": {"name": "main", "namespace": "team"}, "spec": {"clusterQueue": "main"}}
    flavor = {"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"pool": "spot"}}}
    nodes = ({"metadata": {"name": zone, "labels": {"pool": "spot", "zone": zone}},
              "status": {"allocatable": {"cpu": "2"}}} for zone in "ab")  # fmt: skip
    return write(
        tmp_path / "dump.yaml",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {"apiVersion": GROUP, "kind": "ResourceFlavor", **flavor},
        queue("10", "2"),
        {"apiVersion": GROUP, "kind": "LocalQueue", **local},
        *({"apiVersion": "v1", "kind": "Node", **each} for each in nodes),
        {"apiVersion": GROUP, "kind": "Workload", "metadata": meta, "spec": spec},
    )


def ask(command: str, *arguments: str | Path) -> Result:
    """What a command does."""
    app = commands.create(serving=lambda _: 1, run=run, clock=lambda: NOW)
    return CliRunner().invoke(app, [command, *(str(each) for each in arguments)])


def test_explain_names_the_owner_of_the_quota(dump: Path) -> None:
    """What is short is short of that quota, and the remedy is for its owner; the engine has tried it."""
    told = ask("explain", "waits", "-n", "team", "--state", dump).output
    assert "Can never start as it is: it asks for 3 CPUs" in told
    assert f"  {ELSEWHERE[0].upper()}{ELSEWHERE[1:]}." in told
    assert "let Schedule nights raise the nominal quota of ClusterQueue main for spot nodes by 1 CPU" in told


def test_without_the_gate_the_spec_holds(dump: Path, tmp_path: Path) -> None:
    """As the configuration says, if it is given."""
    (config := tmp_path / "config.yaml").write_text(FILE)
    told = ask("explain", "waits", "-n", "team", "--state", dump, "--config", config).output
    assert "the next cycles of the scheduler admit it" in told
    assert "Schedule" not in told


def test_what_if_says_that_a_spec_changes_nothing(dump: Path, tmp_path: Path) -> None:
    """For as long as the status has a quota, which stays when a manifest is applied."""
    told = ask("what-if", "-n", "team", "--state", dump, "-f", write(tmp_path / "queue.yaml", queue("20")))
    assert f"Note: {ELSEWHERE}: spec.resourceGroups of the manifest has no effect now." in told.output
    assert "No other Workload is affected." in told.output


def test_what_if_nodes_are_drained(dump: Path) -> None:
    """The quota shrinks that holds: half of two cpus is one."""
    told = ask("what-if", "-n", "team", "--state", dump, "workload/waits", "--set", "cpu=2", "--drain", "zone=a")
    assert "where its queue can have 1 at most" in told.output


def test_lint_judges_by_the_quota_that_holds(dump: Path, tmp_path: Path) -> None:
    """Also with a manifest of the queue, whose status stays; and says whose the quota is."""
    job = write(
        tmp_path / "job.yaml",
        {"apiVersion": "batch/v1", "kind": "Job",
         "metadata": {"name": "train", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
         "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}}},
    )  # fmt: skip
    manifest = write(tmp_path / "queue.yaml", queue("10"))
    told = ask("lint", "--state", dump, "-f", job, "-f", manifest)
    assert told.exit_code == 1
    assert "where ClusterQueue main can have 2 at most" in told.output
    assert f"ClusterQueue main: info QuotaSetElsewhere: {ELSEWHERE}" in told.output
