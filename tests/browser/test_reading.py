"""A reader follows links and sees what there is."""

from typing import Any

import pytest

from tests.browser.conftest import Served

pytest.importorskip("playwright", reason="make test-browser installs it")
from playwright.sync_api import expect


def test_from_the_overview_to_a_remedy(shown: Served, page: Any) -> None:
    """Cohort, ClusterQueue, Workload, and what would admit it."""
    page.goto(shown.address)
    expect(page.locator("#c-models")).to_contain_text("language borrows 4: 3 from vision, 1 from research")
    expect(page.locator("#q-robotics")).to_contain_text("2 held for a preemptor")
    expect(page.locator("#q-robotics")).to_contain_text("holds quota for vision/job-track-ab310")
    expect(page.locator("#q-archive")).to_contain_text("stopped by its owner")
    page.get_by_role("link", name="language", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ClusterQueue language")
    waiting = page.locator("#waiting tbody tr")
    expect(waiting).to_have_count(3)
    expect(waiting.first).to_contain_text("on a100 nodes")
    page.get_by_role("link", name="finetune").click()
    remedy = "Raise the nominal quota of ClusterQueue language for a100 nodes by"
    expect(page.locator("#explanation")).to_contain_text(remedy, timeout=60_000)
    expect(page.locator("#summary")).to_contain_text("first in ClusterQueue language")
    expect(page.locator("#moments")).to_contain_text("Created")
    expect(page.locator("#summary")).to_contain_text("8 of 10 times between", timeout=180_000)


def test_finding_a_workload_by_keyboard(shown: Served, page: Any) -> None:
    """`/` goes to the search, `j` to the first hit, Enter to its page."""
    page.goto(shown.address)
    page.keyboard.press("/")
    page.keyboard.type("grasp")
    page.keyboard.press("Enter")
    expect(page.locator("#found table").first.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Job grasp")
    expect(page.locator("#head")).to_contain_text("running")


def test_a_workload_that_is_gone(shown: Served, page: Any) -> None:
    """The search finds what the flight recorder has kept of it: by whom it was preempted, and how it ended."""
    page.goto(f"{shown.address}/workloads")
    page.get_by_label("State").select_option("gone, and recorded")
    page.get_by_label("Parts of a name").fill("robotics preempted")
    page.get_by_role("button", name="Show").click()
    page.locator("#found").get_by_role("link", name="preempted").click()
    expect(page.locator(".notice")).to_contain_text("It is not there any more.")
    by = "Preempted by vision/job-track-ab310 of ClusterQueue vision"
    expect(page.locator("#moments")).to_contain_text(by)
    expect(page.locator("#moments li").first).to_contain_text("Deleted")
    page.get_by_role("link", name="vision/job-track-ab310").click()
    expect(page.locator("#head")).to_contain_text("waiting")


def test_only_queues_named(shown: Served, page: Any) -> None:
    """The filter leaves what matches, a Cohort with all its members."""
    page.goto(f"{shown.address}/?q=models")
    expect(page.locator("tr.queue")).to_have_count(2)
    page.get_by_label("Only those named").fill("nothing")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".empty")).to_contain_text("has “nothing” in its name")


def test_what_if_a_job_came(shown: Served, page: Any) -> None:
    """The form says what the next cycles would do, and what is wrong with a field, beside it."""
    page.goto(f"{shown.address}/what-if")
    page.get_by_label("LocalQueue").select_option("robotics/simulation")
    page.get_by_label("Pods").fill("6")
    page.get_by_label("Priority").fill("10")
    page.get_by_label("Each pod asks for").fill("nvidia.com/gpu=1 cpu=12 memory=lots")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_label("Each pod asks for")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#h-requests")).to_contain_text("lots")
    page.get_by_label("Each pod asks for").fill("nvidia.com/gpu=1 cpu=12 memory=96Gi")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".verdict")).to_contain_text("It would start", timeout=30_000)


def test_the_theme_is_remembered(shown: Served, page: Any) -> None:
    """As the system, light, dark: also on the next page."""
    page.goto(shown.address)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    button = page.locator("#theme")
    button.click()
    button.click()
    assert page.evaluate(ground) != light
    page.goto(f"{shown.address}/health")
    expect(button).to_have_attribute("aria-label", "Colours: Dark")


def test_nothing_at_an_address(shown: Served, page: Any) -> None:
    """A page that says so, not an error of the server."""
    answer = page.request.get(f"{shown.address}/clusterqueues/none")
    assert answer.status == 404
    assert "There is nothing at this address" in answer.text()
