"""axe-core finds no fault with any page, dark or light, on a desk or a telephone."""

from typing import Any

import pytest

from tests.browser.conftest import Served
from tests.browser.recorded import VICTIM

pytest.importorskip("axe_playwright_python", reason="make test-browser installs it")
from axe_playwright_python.sync_playwright import Axe

PATHS = {
    "overview": "/",
    "filtered to nothing": "/?q=nothing",
    "queue": "/clusterqueues/language",
    "workload": "/workloads/language/job-finetune-a3b77",
    "admitted workload": "/workloads/vision/job-segment-4f2a1",
    "Workload that is gone": f"/workloads/{VICTIM}",
    "search": "/workloads",
    "search with what is gone": "/workloads?q=preempted",
    "what if": "/what-if?queue=robotics/simulation&pods=6&requests=nvidia.com/gpu%3D1",
    "what if, quota": "/what-if?ask=quota",
    "what if, wrong": "/what-if?queue=robotics/simulation&requests=lots",
    "usage": "/usage",
    "usage, wrong": "/usage?by=user",
    "health": "/health",
    "nothing": "/clusterqueues/none",
}
STANDARDS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.mark.parametrize("width", [1280, 390, 768, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [pytest.param(path, id=name) for name, path in PATHS.items()])
def test_axe(shown: Served, chromium: Any, path: str, scheme: str, width: int) -> None:
    """No violation; and nothing is wider than the screen."""
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 850})
    page = context.new_page()
    page.goto(shown.address + path)
    found = Axe().run(page, options=STANDARDS)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
