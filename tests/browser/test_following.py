"""An open page changes with the cluster."""

from typing import Any

import pytest

from tests.browser import demo
from tests.browser.conftest import Served
from turnstile.api.workload import Workload

pytest.importorskip("playwright", reason="make test-browser installs it")
from playwright.sync_api import expect


def test_a_workload_comes_and_goes(changing: Served, page: Any) -> None:
    """The row of its queue says so, and a reader who stands on a link of that row still stands there."""
    page.goto(changing.address)
    expect(page.locator("#status")).to_have_text("Live")
    link = page.get_by_role("link", name="robotics", exact=True)
    link.focus()
    requests = {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}
    changing.put(demo.waits("robotics", "job-new-1", "simulation", "no quota", requests=requests))
    expect(page.locator("#q-robotics td").first).to_have_text("1")
    expect(link).to_be_focused()
    changing.drop(Workload, "robotics/job-new-1")
    expect(page.locator("#q-robotics td").first).to_have_text("–")


def test_a_queue_that_is_made(changing: Served, page: Any) -> None:
    """A row more."""
    page.goto(changing.address)
    expect(page.locator("#status")).to_have_text("Live")
    changing.put(demo.queue("audio", demo.quotas(a100={"cpu": "4"}), cohort="models"))
    expect(page.locator("#q-audio")).to_contain_text("0 / 4")


def test_the_line_of_a_queue(changing: Served, page: Any) -> None:
    """A Workload of higher priority comes before the others."""
    page.goto(f"{changing.address}/clusterqueues/platform")
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("#waiting tbody tr").first).to_contain_text("backup")
    changing.put(demo.waits("platform", "job-urgent-1", "batch", "no quota", requests={"cpu": "1"}, priority=9))
    expect(page.locator("#waiting tbody tr").first).to_contain_text("urgent")


def test_only_what_changed_is_sent(changing: Served, page: Any) -> None:
    """The row of another queue is the very same element afterwards."""
    page.goto(changing.address)
    expect(page.locator("#status")).to_have_text("Live")
    page.evaluate("document.querySelector('#q-platform td').marked = true")
    changing.put(demo.waits("robotics", "job-new-1", "simulation", "no quota", requests={"cpu": "1"}))
    expect(page.locator("#q-robotics td").first).to_have_text("1")
    assert page.evaluate("document.querySelector('#q-platform td').marked")


def test_a_page_of_an_admitted_workload(changing: Served, page: Any) -> None:
    """The page of a Workload that waits says so once it is admitted."""
    page.goto(f"{changing.address}/workloads/platform/job-report-44b1f")
    expect(page.locator("#head")).to_contain_text("waiting")
    requests = {"cpu": "2", "memory": "4Gi"}
    changing.put(
        demo.runs("platform", "job-report-44b1f", "batch", "platform", "any-node", requests=requests, minutes=3)
    )
    expect(page.locator("#head")).to_contain_text("running")
    expect(page.locator("#moments")).to_contain_text("Pods ready")
