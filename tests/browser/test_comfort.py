"""A reader finds the keys, copies commands, sees that a table scrolls, and reads times of the own clock."""

from typing import Any

import pytest

from tests.browser.conftest import Served

pytest.importorskip("playwright", reason="make test-browser installs it")
from playwright.sync_api import expect


def test_the_keys_are_listed(shown: Served, page: Any) -> None:
    """`?` opens the list, Escape closes it, and `g j` leads to the jobs."""
    page.goto(shown.address)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_contain_text("jobs")


def test_a_table_that_scrolls_says_so(shown: Served, page: Any) -> None:
    """On a telephone; at its end it says the other direction."""
    page.set_viewport_size({"width": 390, "height": 850})
    page.goto(f"{shown.address}/clusterqueues/language")
    table = page.locator(".scrolls").first
    hint = "e => getComputedStyle(e, '::before').content"
    assert "scroll sideways" in table.evaluate(hint)
    table.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    expect(table).to_have_class("scrolls over end")
    assert "scroll back" in table.evaluate(hint)


def test_the_font_is_fetched_once(shown: Served, page: Any) -> None:
    """The address in the stylesheet is the one that the page loads ahead."""
    fonts = []
    page.on("request", lambda request: fonts.append(request.url) if request.resource_type == "font" else None)
    page.goto(shown.address)
    page.evaluate("document.fonts.ready")
    assert len({*fonts}) == 1
