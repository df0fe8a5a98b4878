"""Every feature gate of Kueue is known, and has one answer: heeded, always on, without effect, not built."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.unit.config.files import loaded, told, warned
from turnstile.api import gates as rules
from turnstile.api.config import built, features
from turnstile.engine.options import Gates


def test_every_gate_has_one_answer() -> None:
    """A gate is heeded, always on, without effect, or not built."""
    names = [gate.name for gate in features.GATES]
    sorts = (built.HEEDED, built.ALWAYS_ON, built.WITHOUT_EFFECT, built.UNBUILT.keys())
    assert sorted(name for sort in sorts for name in sort) == sorted(names)
    assert names == sorted(names)


def test_defaults_agree_with_the_engine_and_the_rules() -> None:
    """The table, the engine's own defaults and those of the webhooks' rules are the same."""
    names = {gate.name.lower(): gate.name for gate in features.GATES}
    for field in fields(Gates):
        name = names[field.name.replace("_", "")]
        assert (name in features.DEFAULTS) == field.default, name
    known = {value for name, value in vars(rules).items() if name.isupper() and isinstance(value, str)}
    assert known & features.DEFAULTS == rules.ON_BY_DEFAULT
    assert known <= features.BY_NAME.keys()


@pytest.mark.parametrize("gate", sorted(built.UNBUILT))
def test_what_is_not_built_is_refused_when_switched_on(gate: str) -> None:
    """With a sentence, on the line of the gate, whatever Kueue's default."""
    found = told(f"featureGates:\n  {gate}: true")
    assert any(re.fullmatch(rf"line 4: featureGates.{gate}: .* not built yet \(.*\)", text) for text in found) or any(
        "depends on" in text for text in found
    )


@pytest.mark.parametrize("gate", sorted(built.ALWAYS_ON))
def test_what_is_always_on_cannot_be_switched_off(gate: str) -> None:
    """Also the gates that Kueue has locked."""
    (found,) = told(f"featureGates: {{{gate}: false}}")
    assert "cannot be switched off" in found or "feature is locked to true" in found
    assert told(f"featureGates: {{{gate}: true}}") == []


@pytest.mark.parametrize("gate", sorted(built.HEEDED))
def test_what_is_heeded_may_be_set_both_ways(gate: str) -> None:
    """On and off; what depends on it goes along."""
    dependents = [each.name for each in features.GATES if gate in each.needs]
    off = "".join(f", {name}: false" for name in dependents)
    assert gate in loaded(f"featureGates: {{{gate}: true}}").gates
    assert gate not in loaded(f"featureGates: {{{gate}: false{off}}}").gates


def test_defaults_of_what_is_not_built_pass_in_silence() -> None:
    """A file that says nothing of elastic jobs with places in a topology holds."""
    assert warned("") == []
    assert told("featureGates: {ElasticJobsViaWorkloadSlicesWithTAS: true}") != []


def test_internals_of_kueue_are_warned_of() -> None:
    """They change nothing here, and the file may keep them."""
    assert warned("featureGates: {VectorizedResourceRequests: false}") == [
        "line 3: featureGates.VectorizedResourceRequests: has no effect: it is about how Kueue is written"
    ]


def test_a_group_switches_a_stage() -> None:
    """AllAlpha and AllBeta; a gate named itself wins."""
    assert features.enabled({"AllAlpha": True, "PriorityBoost": False}) >= {"PrioritizePreemptorWorkloads"}
    assert "PriorityBoost" not in features.enabled({"AllAlpha": True, "PriorityBoost": False})
    assert features.enabled({"AllBeta": False}) == {"ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"}
    assert any(
        "ElasticJobsViaWorkloadSlicesWithTAS: growth of elastic jobs whose pods have places in a topology is not" in t
        for t in told("featureGates: {AllAlpha: true}")
    )


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("{Nonsense: true}", "unrecognized feature gate: Nonsense"),
        ("{TLSOptions: false}", "cannot set feature gate TLSOptions to false, feature is locked to true"),
        (
            "{FlavorFungibility: false}",
            (
                "FlavorFungibilityPreserveScanProgress is enabled, but depends on features that are disabled: "
                "[FlavorFungibility]"
            ),
        ),
    ],
)
def test_a_setting_that_cannot_be_is_told_in_kubernetes_words(setting: str, fault: str) -> None:
    """Unknown gates, locked gates, gates without their parents."""
    (found,) = told(f"featureGates: {setting}")
    assert found.endswith(fault)


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("PartialAdmission", "missing bool value for PartialAdmission"),
        ("PartialAdmission=maybe", "invalid value of PartialAdmission=maybe"),
        (
            "ElasticJobsViaWorkloadSlicesWithTAS=true",
            "--feature-gates: ElasticJobsViaWorkloadSlicesWithTAS: growth of elastic jobs whose pods have places in a",
        ),
    ],
)
def test_the_flag_is_checked_like_the_file(flag: str, fault: str) -> None:
    """The same rules, told of the flag."""
    (found,) = told("", feature_gates=flag)
    assert fault in found


def test_flag_and_file_cannot_both_speak() -> None:
    """As in Kueue."""
    (found,) = told("featureGates: {PartialAdmission: true}", feature_gates="PartialAdmission=true")
    assert found.endswith("feature gates for CLI and configuration cannot both specified")


def test_the_flag_sets_gates() -> None:
    """Blanks and both spellings of truth."""
    assert features.parse_flag(" A=true, B=F,") == {"A": True, "B": False}
    assert "PartialAdmission" not in loaded(feature_gates="PartialAdmission=false").gates


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


@pytest.mark.parametrize("gate", features.GATES, ids=lambda gate: gate.name)
def test_the_reference_tells_each_gate(gate: features.Gate) -> None:
    """Its default, its stage, and what it does here."""
    sorts = {"heeded": built.HEEDED, "always on": built.ALWAYS_ON, "without effect": built.WITHOUT_EFFECT}
    answer = next((word for word, names in sorts.items() if gate.name in names), built.UNBUILT.get(gate.name))
    row = f"| {gate.name} | {'on' if gate.default else 'off'} | {gate.stage} | {answer} |"
    assert row in PAGE.read_text().splitlines()
