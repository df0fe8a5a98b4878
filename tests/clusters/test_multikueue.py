"""Jobs that are submitted to one cluster and run on another: two control planes, with Turnstile on each."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.command import turnstile
from tests.cluster.page_served import may_list, role
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, QUEUE, Scenario, job, job_path
from tests.cluster.sites import CHECK, POD, Site, Sites, Team, a_team, connect, desk, printed, wait_active
from tests.documents import ROOT
from turnstile import Client, Submitted

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

GROUP_NAME, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
CPUS = {"name": "cpu", "nominalQuota": 8}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """A manager and two workers, which are connected: east as the page says."""
    without_pods = ("etcd", "kube-apiserver", "kube-controller-manager")
    with (
        ControlPlane(components=without_pods) as first,
        ControlPlane(logs=True) as second,
        ControlPlane(logs=True) as third,
    ):
        manager, workers = Site(first), {"east": Site(second), "west": Site(third)}
        page = connected_by_the_page(manager, workers["east"], tmp_path_factory.mktemp("page"))
        manager.installation.install("multiKueue.secrets={east,west}")  # the page names east alone
        found = connect(manager, {"west": workers["west"]})
        workers["east"].cp.add_node("plain", cpu=64, memory="256Gi")
        wait_active(manager.api, "east")
        yield Sites(found.manager, workers, page)


def connected_by_the_page(manager: Site, worker: Site, directory: Path) -> Reader:
    """Do what docs/tasks/many-clusters.md says on the worker `east`, then on the manager; the last command is left."""
    (directory / "charts").symlink_to(ROOT / "charts")
    Reader("many-clusters.md", worker.cp, directory=directory).do()
    reader = Reader("many-clusters.md", manager.cp, directory=directory)
    reader.skip("")
    reader.do()
    reader.do()
    return reader


@pytest.fixture
def team(sites: Sites) -> Iterator[Team]:
    """An empty namespace of one name on all clusters; each worker has a queue `team` of 4 CPUs."""
    with a_team(sites.manager, sites.workers) as found:
        yield found


def test_a_job_runs_elsewhere_and_its_status_comes_back(team: Team) -> None:
    """The Job starts on one worker and nowhere else; the manager shows its status, its end, and cleans up."""
    team.here.job("train", queue="team", cpu="1")
    assert team.here.read_job("train")["spec"]["managedBy"] == CHECK
    workload = team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=30)
    winner = workload["status"]["clusterName"]
    team.wait_on("train", winner)
    (loser,) = set(team.there) - {winner}
    team.wait_clean(loser)
    copy = team.there[winner].read_job("train")
    assert "site" not in copy["spec"]["template"]["spec"].get("nodeSelector", {})
    assert not copy["spec"].get("managedBy") or copy["spec"]["managedBy"] == "kubernetes.io/job-controller"
    team.here.api.wait_for(
        job_path(team.here.namespace, "train"),
        lambda j: j.get("status", {}).get("active") == 1,
        timeout=20,
        describe="active",
    )
    assert team.here.pods_of("train") == []
    team.there[winner].finish("train")
    team.here.wait_workload("train", lambda w: condition(w, "Finished").get("reason") == "Succeeded", timeout=40)
    assert team.here.read_job("train")["status"]["succeeded"] == 1
    team.wait_clean(winner)


def test_a_queue_is_made_to_send_its_jobs_away_as_the_page_says(sites: Sites, team: Team, tmp_path: Path) -> None:
    """By the check that the page has made, which knows one cluster; and the log of a Job is read there."""
    reader, namespace = sites.page, team.here.namespace
    assert reader is not None
    flavor = team.here.flavor("of-the-page")
    quota = [{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [CPUS]}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": quota}
    team.here.create({"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": "team-a"}, "spec": spec})
    team.here.local_queue("away", "team-a")
    team.there["east"].local_queue("away", team.there["east"].named("team"))
    reader.do()
    team.here.api.wait_for(
        resource_path(GROUP, "clusterqueues", "team-a"),
        lambda found: condition(found, "Active").get("status") == "True" and found["spec"]["admissionChecksStrategy"],
        timeout=60,
        describe="its check is active",
    )
    wait_until(lambda: sent_away(team, namespace), timeout=60, describe=lambda: "a Job of the queue is sent away")
    team.wait_on("sent", "east")
    manager, worker = sites.manager.cp.kubeconfig(), sites.workers["east"].cp.kubeconfig()
    reader.uses(desk(tmp_path / "config", manager=manager, east=worker))
    sites.workers["east"].cp.write_log("a line of the page", anew=True)
    reader.see("^a line of the page$", NAME="sent", NAMESPACE=namespace)


def sent_away(team: Team, namespace: str) -> bool:
    """Whether a new Job in the queue of the page is left to another cluster; else it is deleted: the webhook may not
    have read of the check yet."""
    team.here.job("sent", queue="away")
    if team.here.read_job("sent")["spec"].get("managedBy") == CHECK:
        return True
    team.here.delete_job("sent")
    team.here.api.wait_gone(job_path(namespace, "sent"), timeout=60)
    return False


class Desk:
    """A user with contexts for some clusters, and `turnstile logs`."""

    def __init__(self, team: Team, kubeconfig: Path) -> None:
        self._options = ("-n", team.here.namespace, "--kubeconfig", str(kubeconfig))

    def logs(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors of the command."""
        return turnstile("logs", *words, *self._options)

    def follow(self, *words: str) -> subprocess.Popen[str]:
        """The command as a process, which goes on."""
        command = [sys.executable, "-m", "turnstile", "logs", "-f", *words, *self._options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def at_a_desk(team: Team, sites: Sites, directory: Path, *, rights: tuple[str, ...], **names: str) -> Desk:
    """A user who may read jobs, pods and logs of the namespace on the manager and on the clusters in `rights`, with a
    context for each worker, of the name that `names` has for it."""
    user = f"reads-{'-'.join((*rights, *names)) or 'nothing'}"
    role(team.here, user, "view", everywhere=False)
    role(team.here, user, "turnstile-batch-user-role", everywhere=False)
    may_list(team.here, user, "workloads", everywhere=False)
    for name in rights:
        role(team.there[name], user, "view", everywhere=False)
        may_list(team.there[name], user, "pods", everywhere=False, group="")
    contexts = {names.get(name, name): site.cp.kubeconfig(user) for name, site in sites.workers.items()}
    return Desk(team, desk(directory / user, manager=sites.manager.cp.kubeconfig(user), **contexts))


def test_logs_are_read_on_the_worker_with_the_rights_of_the_user(sites: Sites, team: Team, tmp_path: Path) -> None:
    """By a context of the cluster's name, or the one that is given; a user without rights there reads nothing."""
    team.here.job("train", queue="team", cpu="1")
    workload = team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=30)
    winner = workload["status"]["clusterName"]
    (loser,) = set(team.there) - {winner}
    team.wait_on("train", winner)
    pod = wait_running(team.there[winner])
    sites.workers[winner].cp.write_log("epoch 1", "epoch 2: \x1b[32mdone\x1b[0m", anew=True)
    sites.workers[loser].cp.write_log("of another cluster", anew=True)

    user = at_a_desk(team, sites, tmp_path, rights=("east", "west"))
    assert user.logs("job/train") == (0, "epoch 1\nepoch 2: \x1b[32mdone\x1b[0m\n", "")
    assert user.logs("train", "--tail", "1", "--prefix")[:2] == (
        0,
        f"[pod/{pod}/main] epoch 2: \x1b[32mdone\x1b[0m\n",
    )
    with Client(kubeconfig=str(sites.workers[winner].cp.kubeconfig()), namespace=team.here.namespace) as client:
        copy = Submitted.of(team.there[winner].read_job("train"))
        assert list(client.logs(copy, follow=False)) == ["epoch 1", "epoch 2: \x1b[32mdone\x1b[0m"]
    code, out, err = user.logs("job/train", "--worker-context", f"{winner}={loser}")
    assert (code, out) == (2, "")
    assert f"context {loser} of the kubeconfig leads to a cluster without a copy of it" in err

    other = at_a_desk(team, sites, tmp_path, rights=("east", "west"), **{winner: "mine"})
    code, out, err = other.logs("job/train")
    assert (code, out) == (2, "")
    assert f"job/train runs on the worker cluster {winner}" in err
    assert f"name yours by --worker-context {winner}=CONTEXT" in err
    assert other.logs("job/train", "--worker-context", f"{winner}=mine")[:2] == (0, user.logs("job/train")[1])

    code, out, err = at_a_desk(team, sites, tmp_path, rights=()).logs("job/train")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: cluster {winner} (context {winner}) refuses: 403 Forbidden: ")

    team.here.job("waits", queue="team", cpu="5")
    team.here.wait_workload("waits", lambda w: condition(w, "QuotaReserved").get("status") == "True", timeout=30)
    explained = f"`turnstile explain job/waits -n {team.here.namespace}`"
    error = f"error: job/waits has no pods, because it waits: {explained} says why\n"
    assert user.logs("job/waits") == (2, "", error)


def test_logs_are_followed_until_the_job_has_ended(sites: Sites, team: Team, tmp_path: Path) -> None:
    """What is written meanwhile is printed; then the command ends by itself."""
    team.here.job("train", queue="team", cpu="1")
    workload = team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=30)
    winner = workload["status"]["clusterName"]
    team.wait_on("train", winner)
    wait_running(team.there[winner])
    cp = sites.workers[winner].cp
    cp.write_log("epoch 1", anew=True)
    follower = at_a_desk(team, sites, tmp_path, rights=("east", "west")).follow("job/train")
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "epoch 1\n"
        cp.write_log("epoch 2")
        assert follower.stdout.readline() == "epoch 2\n"
        team.there[winner].finish("train")
        out, err = follower.communicate(timeout=120)
    finally:
        follower.kill()
    assert (follower.returncode, out, err) == (0, "", "")
    code, _, err = at_a_desk(team, sites, tmp_path, rights=("east", "west")).logs("job/train")
    assert (code, err.partition(";")[0]) == (
        2,
        f"error: job/train has ended on cluster {winner}, and its pods are gone with their logs",
    )


def test_run_prints_the_log_of_the_worker(sites: Sites, team: Team, tmp_path: Path) -> None:
    """With the rights of the user there; without a context for the worker it says where the Job runs, and what prints
    its log. The Job succeeds for both users."""
    for scenario, flavor in ((team.here, "any"), (team.there["east"], "plain"), (team.there["west"], "plain")):
        scenario.patch_queue(scenario.named("team"), {"resourceGroups": with_memory(scenario.named(flavor))})
    for site in sites.workers.values():
        site.cp.write_log("epoch 1", anew=True)
    manager = sites.manager.cp.kubeconfig()
    workers = {name: site.cp.kubeconfig() for name, site in sites.workers.items()}
    namespace, running = team.here.namespace, {}
    for name, contexts in (("seen", workers), ("unseen", {})):
        options = ["-n", namespace, "--kubeconfig", str(desk(tmp_path / name, manager=manager, **contexts))]
        command = [sys.executable, "-m", "turnstile", "run", "--image", "i", "--name", name, "-q", "team", *options]
        running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        seen, unseen = running["seen"], running["unseen"]
        assert seen.stdout is not None
        assert seen.stdout.readline() == "epoch 1\n"
        assert unseen.stderr is not None
        lines = iter(unseen.stderr.readline, "")
        said = next(line for line in lines if line.startswith("the log of "))
        winners = {name: cluster_of(team, name) for name in running}
        for name, winner in winners.items():
            team.there[winner].finish(name)
        ended = {name: process.communicate(timeout=120) for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
    assert [each.returncode for each in running.values()] == [0, 0], ended
    assert [out for out, _ in ended.values()] == ["", ""]
    assert f"\nadmitted on the worker cluster {winners['seen']}: " in ended["seen"][1]
    assert said.startswith(f"the log of job/unseen on the worker cluster {winners['unseen']} cannot be read: ")
    assert said.endswith(f"; `turnstile logs -f job/unseen -n {namespace}` prints it when that is mended\n")


def cluster_of(team: Team, name: str) -> str:
    """The worker on which a Job runs."""
    found = team.here.wait_workload(name, lambda w: w.get("status", {}).get("clusterName"), timeout=30)
    return str(found["status"]["clusterName"])


def with_memory(flavor: str) -> list[Json]:
    """Resource groups with a quota of 4 CPUs and 4 GiB in one flavor."""
    resources = [{"name": "cpu", "nominalQuota": 4}, {"name": "memory", "nominalQuota": "4Gi"}]
    return [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": resources}]}]


def wait_running(scenario: Scenario) -> str:
    """Wait until the only pod of a namespace runs; its name."""
    path = resource_path("v1", "pods", namespace=scenario.namespace)

    def running() -> list[str]:
        found = scenario.api.items(path)
        return [each["metadata"]["name"] for each in found if each.get("status", {}).get("phase") == "Running"]

    wait_until(lambda: bool(running()), timeout=30, describe=lambda: "no pod runs")
    (name,) = running()
    return name


def test_a_job_goes_where_there_is_room(sites: Sites, team: Team) -> None:
    """One worker is full: the Job is admitted by the other one, and `turnstile explain` names it."""
    team.there["east"].job("local", queue="team", cpu="4")
    team.there["east"].wait_admitted("local")
    team.here.job("train", queue="team", cpu="2")
    team.wait_on("train", "west")
    where = ("-n", team.here.namespace, "--kubeconfig", str(sites.manager.cp.kubeconfig()))
    code, out, err = turnstile("explain", "job/train", *where)
    assert (code, "\n     It runs on the worker cluster west.\n" in out, err) == (0, True, "")
    assert yaml.safe_load(turnstile("explain", "job/train", "-o", "yaml", *where)[1])["run"]["cluster"] == "west"


def test_a_job_that_waits_is_explained_by_each_worker(sites: Sites, team: Team) -> None:
    """`turnstile explain` says why each of them has not admitted it: one is full, the other is too small for it."""
    team.there["west"].patch_queue(team.there["west"].named("team"), {"resourceGroups": small(team.there["west"])})
    team.there["east"].job("local", queue="team", cpu="2")
    team.there["east"].wait_admitted("local")
    team.here.job("waits", queue="team", cpu="3")
    kubeconfig = str(sites.manager.cp.kubeconfig())
    said = ""

    def explained() -> bool:
        nonlocal said
        _, said, _ = turnstile("explain", "job/waits", "-n", team.here.namespace, "--kubeconfig", kubeconfig)
        return "east: " in said and "west: " in said

    wait_until(explained, timeout=60, every=1, describe=lambda: said)
    assert "insufficient unused quota" in said.partition("east: ")[2].partition(";")[0]
    assert "insufficient quota" in said.partition("west: ")[2]


def small(scenario: Scenario) -> list[Json]:
    """Resource groups with a quota of 1 CPU in the flavor that the queue has."""
    flavor = {"name": scenario.named("plain"), "resources": [{**CPUS, "nominalQuota": 1}]}
    return [{"coveredResources": ["cpu"], "flavors": [flavor]}]


def test_a_kubeconfig_is_replaced_in_its_secret(sites: Sites, team: Team) -> None:
    """The manager connects by the new one at once; by one that the worker refuses it does not, and says so."""
    api, path = sites.manager.api, resource_path("v1", "secrets", "west", namespace=sites.manager.namespace)
    fresh = printed("kubeconfig", "--kubeconfig", sites.workers["west"].cp.kubeconfig())
    refused = yaml.safe_load(fresh)
    refused["users"][0]["user"]["token"] = "of-yesterday"

    def write(text: str) -> None:
        api.patch(path, {"data": {"kubeconfig": base64.b64encode(text.encode()).decode()}})

    try:
        write(yaml.safe_dump(refused))
        api.wait_for(
            resource_path(GROUP, "multikueueclusters", "west"),
            lambda found: "Unauthorized" in condition(found, "Active").get("message", ""),
            timeout=60,
            describe="refused by the worker",
        )
    finally:
        write(fresh)
    wait_active(api, "west", timeout=60)
    team.there["east"].job("local", queue="team", cpu="4")
    team.there["east"].wait_admitted("local")
    team.here.job("train", queue="team", cpu="2")
    team.wait_on("train", "west")


def test_an_eviction_on_the_manager_stops_the_copy(team: Team) -> None:
    """The Workload is deactivated on the manager: the copy stops, the quota is free, and nothing is left."""
    team.here.job("train", queue="team", cpu="3")
    workload = team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=30)
    winner = workload["status"]["clusterName"]
    team.wait_on("train", winner)
    path = team.here.api.path_of(workload)
    team.here.api.patch(path, {"spec": {"active": False}})
    team.here.wait_workload("train", lambda w: not w.get("status", {}).get("admission"), timeout=60)
    team.wait_clean("east", "west")
    team.here.api.patch(path, {"spec": {"active": True}})
    team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=60)


def test_an_eviction_on_the_worker_sends_the_job_anew(team: Team) -> None:
    """The worker's queue stops and drains: the Job runs on the other worker."""
    team.there["west"].job("local", queue="team", cpu="4")
    team.there["west"].wait_admitted("local")
    team.here.job("train", queue="team", cpu="2")
    team.wait_on("train", "east")
    queue = team.there["east"].named("team")
    team.there["east"].patch_queue(queue, {"stopPolicy": "HoldAndDrain"})
    team.there["west"].delete_job("local")
    team.wait_on("train", "west")
    team.wait_clean("east")


def test_a_deleted_job_is_deleted_everywhere(team: Team) -> None:
    """The user deletes the Job on the manager."""
    team.here.job("train", queue="team", cpu="1")
    workload = team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=30)
    team.wait_on("train", workload["status"]["clusterName"])
    team.here.delete_job("train")
    team.wait_clean("east", "west")


def test_the_pods_of_a_group_run_elsewhere(team: Team) -> None:
    """They stay at their gates on the manager, with the status of their copies; a member that is deleted and replaced
    is replaced there too."""
    meta = {"labels": {QUEUE: "team"}, "annotations": {TOTAL: "2", GROUP_NAME: "gang"}}
    for name in ("a", "b"):
        team.here.create(pod(name, team.here.namespace, meta))
    workload = team.here.api.wait_for(
        resource_path(GROUP, "workloads", "gang", namespace=team.here.namespace),
        lambda w: bool(w and w.get("status", {}).get("clusterName")),
        timeout=60,
        describe="gang has a cluster",
    )
    winner = workload["status"]["clusterName"]
    for name in ("a", "b"):
        team.wait_pod(name, lambda p: p.get("status", {}).get("phase") == "Running", on=winner)
        team.wait_pod(name, lambda p: p.get("status", {}).get("phase") == "Running")
    assert all(gated(each) for each in team.here.api.items(resource_path("v1", "pods", namespace=team.here.namespace)))
    team.here.api.delete(resource_path("v1", "pods", "b", namespace=team.here.namespace))
    team.here.create(pod("c", team.here.namespace, meta))
    team.wait_pod("c", lambda p: p.get("status", {}).get("phase") == "Running", on=winner)
    team.wait_gone("b", on=winner)
    for name in ("a", "c"):
        team.here.api.delete(resource_path("v1", "pods", name, namespace=team.here.namespace))
    team.wait_clean("east", "west")


def test_a_stateful_set_runs_elsewhere(team: Team) -> None:
    """Its pods here stay at their gates; it runs on one worker, and goes when it is deleted here."""
    template = {"metadata": {"labels": {"app": "db"}}, "spec": POD}
    team.here.create({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": team.here.namespace, "labels": {QUEUE: "team"}},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template},
    })  # fmt: skip
    path = resource_path("apps/v1", "statefulsets", "db", namespace=team.here.namespace)
    workload = team.here.wait_workload(
        "db", lambda w: w.get("status", {}).get("clusterName"), timeout=60, kind="StatefulSet"
    )
    winner = workload["status"]["clusterName"]
    team.there[winner].api.wait_for(
        path, lambda s: bool(s) and s.get("status", {}).get("readyReplicas") == 2, timeout=60, describe="2 are ready"
    )
    assert all(gated(each) for each in team.here.api.items(resource_path("v1", "pods", namespace=team.here.namespace)))
    team.here.api.delete(path)
    team.wait_clean("east", "west")


def test_an_elastic_job_grows_and_shrinks_elsewhere(team: Team) -> None:
    """Each slice goes where the one before runs; the copy follows its size, and is never made anew."""
    team.there["east"].job("local", queue="team", cpu="3")
    team.there["east"].wait_admitted("local")
    elastic = {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    body = job("train", namespace=team.here.namespace, queue="team", cpu="1")
    del body["spec"]["completions"]  # which would limit the number of its pods
    team.here.create({**body, "metadata": {**body["metadata"], **elastic}})
    workload = team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=60)
    winner = workload["status"]["clusterName"]
    team.wait_on("train", winner)
    uid = team.there[winner].read_job("train")["metadata"]["uid"]
    if winner == "east":
        team.there["east"].delete_job("local")
    for size in (3, 1):
        team.here.api.patch(job_path(team.here.namespace, "train"), {"spec": {"parallelism": size}})
        for scenario in (team.there[winner], team.here):
            scenario.api.wait_for(
                job_path(team.here.namespace, "train"),
                lambda found, n=size: found and found["status"].get("ready") == n == found["status"].get("active"),
                timeout=60,
                describe=f"{size} pods are ready",
            )
    assert team.there[winner].read_job("train")["metadata"]["uid"] == uid
    team.here.delete_job("train")
    team.wait_gone("train", on=winner)


def pod(name: str, namespace: str, metadata: Json) -> Json:
    """A pod that runs until it is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": POD,
    }


def gated(found: Json) -> bool:
    """Whether a pod waits at its admission gate."""
    return any(each["name"] == "kueue.x-k8s.io/admission" for each in found["spec"].get("schedulingGates", ()))


def test_the_next_leader_goes_on(sites: Sites, team: Team) -> None:
    """The manager's leader is killed while a Job runs; the Job ends while nobody leads, and the next leader sees it."""
    team.here.job("train", queue="team", cpu="1")
    workload = team.here.wait_workload("train", lambda w: w.get("status", {}).get("clusterName"), timeout=30)
    winner = workload["status"]["clusterName"]
    team.wait_on("train", winner)
    sites.manager.crash()
    team.there[winner].finish("train")
    sites.manager.start()
    team.here.wait_workload("train", lambda w: condition(w, "Finished").get("reason") == "Succeeded", timeout=60)
    team.wait_clean(winner)
