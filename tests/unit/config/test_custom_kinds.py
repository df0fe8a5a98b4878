"""Job kinds that the file describes: what an entry must say, and what becomes of it."""

import textwrap

import pytest

from tests.unit.config.files import OLD_HEAD, loaded, told
from tests.unit.webhooks.reviews import Cluster
from turnstile.api.config import differences
from turnstile.api.config.frameworks import group_kind
from turnstile.process.configured import job_kinds
from turnstile.webhooks.routes import routes

ENTRY = """\
framework: example.com/simulation
group: example.com
version: v1
kind: Simulation
plural: simulations
podSets:
- name: main
  template: spec.template
  count:
  - path: spec.workers
finished:
  success: {condition: Succeeded}
active:
  counts: [status.running]
"""
AT = "integrations.customKinds[0]"


def file(*entries: str, frameworks: str = "[batch/job]", more: str = "") -> str:
    """A file with these entries."""
    items = "".join(textwrap.indent("- " + textwrap.indent(entry, "  ")[2:], "  ") for entry in entries)
    return f"integrations:\n  frameworks: {frameworks}\n{more}  customKinds:\n{items}"


def changed(old: str, new: str) -> str:
    """The entry with a part of it changed."""
    assert old in ENTRY
    return ENTRY.replace(old, new)


def test_an_entry_is_a_kind_of_the_registry() -> None:
    """Enabled by itself, with watch, owner, index and webhook paths like a kind that is built."""
    registry = job_kinds(loaded(file(ENTRY)))
    assert [each.framework for each in registry.enabled] == ["batch/job", "example.com/simulation"]
    found = registry.by_framework("example.com/simulation")
    assert found is not None
    assert found in registry.watched
    assert found.kind.collection_path("team") == "/apis/example.com/v1/namespaces/team/simulations"
    paths = routes(Cluster(registry=registry))
    assert {"/mutate-example-com-v1-simulation", "/validate-example-com-v1-simulation"} <= paths.keys()


@pytest.mark.parametrize("head", [pytest.param(OLD_HEAD, id="v1beta1"), pytest.param(None, id="v1beta2")])
def test_both_versions_of_the_file_have_it(head: str | None) -> None:
    """And it is part of what holds."""
    found = loaded(file(ENTRY), **({"head": head} if head else {}))
    assert [each["kind"] for each in found.effective()["integrations"]["customKinds"]] == ["Simulation"]


def test_it_may_also_be_named_among_the_frameworks() -> None:
    """Which changes nothing."""
    registry = job_kinds(loaded(file(ENTRY, frameworks="[batch/job, example.com/simulation]")))
    assert [each.framework for each in registry.enabled] == ["batch/job", "example.com/simulation"]


def test_it_is_read_once() -> None:
    """A change of an entry is one of those that wait for a restart."""
    before, after = loaded(file(ENTRY)), loaded(file(changed("spec.workers", "spec.size")))
    assert differences(before, after) == ["integrations.customKinds"]


def test_a_kind_of_kueue_that_is_not_built_may_be_described() -> None:
    """Under its own name, until it is built."""
    entry = changed("framework: example.com/simulation", "framework: kubeflow.org/pytorchjob")
    registry = job_kinds(loaded(file(entry, frameworks="[kubeflow.org/pytorchjob]")))
    assert [each.framework for each in registry.enabled] == ["kubeflow.org/pytorchjob"]


def test_external_frameworks_are_owners_that_are_managed_elsewhere() -> None:
    """By group and kind, whatever the version."""
    registry = job_kinds(loaded("integrations: {externalFrameworks: [PipelineRun.v1.tekton.dev, Foo.v1.a.b.c]}"))
    assert registry.external == {("tekton.dev", "PipelineRun"), ("a.b.c", "Foo")}
    assert group_kind("Pod.v1.") == ("", "Pod")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("framework: example.com/simulation\n", "", "framework: Required value: must be at most 63 lower-case"),
        ("example.com/simulation", "a:b", 'framework: Invalid value: "a:b": must be at most 63 lower-case letters'),
        ("group: example.com\n", "group: example\n", 'group: Invalid value: "example": must be the group of a custom'),
        ("group: example.com\n", "group: kueue.x-k8s.io\n", "group: Invalid value"),
        ("version: v1\n", "", "version: Required value: a DNS-1035 label"),
        ("kind: Simulation", "kind: simulation", 'kind: Invalid value: "simulation": must be the kind as in a'),
        ("plural: simulations", "plural: Simulations", "plural: Invalid value"),
        ("plural: simulations", "plurals: simulations", "plurals: unknown field (did you mean plural?)"),
        (
            "plural: simulations",
            "plural: simulations\nsuspend: suspend",
            'suspend: Invalid value: "suspend": must be a path below spec, for example spec.template',
        ),
        (
            "spec.template",
            "spec..template",
            'podSets[0].template: Invalid value: "spec..template": must be names with dots',
        ),
        (
            "spec.template",
            "status.template",
            'podSets[0].template: Invalid value: "status.template": must be a path below spec',
        ),
        ("- name: main", "- name: Main", "podSets[0].name: Invalid value"),
        (
            "- name: main",
            "- nameFrom: spec.name\n  name: main",
            "podSets[0].nameFrom: Forbidden: may not be set beside name: keep one",
        ),
        (
            "- name: main\n  template",
            "- template",
            "podSets[0].name: Required value: give name, or nameFrom with the path",
        ),
        (
            "- name: main",
            "- name: main\n  each: spec.groups",
            "podSets[0].name: Forbidden: each item needs a name of its own: give nameFrom",
        ),
        ("- path: spec.workers", "- default: 2", "podSets[0].count[0].path: Required value: must be names with dots"),
        (
            "- path: spec.workers",
            "- {path: spec.workers, default: -1}",
            "podSets[0].count[0].default: Invalid value: -1",
        ),
        (
            "  template: spec.template",
            "  template: spec.template\n  reclaimable: spec.done",
            "podSets[0].reclaimable: Invalid value",
        ),
        (
            "finished:\n  success: {condition: Succeeded}\n",
            "",
            "finished.success: Required value: say how a good end is known",
        ),
        (
            "{condition: Succeeded}",
            "{condition: Succeeded, field: status.phase}",
            "finished.success: Required value: give either",
        ),
        ("{condition: Succeeded}", "{field: status.phase}", "finished.success.values: Required value: list the values"),
        (
            "{condition: Succeeded}",
            "{field: phase, values: [Done]}",
            'finished.success.field: Invalid value: "phase": must be a path below spec or status',
        ),
        (
            "{condition: Succeeded}",
            "{condition: A, status: Yes}",
            "finished.success.status: must be text, not true (put it in quotes)",
        ),
        (
            "{condition: Succeeded}",
            "{condition: A, status: 'yes'}",
            'finished.success.status: Unsupported value: "yes": supported values: ',
        ),
        ("active:\n  counts: [status.running]\n", "", "active: Required value: say how it is known that pods run"),
        (
            "counts: [status.running]",
            "observedGeneration: status.observedGeneration",
            "active.counts: Required value: give counts, paths",
        ),
        ("counts: [status.running]", "counts: [spec.running]", "active.counts[0]: Invalid value"),
        ("active:", "rights:\n- {resource: '*', verbs: [patch]}\nactive:", "rights[0].resource: Invalid value"),
        ("active:", "rights:\n- {resource: a, verbs: ['*']}\nactive:", "rights[0].verbs[0]: Unsupported value"),
        ("active:", "managedBy: managedBy\nactive:", "managedBy: Invalid value"),
    ],
)
def test_a_fault_names_field_value_and_cure(old: str, new: str, fault: str) -> None:
    """With the line of the entry or of the field."""
    (found,) = told(file(changed(old, new)))
    line, _, text = found.partition(": ")
    assert int(line.removeprefix("line ")) >= 6
    assert text.startswith(f"{AT}.{fault}")


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (ENTRY, "integrations.customKinds[1].framework: Duplicate value"),
        (changed("/simulation", "/other"), "integrations.customKinds[1].kind: Duplicate value"),
        (
            changed(
                "group: example.com\nversion: v1\nkind: Simulation", "group: pods.example.com\nversion: v1\nkind: Pod"
            ),
            "integrations.customKinds[1].framework: Duplicate value",
        ),
    ],
)
def test_no_kind_is_described_twice(entry: str, fault: str) -> None:
    """Neither by name nor by group and kind."""
    assert any(fault in each for each in told(file(ENTRY, entry)))


def test_what_is_built_is_not_described() -> None:
    """The entry would take the place of what is there."""
    (found,) = told(file(changed("framework: example.com/simulation", "framework: pod")))
    assert found.endswith(
        "integrations.customKinds[0]: pod is built: its jobs need no description "
        "(take the entry out, and name pod in integrations.frameworks)"
    )


def test_a_kind_is_managed_here_or_elsewhere() -> None:
    """Not both."""
    (found,) = told(file(ENTRY, more="  externalFrameworks: [Simulation.v1.example.com]\n"))
    assert found.endswith('integrations.externalFrameworks[0]: Duplicate value: "Simulation.v1.example.com"')


@pytest.mark.parametrize(
    ("more", "makes"),
    [
        ("", {("", "Pod"), ("batch", "Job")}),
        ("makes: [JobSet.jobset.x-k8s.io]\n", {("jobset.x-k8s.io", "JobSet")}),
        ("makes: []\n", set()),
    ],
)
def test_it_says_what_its_operator_makes(more: str, makes: set[tuple[str, str]]) -> None:
    """Pods and Jobs, if it says nothing."""
    found = job_kinds(loaded(file(ENTRY + more))).by_framework("example.com/simulation")
    assert found is not None
    assert found.makes == makes


@pytest.mark.parametrize("made", ["job.batch", "Job.", "Job.not_a_group", "''"])
def test_what_is_made_is_a_kind_with_its_group(made: str) -> None:
    """As kubectl names it."""
    (complaint,) = told(file(ENTRY + f"makes: [{made}]\n"))
    assert f"{AT}.makes[0]: " in complaint
    assert "for example Job.batch, or Pod" in complaint
