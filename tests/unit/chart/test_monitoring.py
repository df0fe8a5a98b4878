"""The alerts and the board of the chart: what they name exists, and each alert rings when it should."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import ROOT
from tests.unit.chart.conftest import CHART, Render

FILES = CHART / "files/monitoring"
RULES: list[dict[str, Any]] = yaml.safe_load((FILES / "rules.yaml").read_text())["groups"][0]["rules"]
BOARD = json.loads((FILES / "board.json").read_text())
QUERIES = {panel["title"]: panel["targets"][0]["expr"] for panel in BOARD["panels"] if panel["type"] != "row"}
REFERENCE = (ROOT / "docs/reference/metrics.md").read_text()
TASK = (ROOT / "docs/tasks/monitoring.md").read_text()
NAMES = re.compile(
    r"\b(?:turnstile|kueue|rest_client|workqueue|controller_runtime|leader_election)_\w+?(?:_bucket)?\b(?![.\w-]*\")"
)


def metrics_in(query: str) -> set[str]:
    """The metrics that a query names."""
    return {name.removesuffix("_bucket") for name in NAMES.findall(query)}


@pytest.mark.parametrize("query", [*QUERIES.values(), *(rule["expr"] for rule in RULES)])
def test_every_metric_of_a_query_is_in_the_reference(query: str) -> None:
    """So none is misspelt."""
    unknown = {name for name in metrics_in(query) if f"| `{name}` |" not in REFERENCE}
    assert not unknown


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_line_that_says_what_to_do(rule: dict[str, Any]) -> None:
    """At the place that the alert names."""
    assert rule["annotations"]["runbook_url"] == f"docs/tasks/monitoring.md#{rule['alert'].lower()}"
    assert f"### {rule['alert']}\n" in TASK
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_alerts_on_the_page_exist() -> None:
    """None is left there that was removed."""
    assert re.findall(r"^### (Turnstile\w+)$", TASK, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_promtool_finds_the_rules_good() -> None:
    """With series that ring each alert, and with those of a healthy installation, which ring none."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    cases = Path(__file__).parent / "rules_test.yaml"
    for words in (("check", "rules", str(FILES / "rules.yaml")), ("test", "rules", str(cases))):
        answer = subprocess.run([promtool, *words], capture_output=True, text=True, check=False, timeout=60)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_alert_is_tested() -> None:
    """As ringing, and as silent."""
    text = (Path(__file__).parent / "rules_test.yaml").read_text()
    for rule in RULES:
        name = re.escape(rule["alert"])
        assert re.search(rf"alertname: {name}, exp_alerts: \[\]", text)
        assert re.search(rf'alertname="{name}".*value: 1', text)


@pytest.mark.cluster
def test_the_chart_ships_both_where_they_are_asked_for(render: Render) -> None:
    """As they are in the files; by default neither."""
    plain = [(each["kind"], each["metadata"]["name"]) for each in render()]
    assert not [kind for kind, name in plain if kind == "PrometheusRule" or "dashboard" in name]
    asked = ("metrics.prometheusRule.enabled=true", "metrics.dashboard.enabled=true")
    made = {
        each["kind"]: each
        for each in render("--set", ",".join(asked), "--set-string", "metrics.prometheusRule.labels.release=kps")
        if each["kind"] == "PrometheusRule" or each["metadata"]["name"].endswith("-dashboard")
    }
    assert made["PrometheusRule"]["spec"] == yaml.safe_load((FILES / "rules.yaml").read_text())
    assert made["PrometheusRule"]["metadata"]["labels"]["release"] == "kps"
    assert json.loads(made["ConfigMap"]["data"]["turnstile.json"]) == BOARD
    assert made["ConfigMap"]["metadata"]["labels"]["grafana_dashboard"] == "1"
