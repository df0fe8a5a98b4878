"""The commands of docs/troubleshooting.md, on an installation that works: each prints what the page looks for."""

import pytest

from testbed import ControlPlane
from tests.cluster.reader import Reader
from tests.cluster.scenario import Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


def test_the_commands_of_the_page(control_plane: ControlPlane, turnstile: Turnstile, scenario: Scenario) -> None:
    """Of all three symptoms."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    page = Reader("../troubleshooting.md", control_plane)
    page.see(r"^\S+ \d{4}-\d\d-\d\dT")
    page.see(r"LS0tLS1CRUdJTi")
    page.see(rf"{scenario.namespace} .*kueue-managed=true(.|\n)*{scenario.namespace} +team ")
    page.end()
