"""The flight recorder's records in PostgreSQL on the page in the cluster: what two tenants and an administrator see.

The page reads them with a role of the database that has the rights which the documentation says.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import ControlPlane, build
from testbed.client import resource_path, wait_until
from testbed.installation import MANAGED
from tests.cluster.page_served import PAGE, Browser, Served, role
from tests.cluster.scenario import GROUP, Scenario
from tests.documents import ROOT
from tests.postgres import PASSWORD, PostgresServer
from turnstile.api.errors import InvalidValue
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SOON_ENOUGH = 20.0
"""Seconds from a command to the reason."""
PRIORITY = "kueue.x-k8s.io/priority-class"


class Past:
    """Two tenants who have preempted each other's Workloads, all of which are gone, and a third one."""

    def __init__(self, served: Served) -> None:
        self.served = served
        cp = served.cp
        self.mine, self.theirs, self.gone = (
            Scenario(cp.api, cp.namespace(name, labels=MANAGED)) for name in ("mine", "theirs", "gone")
        )
        world = self.mine
        self.queue = world.cluster_queue(
            "shared", {world.flavor("plain"): {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"}
        )
        self.tenant, self.seer, self.admin = f"batch-{world.namespace}", f"seer-{world.namespace}", "admin-of-queues"
        for each in (self.mine, self.theirs, self.gone):
            each.local_queue("main", self.queue)
            role(each, f"batch-{each.namespace}", "turnstile-batch-user-role", everywhere=False)
        role(world, self.seer, "turnstile-batch-user-role", everywhere=False)
        for kind in ("clusterqueue", "cohort"):
            role(world, self.seer, f"turnstile-{kind}-viewer-role")
        role(world, self.admin, "turnstile-batch-admin-role")
        self._low, self._middle, self._high = (
            {PRIORITY: world.priority_class(name, value)} for name, value in (("low", 1), ("middle", 2), ("high", 3))
        )
        self.told = self._play()

    def browser(self, user: str) -> Browser:
        """What a user opens pages with."""
        return self.served.browser(user)

    def _play(self) -> str:
        """Let it happen; what the tenant's open page was sent meanwhile."""
        mine, theirs = self.mine, self.theirs
        self.gone.job("secret-ghost", queue="main", cpu="1")
        self._wait_used(self.gone)
        self._end(self.gone, "secret-ghost")
        theirs.job("secret-low", queue="main", cpu="4", labels=self._low)
        theirs.wait_started("secret-low", timeout=30)
        mine.job("train", queue="main", cpu="4", labels=self._middle)
        mine.wait_started("train", timeout=30)
        self.uid, self.name = (mine.workload_of("train")["metadata"][each] for each in ("uid", "name"))
        path = f"/workloads/{mine.namespace}/{self.name}"
        browser = self.browser(self.tenant)
        browser.sees(path, "Preempts a Workload of another namespace, which loses ")
        self._wait_used(mine)
        with browser.following(path) as event:
            theirs.job("secret-high", queue="main", cpu="4", labels=self._high)
            told = json.dumps(event("by a Workload of another namespace of ClusterQueue"))
        theirs.wait_started("secret-high", timeout=30)
        for world, name in ((mine, "train"), (theirs, "secret-low"), (theirs, "secret-high")):
            self._end(world, name)
        self.browser(self.admin).sees("/workloads?state=gone", "4 jobs that the flight recorder has kept")
        return told

    def _wait_used(self, world: Scenario) -> None:
        """Wait until a namespace has held quota for longer than the second that conditions are told in."""
        path = f"{PAGE}/usage.csv?span=24h&by=namespace&namespace={world.namespace}"

        def used() -> bool:
            header, *rows = (line.split(",") for line in self.browser(self.admin).get(path)[1].splitlines())
            return sum(float(row[header.index("reserved")]) for row in rows) > 8 / 3600

        wait_until(used, timeout=60, describe=lambda: f"{world.namespace} has used nothing")

    @staticmethod
    def _end(world: Scenario, name: str) -> None:
        """Delete a Job, and wait until its Workload is gone."""
        workload = world.workload_of(name)["metadata"]["name"]
        world.delete_job(name)
        world.api.wait_gone(resource_path(GROUP, "workloads", workload, namespace=world.namespace), timeout=30)

    def hidden(self, said: str) -> bool:
        """Whether nothing that was said names the other tenants or what is theirs."""
        return not any(each in said for each in ("secret", self.theirs.namespace, self.gone.namespace))


def granted(database: str) -> Iterator[str]:
    """The statements of the documentation for the page's role."""
    page = (ROOT / "docs" / "tasks" / "page.md").read_text()
    (block,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert "'PASSWORD'" in block
    yield from (
        block.replace("'PASSWORD'", f"'{PASSWORD}'").replace("turnstile_page", f"page_of_{database}").split(";\n")
    )


def recording(url: str) -> bool:
    """Whether the controller has made its tables."""
    try:
        with reading(Location.of(url)) as reader:
            return reader.since() is not None
    except InvalidValue:
        return False


@pytest.fixture(scope="module")
def past(postgres_server: PostgresServer) -> Iterator[Past]:
    """A control plane, Turnstile that records in PostgreSQL, and its page."""
    url = postgres_server.database()
    database = url.rpartition("/")[2]
    with ControlPlane() as cp:
        cp.add_node("plain", cpu=64, memory="256Gi")
        served = Served(cp, "--recorder", url)
        wait_until(lambda: recording(url), timeout=30, describe=lambda: "the controller does not record")
        postgres_server.execute(*(each for each in granted(database) if each.strip()), database=database)
        served.start("--recorder", postgres_server.url(database, user=f"page_of_{database}"))
        yield Past(served)
        served.close()


def test_an_administrator_sees_all_records(past: Past) -> None:
    """With all names, and the usage of both tenants."""
    browser = past.browser(past.admin)
    said = browser.sees("/workloads?state=gone", "4 jobs that the flight recorder has kept", "train")
    assert "secret-low" in said
    said = browser.sees(f"/workloads/{past.mine.namespace}/{past.name}", "It is not there any more")
    assert f"Preempts {past.theirs.namespace}/job-secret-low-" in said
    assert f"by {past.theirs.namespace}/job-secret-high-" in said
    browser.sees("/usage?by=namespace", past.mine.namespace, past.theirs.namespace, past.gone.namespace)


def test_a_tenant_sees_its_own_records(past: Past) -> None:
    """The Workload that is gone, its timeline and its usage; no name of another tenant in pages, tables and events."""
    assert past.hidden(past.told)
    mine, browser = past.mine.namespace, past.browser(past.tenant)
    paths = ("/workloads?state=gone", f"/workloads/{mine}/{past.name}", f"/workloads/{mine}/{past.name}/{past.uid}",
             "/workloads?q=job", "/usage", "/usage?by=namespace,flavor", "/usage?by=localqueue", "/usage.csv",
             "/usage?by=user&label=kubernetes.io/metadata.name", "/usage.csv?by=namespace,flavor")  # fmt: skip
    for path in paths:
        code, html = browser.get(f"{PAGE}{path}")
        assert (code, past.hidden(html)) == (200, True), path
    browser.sees(paths[0], "1 job that the flight recorder has kept", "train")
    said = browser.sees(paths[1], "It is not there any more", "Evicted")
    assert "Preempts a Workload of another namespace, which loses " in said
    by_whom = f"Preempted by a Workload of another namespace of ClusterQueue {past.queue}"
    assert f"{by_whom}, which comes first in the same queue." in said
    assert "asks 4, 0 free" not in said  # of a ClusterQueue that the tenant may not list
    browser.sees("/usage?by=namespace", f"{mine} ", "Usage is of what you may list")
    header, row, *_ = browser.get(f"{PAGE}/usage.csv?by=queue")[1].splitlines()
    assert row.split(",")[header.split(",").index("queue")] == past.queue
    assert row.split(",")[header.split(",").index("borrowed")] == ""


def test_a_tenant_who_sees_queues(past: Past) -> None:
    """Is told of quotas too, and not of other tenants."""
    browser = past.browser(past.seer)
    said = browser.sees(f"/workloads/{past.mine.namespace}/{past.name}", "It is not there any more", "asks 4, 0 free")
    said += browser.sees("/usage?by=queue", past.queue)
    assert past.hidden(said)


def test_a_tenant_asks_from_a_terminal(past: Past) -> None:
    """The walks of the page, typed: from the command to the reason, in less than 20 seconds each."""
    mine = past.mine
    mine.job("waits", queue="main", cpu="5")
    mine.wait_pending("waits")
    kubeconfig = past.served.cp.kubeconfig(past.tenant)
    bin_ = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)}
    for arguments, sentence in (
        (("explain", "waits"), "Can never start as it is: it asks for 5 CPUs"),
        (("list", "workload"), "waits"),
        (("timeline", "job/train"), "Preempted by a Workload of another namespace"),
        (("usage", "--by", "namespace"), mine.namespace),
    ):
        command = [build.ensure()["kubectl"], "turnstile", *arguments, "-n", mine.namespace]
        began = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=90)
        seconds = time.monotonic() - began
        print(f"kubectl turnstile {' '.join(arguments)}: {seconds:.1f} s")
        assert sentence in done.stdout, (arguments, done.stdout, done.stderr)
        assert past.hidden(done.stdout)
        assert seconds < SOON_ENOUGH
    mine.delete_job("waits")


def test_what_a_tenant_may_not_see_is_not_there(past: Past) -> None:
    """The same answer as for what never was."""
    browser, theirs = past.browser(past.tenant), past.theirs.namespace
    admin = past.browser(past.admin)
    html = admin.get(f"{PAGE}/workloads?q=secret-low")[1]
    (path,) = re.findall(rf'href="[^"]*(workloads/{theirs}/[^"]*)"', html)
    assert admin.get(f"{PAGE}/{path}")[0] == 200
    assert browser.get(f"{PAGE}/{path}")[0] == 404
    assert browser.get(f"{PAGE}/{path.rpartition('/')[0]}")[0] == 404


def test_a_namespace_that_was_made_again(past: Past) -> None:
    """Its new tenant sees nothing of the old one, whose records only administrators see."""
    api, name = past.gone.api, past.gone.namespace
    tenant = past.browser(f"batch-{name}")
    tenant.sees("/workloads?state=gone", "1 job that the flight recorder has kept", "secret-ghost")
    path = f"/api/v1/namespaces/{name}"
    before = api.get(path)["metadata"]["uid"]
    api.delete(path)
    api.wait_gone(path, timeout=120)
    wait_until(
        lambda: "secret-ghost" not in tenant.words("/workloads?state=gone"),
        timeout=60,
        describe=lambda: "the records of a namespace that is gone are shown",
    )
    past.browser(past.admin).sees("/workloads?state=gone", "secret-ghost")
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": MANAGED}})
    assert api.get(path)["metadata"]["uid"] != before
    again = Scenario(api, name)
    again.local_queue("main", past.queue)
    role(again, f"batch-{name}", "turnstile-batch-user-role", everywhere=False)
    again.job("new", queue="main", cpu="1")
    again.wait_started("new", timeout=30)
    past._end(again, "new")
    said = tenant.sees("/workloads?state=gone", "1 job that the flight recorder has kept", "new Job")
    assert "secret-ghost" not in said + tenant.words("/usage?by=localqueue")


def test_a_database_that_is_away(past: Past, postgres_server: PostgresServer) -> None:
    """The page says so, to tenants without the address of the database, goes on with the rest, and reads later."""
    mine = past.mine
    mine.job("runs", queue="main", cpu="1")
    mine.wait_started("runs", timeout=30)
    name = mine.workload_of("runs")["metadata"]["name"]
    tenant, admin = past.browser(past.tenant), past.browser(past.admin)
    tenant.sees(f"/workloads/{mine.namespace}/{name}", "Admitted", "Quota reserved in ClusterQueue")
    postgres_server.kill()
    try:
        said = tenant.sees(f"/workloads/{mine.namespace}/{name}", "the flight recorder cannot be read", "admitted")
        said += tenant.sees("/workloads?q=job", "Jobs that are gone are not shown", "runs Job")
        said += tenant.sees("/usage", "The flight recorder cannot be read")
        assert str(postgres_server.port) not in said
        assert tenant.get(f"{PAGE}/usage.csv")[0] == 503
        admin.sees("/workloads?q=job", f"postgresql://127.0.0.1:{postgres_server.port}/")
        admin.sees("/health", "What this page follows")
        assert PASSWORD not in past.served.process.tail(10_000)
    finally:
        postgres_server.start()
    tenant.sees(f"/workloads/{mine.namespace}/{name}", "Quota reserved in ClusterQueue")
    tenant.sees("/workloads?state=gone", "train")
