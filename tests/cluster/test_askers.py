"""Real users under the chart's roles ask why a Job waits, when it starts and what a change would do; no page is served.

What their rights hide is said in one sentence, and nothing is concluded from it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.client import Json, resource_path
from testbed.installation import MANAGED
from tests.cluster.command import turnstile
from tests.cluster.deployed import Deployed
from tests.cluster.page_served import may_list, role
from tests.cluster.scenario import GROUP, QUEUE, Scenario

pytestmark = pytest.mark.cluster


class Asker:
    """A user of a cluster, with the command line."""

    def __init__(self, world: Scenario, kubeconfig: Path) -> None:
        self._namespace = world.namespace
        self._kubeconfig = kubeconfig

    def __call__(self, *arguments: str, text: str = "") -> tuple[int, str]:
        """Exit code, and all that a command prints, about the namespace."""
        where = ("-n", self._namespace, "--kubeconfig", self._kubeconfig)
        code, out, err = turnstile(*arguments, *where, text=text)
        return code, out + err


@pytest.fixture(scope="module")
def teams(deployed: Deployed) -> Iterator[tuple[Scenario, Scenario]]:
    """Two tenants of one ClusterQueue of 4 cpus: a Job of the second has 3, and one of the first waits for 2."""
    api = deployed.cp.api
    mine, theirs = (Scenario(api, deployed.cp.namespace(name, labels=MANAGED)) for name in ("mine", "theirs"))
    queue = mine.cluster_queue("shared", {mine.flavor("plain"): {"cpu": "4"}})
    for each in (mine, theirs):
        each.local_queue("main", queue)
    theirs.job("secret-runs", queue="main", cpu="3")
    theirs.wait_admitted("secret-runs")
    mine.job("waits", queue="main", cpu="2")
    mine.wait_pending("waits")
    yield mine, theirs
    theirs.remove()
    mine.remove()


def asker(deployed: Deployed, world: Scenario, *roles: str, quotas: bool = False) -> Asker:
    """A user with ClusterRoles in a namespace, who may read quotas or not."""
    user = "-".join(("asks", world.namespace, *roles, "quotas" if quotas else ""))
    for each in roles:
        role(world, user, each, everywhere=False)
        may_list(world, user, "workloads", "localqueues", everywhere=False)
    if quotas:
        role(world, user, "turnstile-quota-viewer-role")
        may_list(world, user, "clusterqueues", "cohorts", "resourceflavors")
    return Asker(world, deployed.cp.kubeconfig(user))


def in_use(queue: Json) -> set[str]:
    """The totals of both usages in the status of a ClusterQueue of one flavor and resource."""
    fields = ("flavorsReservation", "flavorsUsage")
    return {flavor["resources"][0]["total"] for field in fields for flavor in queue.get("status", {}).get(field, [])}


def manifest(world: Scenario) -> str:
    """A Job that fits."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec: Json = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    meta = {"name": "new", "namespace": world.namespace, "labels": {QUEUE: "main"}}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})


def test_a_batch_user_who_may_read_quotas(deployed: Deployed, teams: tuple[Scenario, Scenario]) -> None:
    """Explain has the amounts and what the owner can do, though another tenant's Workload holds the quota."""
    mine, theirs = teams
    ask = asker(deployed, mine, "turnstile-batch-user-role", quotas=True)
    where = f"{mine.named('plain')} nodes"
    short = f"Why: Waits for 1 more CPU on {where}: asks 2, 1 free; Workloads of other namespaces hold it."
    # Hidden usage is read in the status of the ClusterQueue, which follows a moment later.
    queue = resource_path(GROUP, "clusterqueues", mine.named("shared"))
    mine.api.wait_for(queue, lambda found: in_use(found) == {"3"}, timeout=30, describe="both usages")
    code, said = ask("explain", "job/waits")
    assert code == 0, said
    assert short in said
    assert "ask for 1 CPU instead of 2" in said
    assert f"you may not list Workloads and LocalQueues outside namespace {mine.namespace}" in said
    assert "Forbidden" not in said
    assert "secret" not in said
    assert theirs.namespace not in said


def test_a_batch_user_of_all_namespaces(deployed: Deployed, teams: tuple[Scenario, Scenario]) -> None:
    """The role itself reads the quotas: nothing is hidden."""
    mine, _ = teams
    user = f"everywhere-{mine.namespace}"
    role(mine, user, "turnstile-batch-user-role")
    may_list(mine, user, "workloads", "localqueues", "clusterqueues", "cohorts", "resourceflavors")
    code, said = Asker(mine, deployed.cp.kubeconfig(user))("explain", "job/waits")
    assert code == 0, said
    assert "raise the nominal quota" in said
    assert "not complete" not in said


@pytest.mark.parametrize("name", ["turnstile-batch-user-role", "view"])
def test_one_who_sees_no_quota(deployed: Deployed, teams: tuple[Scenario, Scenario], name: str) -> None:
    """A batch user or viewer of a namespace: the condition is told, and no conclusion is drawn."""
    mine, _ = teams
    ask = asker(deployed, mine, name)
    code, said = ask("explain", "job/waits")
    assert code == 0, said
    assert "Why: Waits for 1 more CPU on" in said
    assert "This answer is not complete: you may not list ClusterQueues" in said
    assert "No single change" not in said
    assert "Forbidden" not in said
    for arguments in (("when", "job/waits"), ("what-if", "-f", "-", "--fail-on", "starves")):
        code, said = ask(*arguments, text=manifest(mine))
        assert code == 2, said
        assert "you may not list ClusterQueues" in said
        assert "doesn't exist" not in said
        assert len(said.splitlines()) == 1


def test_nobody(deployed: Deployed, teams: tuple[Scenario, Scenario]) -> None:
    """Whoever may list nothing is not told that there is nothing."""
    mine, _ = teams
    ask = asker(deployed, mine)
    for arguments in (("explain", "job/waits"), ("explain", "workload/nothing"), ("when", "--all")):
        code, said = ask(*arguments)
        assert code == 2, said
        assert f"ou may not list Workloads in namespace {mine.namespace}" in said
    code, said = ask("what-if", "-f", "-", text=manifest(mine))
    assert code == 2, said
    assert "you may not list" in said
