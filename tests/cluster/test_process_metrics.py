"""What /metrics tells of a process that leads: its watches, its controllers, its writes."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.client import wait_until
from tests.cluster.scenario import Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(turnstile: Turnstile) -> Samples:
    """All samples of the process, as a scraper finds them."""
    families = text_string_to_metric_families(turnstile.installation.metrics())
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def test_a_process_that_leads_shows_its_work(scenario: Scenario, turnstile: Turnstile) -> None:
    """Each figure that a Job, admitted at once, must have raised; kinds without a CRD are dormant."""
    flavor = scenario.flavor("plain")
    scenario.queue("team", {flavor: {"cpu": 2}})
    scenario.job("train", queue="team", cpu="1")
    scenario.wait_started("train", timeout=15)

    def missing() -> list[str]:
        samples = scraped(turnstile)
        wanted: dict[str, dict[str, str]] = {
            "turnstile_leading": {},
            "turnstile_cache_objects": {"kind": "jobs.batch"},
            "turnstile_cache_state": {"kind": "jobsets.jobset.x-k8s.io", "state": "dormant"},
            "turnstile_events_created_total": {},
            "turnstile_writes_total": {"kind": "Job", "verb": "patch"},
            "workqueue_adds_total": {"name": "batch/job", "controller": "batch/job"},
            "controller_runtime_reconcile_total": {"controller": "Workload", "result": "success"},
            "turnstile_scheduler_admissions_total": {},
        }
        return [name for name, labels in wanted.items() if not samples.get((name, frozenset(labels.items())))]

    wait_until(lambda: not missing(), timeout=10, describe=lambda: f"no figure of {missing()}")
