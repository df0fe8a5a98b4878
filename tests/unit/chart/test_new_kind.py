"""A kind is one file and one line: a kind that is not one of Turnstile's gets all that a kind has."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.manifests import documents
from tests.guide import flink_batches
from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest
from tests.unit.chart.test_invariants import of_kind, rules, webhooks
from tests.unit.webhooks.reviews import Cluster, Json, mutated, refusal
from turnstile.jobs.generate import chart_file, custom_file, table
from turnstile.jobs.integration import Integration
from turnstile.jobs.registry import ALL, Registry
from turnstile.webhooks.routes import routes

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds

ENTRY = """
framework: example.com/flinkbatch
group: example.com
version: v1
kind: FlinkBatch
plural: flinkbatches
podSets:
  - {name: jobmanager, template: spec.jobManager}
  - {name: taskmanager, template: spec.taskManager, count: [{path: spec.taskManagers}]}
finished: {success: {condition: Finished}}
active: {counts: [status.active]}
rights: [{resource: flinkbatches/scale, verbs: [patch]}, {group: "", resource: pods, verbs: [list]}]
"""

Helm = Callable[..., Any]


@pytest.fixture(scope="module")
def batches() -> Integration[Any]:
    """A kind that is not one of Turnstile's: one file."""
    return flink_batches()


@pytest.fixture(scope="module")
def registry(batches: Integration[Any]) -> Registry:
    """The one line."""
    return Registry(kinds=(*ALL, batches))


@pytest.fixture(scope="module")
def built(batches: Integration[Any], helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The chart rendered after `make generate`."""
    chart = tmp_path_factory.mktemp("chart") / "turnstile"
    shutil.copytree(CHART, chart)
    (chart / "files" / "kinds.yaml").write_text(chart_file((*ALL, batches)))
    return rendered(helm, chart)


@pytest.fixture(scope="module")
def described(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The chart rendered with the kind described by the configuration alone."""
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    frameworks = [each.framework for each in ALL]
    integrations = {"frameworks": frameworks, "customKinds": [yaml.safe_load(ENTRY)]}
    values.write_text(yaml.safe_dump({"config": {"integrations": integrations}}))
    return rendered(helm, CHART, "--values", str(values))


def rendered(helm: Helm, chart: Path, *arguments: str) -> list[Manifest]:
    """What a chart would install."""
    answer = helm("template", "turnstile", str(chart), "--namespace", NAMESPACE, "--no-hooks", *arguments)
    assert answer.returncode == 0, answer.stderr
    return documents(answer.stdout)


def batch() -> Json:
    """An object of the kind, queued."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    meta = {"name": "wing", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    body = {"taskManagers": 2, "jobManager": template, "taskManager": template}
    return {"apiVersion": "example.com/v1", "kind": "FlinkBatch", "metadata": meta, "spec": body}


def test_it_is_watched_and_known_as_an_owner(registry: Registry, batches: Integration[Any]) -> None:
    """By the registry that has it."""
    assert batches in registry.watched
    assert registry.by_framework("example.com/flinkbatch") is batches


def test_its_objects_are_held_and_checked(registry: Registry) -> None:
    """By handlers under the kind's own paths."""
    paths = routes(Cluster(registry=registry))
    held = mutated(paths["/mutate-example-com-v1-flinkbatch"], batch())
    assert held["spec"]["suspend"] is True
    wrong = batch()
    wrong["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "no name!"
    assert "metadata.labels[kueue.x-k8s.io/queue-name]" in refusal(paths["/validate-example-com-v1-flinkbatch"], wrong)


def test_it_is_in_the_table_of_kinds(batches: Integration[Any]) -> None:
    """A row of docs/reference/kinds.md."""
    assert "| `example.com/flinkbatch` | FlinkBatch | `example.com/v1` | suspended; " in table((batches,))


@pytest.mark.parametrize("way", ["built", "described"])
def test_the_chart_renders_its_rights_webhooks_and_roles(way: str, request: pytest.FixtureRequest) -> None:
    """For a kind that is built, and for one that the configuration describes."""
    manifests: list[Manifest] = request.getfixturevalue(way)
    asked = [entry for entry in webhooks(manifests) if entry["rules"][0]["resources"] == ["flinkbatches"]]
    assert [entry["rules"][0]["operations"] for entry in asked] == [["CREATE"], ["CREATE", "UPDATE"]]
    assert [entry["clientConfig"]["service"]["path"] for entry in asked] == [
        "/mutate-example-com-v1-flinkbatch",
        "/validate-example-com-v1-flinkbatch",
    ]
    names = [condition["name"] for condition in asked[1]["matchConditions"]]
    assert names == ["not-our-own-write", "not-being-deleted", "queued-now-or-before"]
    mine = [rule for rule in rules(manifests, ours=True) if rule["apiGroups"] == ["example.com"]]
    verbs = {(rule["resources"][0], tuple(rule["verbs"])) for rule in mine}
    expected = {
        ("flinkbatches", ("get", "list", "watch", "patch")),
        ("flinkbatches", ("list", "watch")),
        ("flinkbatches/finalizers", ("update",)),
    }
    assert verbs == (expected | {("flinkbatches/scale", ("patch",))} if way == "described" else expected)
    people = [
        role["metadata"]["labels"]["rbac.kueue.x-k8s.io/role"]
        for role in of_kind(manifests, "ClusterRole")
        if any(rule.get("apiGroups") == ["example.com"] for rule in role.get("rules") or [])
        and role["metadata"]["name"].endswith("-role")
    ]
    assert len(people) == 2
    assert all(each.startswith("flinkbatch") for each in people)


@pytest.mark.parametrize("way", ["built", "described"])
def test_the_policy_of_queued_jobs_covers_it(way: str, request: pytest.FixtureRequest) -> None:
    """Who resumes it, and whether it grows, is decided by the API server."""
    policies = of_kind(request.getfixturevalue(way), "ValidatingAdmissionPolicy")
    (queued,) = [each["spec"] for each in policies if each["metadata"]["name"] == "turnstile-queued"]
    assert ["flinkbatches"] in [rule["resources"] for rule in queued["matchConstraints"]["resourceRules"]]
    assert [each for each in queued["validations"] if '["example.com/flinkbatches"]' in each["expression"]]


def test_a_described_kind_may_be_called_like_one_that_is_built(helm: Helm, tmp_path: Path) -> None:
    """Names of webhook entries and roles tell them apart."""
    entry = {**yaml.safe_load(ENTRY), "kind": "Job", "plural": "jobs"}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"config": {"integrations": {"customKinds": [entry]}}}))
    manifests = rendered(helm, CHART, "--values", str(values))
    for configuration in of_kind(manifests, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        found = [each["name"] for each in configuration["webhooks"]]
        assert len(found) == len(set(found))
    roles = [role["metadata"]["name"] for role in of_kind(manifests, "ClusterRole")]
    assert len(roles) == len(set(roles))


def test_an_entry_that_lacks_its_name_is_refused_by_the_chart(helm: Helm, tmp_path: Path) -> None:
    """The rest is refused by Turnstile, which reads the same entry."""
    entry = {key: value for key, value in yaml.safe_load(ENTRY).items() if key != "plural"}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"config": {"integrations": {"customKinds": [entry]}}}))
    answer = helm("template", "turnstile", str(CHART), "--values", str(values))
    assert "config.integrations.customKinds: each entry needs plural" in answer.stderr


def test_generated_files_are_fresh() -> None:
    """What `make generate` writes is what is there."""
    assert (CHART / "files" / "kinds.yaml").read_text() == chart_file(ALL)
    assert (CHART / "files" / "customkind.yaml").read_text() == custom_file()
