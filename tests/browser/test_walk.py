"""The walks that the documents write down: why a Job waits, why one was preempted, and who holds what others wait for.

Each prints its clicks and seconds (`make test-browser ARGS="-k walk -s"`).
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.browser.conftest import Served
from tests.documents import ROOT

pytest.importorskip("playwright", reason="make test-browser installs it")
from playwright.sync_api import expect

COUNT = "addEventListener('click', () => sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1, true)"


@contextmanager
def walk(page: Any, name: str, *, clicks: int) -> Iterator[None]:
    """A walk with so many clicks, from the moment the page is opened."""
    page.add_init_script(COUNT)
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    assert int(page.evaluate("sessionStorage.clicks || 0")) == clicks
    print(f"{name}: {clicks} clicks, {seconds:.1f} s")


def find(page: Any, address: str, name: str) -> None:
    """Open the page of a job of which the reader knows a part of its name, and nothing else."""
    page.goto(address)
    page.get_by_role("searchbox", name="Find a job, Workload or ClusterQueue").click()
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.locator("#found").get_by_role("link", name=name).first.click()


def test_why_a_job_waits(shown: Served, page: Any) -> None:
    """The answer is there without scrolling."""
    with walk(page, "why a Job waits", clicks=2):
        find(page, shown.address, "finetune")
        expect(page.locator("#summary .answer")).to_be_in_viewport()
    expect(page.get_by_role("heading", name="Why it waits")).to_be_in_viewport()
    why = page.locator("#summary .answer")
    expect(why).to_have_text(
        re.compile("^Waits for 4 more GPUs, 48 more CPUs and 384Gi more memory on a100 nodes: asks 6 GPUs, 2 free; ")
    )
    expect(why).to_be_in_viewport()
    told = (ROOT / "docs" / "tasks" / "why-a-job-waits.md").read_text()
    assert "From the page, with two clicks" in told
    assert "**Why it waits** is the first sentence" in told


def test_why_a_job_was_preempted(shown: Served, page: Any) -> None:
    """By whom, by which rule, and where it goes on; and how long its pods may still run."""
    with walk(page, "why a Job was preempted", clicks=2):
        find(page, shown.address, "sweep")
        why = page.locator("#summary .answer")
        expect(why).to_have_text(
            re.compile(
                "Preempted at .* by vision/track, whose queue takes back quota that it had lent; "
                "it waits in its queue again when its pods have ended."
            )
        )
        expect(why).to_be_in_viewport()
    expect(page.locator("#summary")).to_contain_text("Pods may run until")
    told = (ROOT / "docs" / "tasks" / "why-a-job-waits.md").read_text()
    assert "**by whom a Job was preempted**, by which rule, and where it goes on" in told


def test_who_holds_what_others_wait_for(shown: Served, page: Any) -> None:
    """The first screen says which queues are full and have people waiting, and who borrows from whom."""
    with walk(page, "who holds what others wait for", clicks=0):
        page.goto(shown.address)
        rows = page.locator("main")
        expect(rows).to_contain_text("vision full, 2 waiting")
        expect(page.get_by_text("language borrows 4: 3 from vision, 1 from research").first).to_be_visible()
        expect(page.get_by_text("holds quota for vision/job-track-ab310").first).to_be_visible()
    told = (ROOT / "docs" / "tasks" / "page.md").read_text()
    assert "which queues are full while people wait, and who borrows from whom" in told
