"""A real Prometheus scrapes a running Turnstile, as an account that may read the metrics, and every query of the board
and of the alerts finds what it asks for."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client import wait_until
from testbed.installation import Installation, metrics_token
from testbed.ports import lent_port
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import Scenario
from tests.unit.chart.test_monitoring import FILES, QUERIES, RULES

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
metrics:
  enableClusterQueueResources: true
"""

PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
- job_name: turnstile
  scheme: https
  tls_config: {{insecure_skip_verify: true}}
  authorization: {{credentials: "{token}"}}
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


ALSO = (
    "kueue_build_info",
    'kueue_workload_creation_latency_seconds_count{job_kind="Job"}',
    "kueue_quota_reserved_wait_time_seconds_count",
    "kueue_finished_workloads_total",
    "kueue_cohort_subtree_admitted_workloads_total",
    "kueue_local_queue_status",
    "leader_election_master_status == 1",
    "turnstile_certificate_expiry_timestamp_seconds > time()",
)
"""Queries about what the board does not show."""


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer."""
        url = f"{self.url}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]

    def up(self) -> bool:
        """Whether it answers, and its target is scraped."""
        try:
            targets = self.ask("targets")["activeTargets"]
        except OSError:
            return False
        return [each["health"] for each in targets] == ["up"]

    def empty(self, queries: dict[str, str]) -> list[str]:
        """Titles of queries without a series that has a number."""
        found = {title: self.ask("query", query=query)["result"] for title, query in queries.items()}
        return [title for title, series in found.items() if not [each for each in series if each["value"][1] != "NaN"]]


@pytest.fixture(scope="module")
def installed(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """Turnstile running, with the metrics of resources."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        found.start()
        yield found


@pytest.fixture(scope="module")
def prometheus(installed: Configured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus, which scrapes that Turnstile every second."""
    directory = tmp_path_factory.mktemp("prometheus")
    file, port = directory / "prometheus.yml", lent_port()
    text = PROMETHEUS.format(
        rules=FILES / "rules.yaml", token=metrics_token(installed.cp), port=installed.installation.port
    )
    file.write_text(text)
    program = Path(str(shutil.which("prometheus")))
    address = f"--web.listen-address=127.0.0.1:{port}"
    storage = f"--storage.tsdb.path={directory / 'data'}"
    process = installed.cp.start_process("prometheus", [program, f"--config.file={file}", storage, address])
    running = Prometheus(port)
    wait_until(running.up, timeout=20, describe=lambda: f"not scraped:\n{process.tail(20)}")
    yield running
    process.terminate()


@pytest.fixture
def world(installed: Configured) -> Iterator[Scenario]:
    """An empty managed namespace."""
    with installed.team() as scenario:
        yield scenario


def test_every_query_of_the_board_finds_series(world: Scenario, prometheus: Prometheus) -> None:
    """After a Job was preempted and admitted again; another one is too large."""
    flavor = world.flavor("plain")
    cohort = world.cohort("all")
    world.queue("team", {flavor: {"cpu": 2}}, cohort=cohort, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = world.priority_class("low", 10), world.priority_class("high", 100)
    label = "kueue.x-k8s.io/priority-class"
    wait_until(lambda: not prometheus.empty({"status": "kueue_cluster_queue_status"}), timeout=10,
               describe=lambda: "the queue is not scraped")  # fmt: skip
    world.job("low", queue="team", cpu="2", labels={label: low})
    world.wait_started("low", timeout=15)
    world.job("high", queue="team", cpu="2", labels={label: high})
    world.wait_started("high", timeout=15)
    world.finish("high")
    world.wait_started("low", timeout=15)
    world.job("large", queue="team", cpu="50")
    world.wait_pending("large")
    queries = {
        title: query.replace("$__rate_interval", "1m").replace("$cluster_queue", ".*")
        for title, query in QUERIES.items()
    }
    queries |= {name: name for name in ALSO}
    wait_until(
        lambda: not prometheus.empty(queries),
        timeout=30,
        describe=lambda: f"no series for {prometheus.empty(queries)}",
    )


def test_the_rules_are_evaluated_and_none_rings(installed: Configured, prometheus: Prometheus) -> None:
    """Over a Turnstile that is well."""

    def evaluated() -> bool:
        groups = prometheus.ask("rules")["groups"]
        return [rule["health"] for group in groups for rule in group["rules"]] == ["ok"] * len(RULES)

    wait_until(evaluated, timeout=10, describe=lambda: str(prometheus.ask("rules")))
    alerts = prometheus.ask("alerts")["alerts"]
    assert [each["labels"]["alertname"] for each in alerts if each["state"] == "firing"] == []
