"""What a page leaves out of what its reader may not see."""

import re
from typing import Final

import msgspec
import pytest

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from tests.unit.web.asking import page
from tests.unit.web.test_pages import words
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.web.sight import Sight

pytestmark = pytest.mark.asyncio

BY_NAMESPACE: Final = frozenset({Workload, LocalQueue})
ONE_NAMESPACE: Final = Sight(BY_NAMESPACE, frozenset({"team"}))
"""All queues, and the Workloads of one namespace."""
TENANT: Final = Sight(BY_NAMESPACE | {ClusterQueue, Cohort}, frozenset({"team"}))
"""The Workloads of one namespace only, as with the role batch-user."""
NOBODY: Final = Sight(BY_NAMESPACE | {ClusterQueue, Cohort}, frozenset())


def shared() -> tuple[object, ...]:
    """A ClusterQueue of two namespaces; a Workload of the other one runs, one of each waits."""
    return (
        team(),
        msgspec.convert({"metadata": {"name": "rival"}}, Namespace),
        b.flavor(),
        b.queue("main", {"default": {"cpu": 4}}, cohort="all"),
        b.local("main", "main"),
        b.local("main", "main", namespace="rival"),
        b.changed(b.held("secret-run", "main", {"cpu": "4"}), metadata={"namespace": "rival"}),
        b.workload("secret-wait", cpu=3, second=1, namespace="rival"),
        b.workload("waits", cpu=3, second=2),
    )


async def test_names_of_other_tenants_are_counted() -> None:
    """In the line of a ClusterQueue, among those who hold quota, and in an explanation."""
    async with page(*shared()) as shown:
        for path in ("/clusterqueues/main", "/workloads/team/waits", "/workloads", "/"):
            answer = await shown.get(path, sight=ONE_NAMESPACE)
            assert answer.status == 200
            assert "secret" not in answer.text, path
            assert "rival" not in answer.text, path
        said = words((await shown.get("/clusterqueues/main", sight=ONE_NAMESPACE)).text)
        assert "2 Workloads, in the order" in said
        assert said.count("and 1 of namespaces that you may not see") == 3
        said = words((await shown.get("/workloads/team/waits", sight=ONE_NAMESPACE)).text)
        assert "1 job before it in its ClusterQueue, 0 of them in its LocalQueue and 1 of namespaces" in said
        assert "secret-run" in (await shown.get("/clusterqueues/main")).text


async def test_remedies_count_the_workloads_of_other_tenants() -> None:
    """Those that would be preempted, and those that take part of a raised quota; what is not named is no link."""
    later = b.workload("later", cpu=3, second=3)
    preempting = b.queue(
        "main", {"default": {"cpu": 4}}, cohort="all", preemption={"withinClusterQueue": "LowerPriority"}
    )
    async with page(*shared(), preempting, later) as shown:
        html = (await shown.get("/workloads/team/later", sight=ONE_NAMESPACE)).text
    said = words(html)
    assert "It would preempt a Workload of another namespace." in said
    assert "take part of that quota: team/waits , a Workload of another namespace." in said
    assert '<a href="../../workloads/team/waits">team/waits</a>, a Workload' in html
    assert not re.findall('href="[^"]* Workload', html)


async def test_a_tenant_sees_no_queue() -> None:
    """But its own Workloads, each with its reason; what other ClusterQueues hold is a sum without names."""
    async with page(*shared()) as shown:
        said = words((await shown.get("/", sight=TENANT)).text)
        assert "ClusterQueue, Cohort: you may not list and watch them" in said
        assert "Workload, LocalQueue: you may list them in namespace team only" in said
        assert "4" not in said
        assert (await shown.get("/clusterqueues/main", sight=TENANT)).status == 404
        said = words((await shown.get("/workloads/team/waits", sight=TENANT)).text)
        assert "asks " in said
        assert "secret" not in said
        answer = await shown.get("/what-if?clusterqueue=main&flavor=default&resource=cpu&nominal=9", sight=TENANT)
        assert answer.status == 400
        assert "it changes clusterqueues and cohorts, which you may not list" in answer.text


async def test_what_is_there_and_may_not_be_seen_is_not_there() -> None:
    """The same answer as for what does not exist."""
    async with page(*shared()) as shown:
        hidden = await shown.get("/workloads/rival/secret-run", sight=ONE_NAMESPACE)
        absent = await shown.get("/workloads/rival/secret-nun", sight=ONE_NAMESPACE)
        assert (hidden.status, absent.status) == (404, 404)
        told, untold = (re.sub("seen=[0-9a-f]+", "", each.text) for each in (hidden, absent))
        assert told.replace("secret-run", "secret-nun") == untold
        said = words((await shown.get("/workloads", sight=NOBODY)).text)
        assert "waits" not in said
        assert "you may not list and watch them" in said


async def test_pages_about_everybody() -> None:
    """Are for readers who see everybody."""
    async with page(*shared()) as shown:
        assert (await shown.get("/health")).status == 200
        answer = await shown.get("/health", sight=ONE_NAMESPACE)
        assert answer.status == 403
        assert "This page is about everybody" in answer.text


async def test_what_if_names_no_other_tenant() -> None:
    """A quota that is asked about: Workloads of others are counted."""
    async with page(*shared()) as shown:
        path = "/what-if?clusterqueue=main&flavor=default&resource=cpu&nominal=9"
        answer = await shown.get(path, sight=ONE_NAMESPACE)
        assert answer.status == 200
        assert "secret" not in answer.text
        assert "and 1 of namespaces that you may not see" in words(answer.text)
    async with page(*shared()) as shown:
        assert "secret-wait" in (await shown.get(path)).text


async def test_links_are_relative() -> None:
    """Every link, form, file and the address of the events: a proxy may put all pages below a path of its own."""
    async with page(*shared()) as shown:
        html = (await shown.get("/clusterqueues/main")).text
        paths = re.findall(r'\b(?:href|src|action|data-follow)="([^"#]+)"', html)
        assert len(paths) > 10
        assert all(each.startswith("../") for each in paths)
        assert any(each.startswith("../events?of=%2Fclusterqueues%2Fmain") for each in paths)
        assert 'href="./workloads"' in (await shown.get("/")).text
