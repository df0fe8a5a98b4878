"""A tenant opens the page in the cluster through `kubectl proxy`."""

from typing import Any

import pytest

from tests.cluster.page_served import PAGE, Served, may_list, role
from tests.cluster.scenario import Scenario

pytest.importorskip("playwright", reason="make test-browser installs it")
from playwright.sync_api import expect

from tests.browser.test_accessibility import STANDARDS, Axe

pytestmark = pytest.mark.cluster


def test_links_and_changes(served: Served, teams: tuple[Scenario, Scenario], page: Any) -> None:
    """Styles, links, forms and events lead below the API server's path; what changes appears by itself."""
    mine, theirs = teams
    user = f"looks-{mine.namespace}"
    role(mine, user, "turnstile-batch-user-role", everywhere=False)
    for kind in ("clusterqueue", "cohort"):
        role(mine, user, f"turnstile-{kind}-viewer-role")
    page.goto(f"{served.browser(user).address}{PAGE}/")
    expect(page.locator("#status")).to_contain_text("Live")
    page.get_by_role("link", name=mine.named("shared"), exact=True).click()
    expect(page.locator("#waiting")).to_contain_text("2 Workloads")
    expect(page.locator("#waiting")).to_contain_text("and 1 of namespaces that you may not see")
    theirs.job("secret-new", queue="main", cpu="2")
    expect(page.locator("#waiting")).to_contain_text("3 Workloads")
    expect(page.locator("main")).not_to_contain_text("secret")
    page.locator("#waiting").get_by_role("link", name="waits").click()
    expect(page.locator("#summary .answer")).to_contain_text("Waits for 2 more CPUs")
    page.get_by_role("link", name="What if").click()
    page.get_by_label("LocalQueue").select_option(f"{mine.namespace}/main")
    page.get_by_label("Each pod asks for").fill("cpu=1")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".verdict")).to_be_visible()


@pytest.mark.parametrize("width", [390, 768, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pods_of_a_running_job(
    served: Served, teams: tuple[Scenario, Scenario], chromium: Any, scheme: str, width: int
) -> None:
    """The table of pods and nodes has no fault that axe-core knows, and is not wider than the screen."""
    theirs = teams[1]
    user = f"views-{theirs.namespace}"
    role(theirs, user, "view", everywhere=False)
    role(theirs, user, "turnstile-batch-user-role", everywhere=False)
    may_list(theirs, user, "workloads", everywhere=False)
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 850})
    page = context.new_page()
    name = theirs.workload_of("secret-runs")["metadata"]["name"]
    page.goto(f"{served.browser(user).address}{PAGE}/workloads/{theirs.namespace}/{name}")
    expect(page.get_by_role("rowheader", name="secret-runs-")).to_be_visible()
    found = Axe().run(page, options=STANDARDS)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
