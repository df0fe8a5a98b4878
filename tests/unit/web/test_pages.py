"""What pages say of small worlds."""

import asyncio
import re

import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from tests.unit.web.asking import Page, page
from turnstile.api.meta import Condition
from turnstile.api.workload import Workload
from turnstile.engine.decisions import preempted_message
from turnstile.engine.options import Gates, Options
from turnstile.process.aside import Aside

pytestmark = pytest.mark.asyncio


def words(html: str) -> str:
    """The text of a page, without tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


async def explained(shown: Page, path: str, sentence: str) -> str:
    """The words of a page once its explanation, which is worked out in another process, has this sentence."""
    async with asyncio.timeout(60):
        news = shown.world.news
        while sentence not in (said := words((await shown.get(path)).text)):
            await shown.world.changed(news)
            news = shown.world.news
    return said


def busy() -> tuple[object, ...]:
    """A Cohort in which one ClusterQueue borrows of another, and a Workload waits."""
    return (
        team(),
        b.flavor(),
        b.queue("main", {"default": {"cpu": 4}}, cohort="all"),
        b.queue("idle", {"default": {"cpu": 2}}, cohort="all"),
        b.local("main", "main"),
        b.held("runs", "main", {"cpu": "5"}, flavor="default"),
        b.workload("waits", cpu=3, second=1),
        b.workload("later", cpu=1, second=2),
    )


async def test_the_overview_says_who_lends_to_whom() -> None:
    """Sums of the Cohort, what its members use, and the loan."""
    async with page(*busy()) as shown:
        said = words((await shown.get("/")).text)
        assert said.count("main borrows 1 from idle") == 1
        assert "main full, 2 waiting" in said
        assert "5 / 4" in said
        assert "0 / 2" in said


async def test_a_queue_shows_its_line() -> None:
    """In the order in which Workloads are tried, with the reason."""
    async with page(*busy()) as shown:
        said = words((await shown.get("/clusterqueues/main")).text)
        assert "2 Workloads, in the order in which they are tried" in said
        assert said.index("waits Workload &middot; team") < said.index("later Workload &middot; team")
        assert "The leader has not looked at it yet." in said


async def test_a_workload_is_explained() -> None:
    """By the scheduler's own code, with what would admit it."""
    async with page(*busy()) as shown:
        said = words((await shown.get("/workloads/team/waits")).text)
        assert "Waits for 2 more CPUs on default nodes: asks 3, 1 free; team/runs holds them." in said
        assert "you Ask for" in said


async def test_what_if_a_quota_were_larger() -> None:
    """The Workload that would be admitted by that, and no other change."""
    asked = "/what-if?clusterqueue=main&flavor=default&resource=cpu&nominal=8"
    async with page(*busy()) as shown:
        said = words((await shown.get(asked)).text)
        assert "Would start besides 1 Job ClusterQueue On team/waits main default" in said


async def test_quota_that_another_controller_sets() -> None:
    """Each page shows the quota that holds, and whose it is; a supposed quota is in its place."""
    main = b.orchestrated(b.queue("main", {"default": {"cpu": 9}}, cohort="all"), {"default": {"cpu": 4}})
    gates = Gates(dynamic_quota_orchestration=True)
    async with page(*busy(), main, options=Options(gates=gates), beside=Aside()) as shown:
        said = words((await shown.get("/clusterqueues/main")).text)
        assert "Set by Schedule nights, in the place of its spec." in said
        said = await explained(shown, "/workloads/team/waits", "asks 3, 1 free")
        assert "The quota of ClusterQueue main is set by Schedule nights, in the place of its spec." in said
        assert "main: cpu of default, 4 now" in (await shown.get("/what-if?ask=quota")).text
        said = words((await shown.get("/what-if?clusterqueue=main&flavor=default&resource=cpu&nominal=6")).text)
        assert "Would start besides 1 Job ClusterQueue On team/waits main default" in said


async def test_what_if_a_waiting_workload_were_smaller() -> None:
    """It would be admitted; as it is, it waits."""
    async with page(*busy(), beside=Aside()) as shown:
        assert "It would wait." in words((await shown.get("/what-if?workload=team/waits")).text)
        said = words((await shown.get("/what-if?workload=team/waits&requests=cpu%3D1&priority=5")).text)
        assert "It would start on default in ClusterQueue main, now." in said


async def test_what_if_nodes_were_drained() -> None:
    """Who holds quota in their flavor, and who would wait that is admitted without the drain."""
    world = (
        team(),
        b.flavor(nodeLabels={"pool": "a"}),
        b.queue("main", {"default": {"cpu": 4}}),
        b.local("main", "main"),
        b.held("runs", "main", {"cpu": "1"}),
        b.workload("waits", cpu=3, second=1),
    )
    async with page(*world, beside=Aside()) as shown:
        said = words((await shown.get("/what-if?drain=pool%3Da")).text)
        assert "Flavor default would lose its nodes. 1 job holds quota in it" in said
        assert "Would wait, and start without the change 1 Job ClusterQueue Why team/waits" in said
        assert "no ResourceFlavor has such nodes" in words((await shown.get("/what-if?drain=pool%3Db")).text)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("queue=team/none&requests=cpu%3D1", "no such LocalQueue"),
        ("workload=team/none", "no such Workload: give NAMESPACE/NAME"),
        ("workload=team/runs", "it does not wait"),
        ("workload=team/waits&queue=other/main", "no such LocalQueue"),
        ("workload=team/waits&pods=none", "give a whole number"),
        ("drain=%3Dx", "give labels of nodes"),
        ("drain=pool%3Da&clusterqueue=main&flavor=default&resource=cpu&nominal=1", "ask about one at a time"),
        ("queue=team/main", "say what a pod asks for"),
        ("queue=team/main&requests=cpu", "cpu: write what a pod asks for"),
        ("queue=team/main&requests=cpu%3D-1", "an amount is not negative"),
        ("queue=team/main&requests=cpu%3D1&pods=0", "give at least 1"),
        ("queue=team/main&requests=cpu%3D1&priority=high", "give a whole number"),
        ("clusterqueue=main&flavor=gold&resource=cpu&nominal=1", "the ClusterQueue has quota for default cpu"),
        ("clusterqueue=none&nominal=1", "no such ClusterQueue"),
    ],
)
async def test_what_if_with_something_wrong(asked: str, says: str) -> None:
    """The form comes back with the fault beside the field."""
    async with page(*busy()) as shown:
        answer = await shown.get(f"/what-if?{asked}")
        assert answer.status == 400
        assert says in words(answer.text)


async def test_names_are_escaped() -> None:
    """What an object of a dump is called can be no markup."""
    async with page(team(), b.flavor(), b.queue("<script>alert(1)</script>", {"default": {"cpu": 1}})) as shown:
        html = (await shown.get("/")).text
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert(1)" in html


async def test_nothing_there() -> None:
    """An empty cluster says what to do; an address of nothing is a 404, whatever its parameters."""
    async with page() as shown:
        assert "There is no ClusterQueue yet" in (await shown.get("/?page=0")).text
        assert "There is no job yet" in (await shown.get("/workloads")).text
        for path in ("/workloads/a/b", "/clusterqueues/none?page=x", "/static/none", "/static/../pages.py", "/a/b/c/d"):
            assert (await shown.get(path)).status == 404, path


async def test_pages_of_many_queues() -> None:
    """A Cohort of 120 ClusterQueues goes on on the next page; each is on exactly one."""
    queues = [b.queue(f"q{number:03}", {"default": {"cpu": 1}}, cohort="all") for number in range(120)]
    async with page(team(), b.flavor(), *queues) as shown:
        seen = [
            name for at in (1, 2, 3) for name in re.findall('id="q-(q[0-9]+)"', (await shown.get(f"/?page={at}")).text)
        ]
        assert sorted(seen) == [f"q{number:03}" for number in range(120)]
        assert "Page 3 of 3" in (await shown.get("/?page=99")).text


async def test_a_workload_that_is_gone() -> None:
    """Its page is, too."""
    async with page(*busy()) as shown:
        shown.source.stores[Workload].delete("team/waits")
        await shown.world.changed(shown.world.news)
        assert (await shown.get("/workloads/team/waits")).status == 404


async def test_quota_that_is_held_for_a_preemptor() -> None:
    """While its victim leaves, and after that: the quota of the ClusterQueue is not free for others."""
    urgent = b.workload("urgent", cpu=4, priority=9, second=3)
    victim = b.held("runs", "main", {"cpu": "4"}, flavor="default")
    said = preempted_message(urgent, "InClusterQueue", "/main", "/main")
    evicted = [
        {"type": kind, "status": "True", "reason": reason, "message": said, "lastTransitionTime": b.stamp(4)}
        for kind, reason in (("Evicted", "Preempted"), ("Preempted", "InClusterQueue"))
    ]
    conditions = [*victim.status.conditions, *msgspec.convert(evicted, list[Condition])]
    leaving = replace(victim, status=replace(victim.status, conditions=conditions))
    world = (team(), b.flavor(), b.queue("main", {"default": {"cpu": 4}}), b.local("main", "main"))
    async with page(*world, urgent, leaving) as shown:
        overview = words((await shown.get("/")).text)
        assert "holds quota for team/urgent" in overview
        assert "4 held for a preemptor" in overview
        ends = b.stamp(4 + 300).replace("T", " ").removesuffix("Z")
        assert f"Pods may run until {ends} UTC" in words((await shown.get("/workloads/team/runs")).text)
        assert "Preempted by another Workload, which comes first in the same queue." in words(
            (await shown.get("/workloads/team/runs")).text
        )
        assert "Pods may run until" not in words((await shown.get("/workloads/team/urgent")).text)
        conditions = [each for each in conditions if each.type in ("Evicted", "Preempted")]
        await shown.put(replace(victim, status=replace(victim.status, conditions=conditions, admission=None)))
        assert "Quota is held for the preemptor team/urgent" in words((await shown.get("/clusterqueues/main")).text)


async def test_a_full_queue_with_people_waiting_is_not_like_one_that_is_full_and_idle() -> None:
    """It has a badge and a colour of its own; one that its owner stopped is no fault."""
    crowded = (b.queue("crowded", {"default": {"cpu": 1}}), b.local("crowded", "crowded"))
    content = (b.queue("content", {"default": {"cpu": 1}}), b.local("content", "content"))
    stopped = b.queue("stopped", {"default": {"cpu": 1}}, stopPolicy="Hold")
    runs = (b.held("one", "crowded", {"cpu": "1"}), b.held("two", "content", {"cpu": "1"}))
    waits = b.changed(b.workload("waits"), spec={"queueName": "crowded"})
    async with page(team(), b.flavor(), *crowded, *content, stopped, *runs, waits) as shown:
        html = (await shown.get("/")).text
        said = words(html)
    assert "crowded full, 1 waiting" in said
    assert "content full 0 1" not in said
    assert re.search(r"content full –", said)
    assert "stopped stopped by its owner" in said
    assert len(re.findall(r'class="bar hot"', html)) == 1
    assert "1 stopped" in said
    assert "nothing" not in said.partition("Cohorts and ClusterQueues")[0]


async def test_other_resources_are_folded() -> None:
    """The row has the scarcest one, and the others behind a summary."""
    queue = b.queue("main", {"default": {"cpu": 4, "memory": 4}})
    async with page(team(), b.flavor(), queue) as shown:
        html = (await shown.get("/")).text
    row = html.partition('id="q-main"')[2].partition("</tr>")[0]
    before, _, folded = row.partition("<details")
    assert "cpu" in before
    assert "memory" not in before
    assert "memory" in folded
    assert "1 more resource<" in folded


async def test_what_if_asks_one_question_at_a_time() -> None:
    """Each has its own fields, with lists to choose from; a reader without quotas has the first two."""
    async with page(*busy()) as shown:
        html = (await shown.get("/what-if")).text
        assert '<option value="team/main"' in html
        assert 'name="workload"' not in html
        assert 'name="nominal"' not in html
        assert "Try an example" in html
        html = (await shown.get("/what-if?ask=change")).text
        assert re.search('<option value="team/waits">team/waits</option>', html)
        assert 'value="team/runs"' not in html
        html = (await shown.get("/what-if?ask=quota")).text
        assert '<option value="main default cpu">main: cpu of default, 4 now</option>' in html
        html = (await shown.get("/what-if?quota=main+default+cpu&nominal=8")).text
        assert "Would start besides" in html
        assert '<option value="main default cpu" selected>' in html


async def test_what_if_says_all_that_is_wrong() -> None:
    """Beside each field, at once."""
    async with page(*busy()) as shown:
        answer = await shown.get("/what-if?queue=team/none&requests=cpu&pods=0&priority=high")
        assert answer.status == 400
        for says in ("no such LocalQueue", "write what a pod asks for", "give at least 1", "give a whole number"):
            assert says in words(answer.text), says


async def test_what_if_says_what_a_preempted_job_loses() -> None:
    """The time for which it has run, and what that used."""
    world = (
        team(),
        b.flavor(),
        b.queue("main", {"default": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"}),
        b.local("main", "main"),
        b.held("runs", "main", {"cpu": "4"}, flavor="default"),
    )
    async with page(*world, beside=Aside()) as shown:
        said = words((await shown.get("/what-if?queue=team/main&requests=cpu%3D3&priority=9")).text)
        assert "It would start on default in ClusterQueue main, once the jobs that it preempts have left." in said
        assert re.search(
            "lost unless they save their work 1 Job ClusterQueue Loses team/runs main has run for", said
        ), said
        assert "core-hours" in said
