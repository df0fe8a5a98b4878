"""What preflight says of a server and of definitions, without either."""

from typing import Any

import msgspec
import pytest
import yaml

from tests.unit.chart.conftest import CHART, Render
from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.errors import InvalidValue
from turnstile.release import checks
from turnstile.release.findings import Level
from turnstile.release.manifests import Manifests


@pytest.mark.parametrize(
    ("major", "minor", "levels"),
    [("1", "29", [Level.DANGER]), ("1", "30", []), ("1", "35+", []), ("", "", [Level.WARNING])],
)
def test_the_age_of_the_server(major: str, minor: str, levels: list[Level]) -> None:
    """Some providers write a plus sign; one that says nothing is a warning."""
    version = {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.0"}
    assert [each.level for each in checks.server(version)] == levels


def test_the_oldest_server_is_that_of_the_chart() -> None:
    """Helm refuses an older one too."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={'.'.join(map(str, checks.OLDEST_SERVER))}.0-0"


def found(**changes: Any) -> list[tuple[Level, str]]:
    """Level and first words of what is said of the chart's definition of Cohorts with these changes."""
    plain = yaml.safe_load((CHART / "crds" / "cohorts.kueue.x-k8s.io.yaml").read_text())
    plain["metadata"].update(changes.get("metadata", {}))
    plain["spec"]["conversion"] = {"strategy": changes.get("conversion", "Webhook")}
    plain["status"] = {"storedVersions": changes.get("stored", ["v1beta2"])}
    definition = msgspec.convert(plain, CustomResourceDefinition)
    said = checks.definitions({definition.metadata.name: (plain, definition)})
    return [(each.level, each.says.partition(":")[0]) for each in said]


def test_definitions_of_the_chart_are_as_they_should_be() -> None:
    """And one that is missing is installed."""
    assert found() == []
    assert list(checks.definitions({})) == []


def test_definitions_of_others() -> None:
    """Older stored objects are converted; unknown ones, a foreign definition and one of another release are dangers."""
    assert found(stored=["v1beta1", "v1beta2"]) == [(Level.WARNING, "objects may be stored in older versions")]
    assert found(stored=["v1alpha1", "v1beta2"]) == [
        (Level.DANGER, "objects are stored in versions that Turnstile does not read")
    ]
    foreign = "not those of the chart, so that their versions and conversion stay as they are"
    assert found(metadata={"labels": {}}) == [(Level.DANGER, foreign)]
    owned = {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "kueue-system"}
    deleted = "deleted with all queues when Helm release kueue in kueue-system is uninstalled"
    assert found(metadata={"annotations": owned}) == [(Level.DANGER, deleted)]


def test_older_objects_without_a_conversion_are_a_danger() -> None:
    """They would lose what has another name in the newer version; where all are stored as v1beta2 nothing is lost."""
    lost = "older stored objects are read without a conversion, and lose fields when written"
    assert (Level.DANGER, lost) in found(stored=["v1beta1", "v1beta2"], conversion="None")
    assert found(conversion="None") == []


def test_only_what_helm_itself_keeps_is_kept() -> None:
    """Helm goes by its record of the release: an annotation that kubectl wrote to the cluster is still a danger."""
    owned = {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "kueue-system"}
    annotations = {**owned, "helm.sh/resource-policy": "keep"}
    written = {"f:metadata": {"f:annotations": {"f:helm.sh/resource-policy": {}}}}
    for manager, dangers in (("helm", 0), ("kubectl-annotate", 1)):
        managed = [{"manager": manager, "fieldsV1": written}]
        assert len(found(metadata={"annotations": annotations, "managedFields": managed})) == dangers


@pytest.mark.parametrize(
    ("text", "says"),
    [("a: [", "is not YAML"), ("a: 1", "is no object"), ("kind: A\nmetadata: {name: a}", "is not Turnstile's chart")],
)
def test_what_is_not_the_chart_is_refused(text: str, says: str) -> None:
    """With what to give instead."""
    with pytest.raises(InvalidValue, match=says):
        Manifests.parse(text, "file")


@pytest.mark.cluster  # needs helm, which the test bed builds
def test_kinds_that_only_some_values_make_are_known(render: Render) -> None:
    """Preflight lists the objects of these kinds also where the new values make none."""
    kinds = [
        {(each["apiVersion"], each["kind"]) for each in render(*arguments)}
        for arguments in (
            (),
            *(("--values", str(path)) for path in (CHART / "ci").glob("*.yaml")),
            ("--set", "networkPolicy.enabled=false,flowSchema.enabled=false,visibility.enabled=false"),
            ("--set", "admissionPolicies.enabled=false,visibility.flowControl.enabled=true"),
            ("--set", "metrics.prometheusRule.enabled=true,metrics.serviceMonitor.enabled=true"),
        )
    ]
    kept = {("apiextensions.k8s.io/v1", "CustomResourceDefinition")}  # no upgrade takes a definition away
    assert set.union(*kinds) - set.intersection(*kinds) - kept == checks.OPTIONAL.keys()
