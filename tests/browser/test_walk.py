"""The walk that docs/tasks/why-a-job-waits.md writes down: from a Job's name to why it waits, with two clicks."""

import re
from typing import Any

import pytest

from tests.browser.conftest import Served
from tests.documents import ROOT

pytest.importorskip("playwright", reason="make test-browser installs it")
from playwright.sync_api import expect

COUNT = "addEventListener('click', () => sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1, true)"


def test_why_a_job_waits(shown: Served, page: Any) -> None:
    """The reader knows the name `finetune`, and nothing else; the answer is there without scrolling."""
    page.add_init_script(COUNT)
    page.goto(shown.address)
    page.get_by_role("searchbox", name="Find a job, Workload or ClusterQueue").click()
    page.keyboard.type("finetune")
    page.keyboard.press("Enter")
    page.locator("#found").get_by_role("link", name="finetune").first.click()
    expect(page.get_by_role("heading", name="Why it waits")).to_be_in_viewport()
    why = page.locator("#summary .answer")
    expect(why).to_have_text(
        re.compile("^Waits for 4 more GPUs, 48 more CPUs and 384Gi more memory on a100 nodes: asks 6 GPUs, 2 free; ")
    )
    expect(why).to_be_in_viewport()
    assert page.evaluate("sessionStorage.clicks") == "2"
    walk = (ROOT / "docs" / "tasks" / "why-a-job-waits.md").read_text()
    assert "From the page, with two clicks" in walk
    assert "**Why it waits** is the first sentence" in walk
