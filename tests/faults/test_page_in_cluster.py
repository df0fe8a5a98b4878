"""The page in the cluster, while rights and servers come and go."""

import pytest

from testbed.client import wait_until
from tests.cluster.page_served import PAGE, Served, role
from tests.cluster.scenario import Scenario

pytestmark = pytest.mark.cluster


def test_a_right_that_is_taken_away(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """Within seconds the page of its user has nothing of the namespace any more."""
    mine, _ = teams
    user = f"leaves-{mine.namespace}"
    role(mine, user, "turnstile-batch-user-role", everywhere=False)
    browser = served.browser(user)
    browser.sees("/workloads", "1 job:")
    path = (
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{mine.namespace}/rolebindings/{user}-turnstile-batch-user-role"
    )
    mine.api.delete(path)
    browser.sees("/workloads", "There is no job")


def test_a_page_outlives_its_server(served: Served, teams: tuple[Scenario, Scenario]) -> None:
    """After a restart the same address is answered again, with the same content."""
    mine, _ = teams
    browser = served.browser(f"batch-{mine.namespace}")
    browser.sees("/workloads", "1 job:")
    served.process.terminate()
    wait_until(lambda: browser.get(f"{PAGE}/")[0] == 503, timeout=30, describe=lambda: "the API server says 503")
    served.start()
    browser.sees("/workloads", "1 job:")
