"""The pages of docs/tasks, read from top to bottom: every manifest is applied, every command run, all promises kept."""

import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.autoscaler import Autoscaler
from testbed.client import Json, condition, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.reader import TASKS, Reader, queues, team_a, team_b, use_up
from tests.cluster.scenario import GROUP, Scenario, job
from tests.documents import SPAN
from tests.turnstile import Turnstile
from turnstile.engine.causes import Cause
from turnstile.wording.reading import read

__all__ = ["queues", "team_a", "team_b"]

pytestmark = pytest.mark.cluster

SHOWN_ELSEWHERE = ("The workload has not all checks", "Evicted due to AdmissionCheck", "Exceeded the PodsReady")
"""Sentences of test_admission_checks.py, and of test_pods_ready.py in tests/unit/controllers."""


def test_two_teams(team_a: Scenario) -> None:
    """A Job that names no queue is admitted."""
    team_a.wait_admitted("hello")
    team_a.wait_started("hello")


def test_borrow_and_reclaim(control_plane: ControlPlane, team_a: Scenario, team_b: Scenario) -> None:
    """What one team does not use the other borrows, and gives back when it is asked for."""
    page = Reader("borrow-and-reclaim.md", control_plane)
    page.do()
    page.do()
    page.see('"borrowed":"15"')
    page.do()
    page.do()
    team_a.wait_started("owner")
    assert team_b.suspended("borrower")
    page.see(r"team-b .* Preempted .* accommodate a workload")
    page.do()
    team_b.wait_started("borrower")
    page.do()
    page.end()


def test_priorities(control_plane: ControlPlane, team_a: Scenario) -> None:
    """Urgent work goes first, and takes the place of other work where the queue says so."""
    page = Reader("priorities.md", control_plane)
    page.do()
    page.do()
    team_a.wait_started("nightly")
    # What the pages before let this queue borrow, if they were read.
    team_a.job("large", queue="default", cpu="20", labels={"kueue.x-k8s.io/priority-class": "urgent"})
    team_a.wait_workload("large", lambda workload: condition(workload, "QuotaReserved"))
    page.do()
    team_a.wait_pending("hotfix")
    page.do()
    team_a.wait_started("hotfix")
    team_a.wait_pending("nightly")
    page.do()
    team_a.wait_workload("nightly", lambda workload: workload["spec"]["priority"] == 1000)
    for _ in range(4):
        page.do()
    page.end()


def test_topology(control_plane: ControlPlane, team_a: Scenario, add_node: Callable[..., str]) -> None:
    """A gang runs on one rack, and a larger one says that no rack has room for it."""
    for rack, hosts in {"r1": [8], "r2": [8, 8]}.items():
        for number, cpus in enumerate(hosts):
            labels = {"example.com/pool": "training", "example.com/block": "b1", "example.com/rack": rack}
            add_node(f"{rack}-{number}", labels=labels, cpu=cpus, memory="64Gi")
    page = Reader("topology.md", control_plane)
    page.see(r"r1-0 .*b1 +r1", r"r2-1 .*b1 +r2")
    page.do()
    page.do()
    page.see(r"gang-0-\w+ .* r2-0 ", r"gang-1-\w+ .* r2-0 ", r"gang-2-\w+ .* r2-1 ", r"gang-3-\w+ .* r2-1 ")
    page.do()
    team_a.wait_pending("too-large")
    page.see("it needs room for 6 pods on one rack, and without other jobs the largest has room for 4")
    page.see(r"Flavor racked: a rack of 1 node is free \(.*example.com/rack=r1\)")


def test_room(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A Job that has quota waits, because no node has the label that it asks for."""
    page = Reader("room.md", control_plane)
    page.do()
    page.do()
    found = team_a.wait_pending("wide")
    assert "have room for 0 out of 1 pod(s)" in found["message"]
    page.see(r"they have room for 0 of its 1 pod\(s\)")
    page.do()
    page.end()


def test_elastic(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A Job grows while it runs, waits where there is no quota, and shrinks."""
    page = Reader("elastic.md", control_plane)
    page.do()
    team_a.wait_started("sweep")
    page.do()
    page.see(r"<none> +2 +WorkloadSliceReplaced", r"team-a/job-sweep-\w+ +5 +<none>")
    page.do()
    page.see(r"GrowthPending +job/sweep +Growth to 50 pods: .* asks for \d+ CPUs .* its queue can have \d+")
    page.do()
    page.end()


def test_plain_pods(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A Pod waits at its gate, and runs when there is quota."""
    page = Reader("plain-pods.md", control_plane)
    page.do()
    team_a.wait_started("filler")
    use_up(team_a, 20)
    page.do()
    page.see(r"notebook .*SchedulingGated", r"pod-notebook-\w+ +default +False")
    page.do()
    pod = resource_path("v1", "pods", "notebook", namespace="team-a")
    team_a.api.wait_for(pod, lambda seen: seen["status"].get("phase") == "Running", describe="runs")
    page.end()


def test_import(control_plane: ControlPlane, queues: None, turnstile: Turnstile) -> None:
    """What runs without a queue is charged, and its pods are the same afterwards."""
    lab, page = Scenario(control_plane.api, "lab"), Reader("import.md", control_plane)
    page.do()
    page.do()
    before = page.see(*[r"train-\w+ +1/1 +Running"] * 2, *[r"web-\w+-\w+ +1/1 +Running"] * 2)
    page.do()
    page.do()
    shown = page.do()
    assert re.search(r"lab +job/train +2 +research +lab +any-node: cpu 2, memory 2Gi +job-train-\w+\n", shown)
    assert len(re.findall(r"lab +pod/web-\w+-\w+ +1 +research +lab +any-node: cpu 1, memory 1Gi", shown)) == 2
    assert "3 would be imported, 0 cannot be, 0 have a Workload already, 0 are skipped" in shown
    assert "3 imported" in page.do()
    after = page.see(r"job-train-\w+ +research +lab +True", *[r"pod-web-\S+ +research +lab +True"] * 2)
    names = re.compile(r"^(?:train|web)-\S+", re.MULTILINE)
    assert names.findall(after) == names.findall(before)
    page.see(r"\A4\Z")
    assert not lab.suspended("train")
    assert "0 would be imported, 0 cannot be, 1 have a Workload already" in page.do()
    assert "0 would be imported, 0 cannot be, 3 have a Workload already" in page.do()
    page.end()
    for kind, name in (("ClusterQueue", "lab"), ("Namespace", "lab")):
        version, plural = ("v1", "namespaces") if kind == "Namespace" else (GROUP, "clusterqueues")
        control_plane.api.delete(resource_path(version, plural, name))
    control_plane.api.wait_gone(resource_path("v1", "namespaces", "lab"), timeout=60)


def test_serving(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A Deployment is rolled out and scaled to zero; a StatefulSet is put on hold and scaled up."""
    page = Reader("serving.md", control_plane)
    page.do()
    page.see(r"web-\w+-\w+ .*Running(.|\n)*web-\w+-\w+ .*Running", r"pod-web-\S+ +default +team-a +True")
    page.do()
    page.do()
    page.do()
    page.see(r"statefulset-db-\w+ +default +team-a +True")
    page.do()
    page.see("StatefulSet scaled to zero; workload on hold")
    page.do()
    page.do()
    page.end()


def test_pod_groups(control_plane: ControlPlane, team_a: Scenario) -> None:
    """Pods of a group wait and start together, one is replaced, and all are deleted."""
    use_up(team_a, 40, 20)
    page = Reader("pod-groups.md", control_plane)
    page.do()
    gated = [rf"{name} .*SchedulingGated" for name in ("ring-leader", "ring-worker-1", "ring-worker-2")]
    page.see(*gated, r"ring +default +False")
    team_a.delete_job("large-0")
    team_a.delete_job("large-1")

    def runs(name: str) -> None:
        path = resource_path("v1", "pods", name, namespace="team-a")
        team_a.api.wait_for(path, lambda seen: seen["status"].get("phase") == "Running", describe="runs")

    for name in ("ring-leader", "ring-worker-1", "ring-worker-2"):
        runs(name)
    page.do()
    page.see("Some Failed pods need replacement")
    page.do()
    runs("ring-worker-3")
    team_a.api.wait_gone(resource_path("v1", "pods", "ring-worker-2", namespace="team-a"))
    page.do()
    workload = resource_path(GROUP, "workloads", "ring", namespace="team-a")
    team_a.api.wait_gone(workload, timeout=60)  # the garbage collector may learn of the CRD only now
    page.end()


@pytest.fixture
def autoscaler(control_plane: ControlPlane) -> Iterator[Autoscaler]:
    """An autoscaler that answers the requests of the first team."""
    found = Autoscaler(control_plane.api)
    found.install()
    with found.playing("team-a"):
        yield found
    found.remove()


def test_provisioning(control_plane: ControlPlane, team_a: Scenario, autoscaler: Autoscaler) -> None:
    """A Job starts when the autoscaler has found nodes; then the queue asks no more."""
    page = Reader("provisioning.md", control_plane)
    page.do()
    page.see("The admission check is active")
    page.do()
    page.do()
    ready = r"job-wide-\w+ +Ready +Capacity is found in the cluster +True"
    page.see(r"job-wide-\w+-nodes-1", ready)
    started = team_a.wait_started("wide")["spec"]["template"]["metadata"]["annotations"]
    assert re.fullmatch(r"job-wide-\w+-nodes-1", started["autoscaling.x-k8s.io/consume-provisioning-request"])
    [request] = autoscaler.requests("team-a").values()
    assert request["spec"]["parameters"] == {"ValidUntilSeconds": "600"}
    page.do()
    page.end()
    team_a.job("next", queue="default")
    team_a.wait_started("next")
    for kind in ("admissionchecks", "provisioningrequestconfigs"):
        team_a.api.delete(resource_path(GROUP, kind, "nodes"))


def test_maintenance(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A queue is held, drained and opened again; so are one namespace and one Job."""
    page = Reader("maintenance.md", control_plane)
    team_a.job("running", queue="default")
    team_a.wait_started("running")
    page.do()
    team_a.job("new", queue="default")
    assert team_a.wait_pending("new")["message"] == "ClusterQueue team-a is inactive"
    assert not team_a.suspended("running")
    page.do()
    team_a.wait_suspended("running")
    page.see("^0$")
    page.do()
    team_a.wait_started("running")
    team_a.wait_started("new")
    page.do()
    team_a.job("held", queue="default")
    assert team_a.wait_pending("held")["message"] == "LocalQueue default is inactive"
    local_queue = resource_path(GROUP, "localqueues", "default", namespace="team-a")
    team_a.api.patch(local_queue, {"spec": {"stopPolicy": "None"}})
    team_a.wait_started("held")
    workload = team_a.workload_of("held")["metadata"]["name"]
    assert re.fullmatch(r"job-held-\w+", workload)
    page.do(WORKLOAD=workload)
    team_a.wait_suspended("held")
    team_a.api.patch(resource_path(GROUP, "workloads", workload, namespace="team-a"), {"spec": {"active": True}})
    team_a.wait_started("held")
    team_a.job("moved", queue="elsewhere")
    team_a.wait_pending("moved")
    page.do(JOB="moved")
    team_a.wait_started("moved")
    page.end()


def test_warnings(control_plane: ControlPlane, team_a: Scenario) -> None:
    """The user is warned, and then refused."""
    page = Reader("warnings.md", control_plane)
    page.do()
    asks = "its pod asks for 400 CPUs on flavor any-node, where ClusterQueue team-a can have [468]0 at most"
    told = f"the job can never start as it is: {asks}"
    assert re.search(f"^Warning: {told}", page.warned, re.MULTILINE)
    page.do()
    page.do()

    def refusal() -> str:
        made = job("too-large", namespace="team-a", queue="default", cpu="400")
        try:
            team_a.api.create(made, dry_run=True)
        except ApiError as error:
            return str(error)
        return ""

    wait_until(lambda: re.search(f"such jobs are refused here: {told}", refusal()), timeout=30, describe=refusal)
    page.do()
    wait_until(lambda: not refusal(), timeout=30, describe=refusal)
    page.end()


def test_lint(control_plane: ControlPlane, team_a: Scenario) -> None:
    """The examples are sound."""
    page = Reader("lint.md", control_plane)
    assert page.do() == "errors: 0, warnings: 0, infos: 0\n"
    page.end()


def test_why_a_job_waits(control_plane: ControlPlane, team_a: Scenario) -> None:
    """The commands show what is missing, who decides and who uses the quota."""
    team_a.job("vast", queue="default", cpu="400")
    message = team_a.wait_pending("vast")["message"]
    page = Reader("why-a-job-waits.md", control_plane)
    page.see(
        r"Why: Can never start as it is: it asks for \S+ CPUs on flavor any-node",
        "smallest|alone would admit",
        NAME="vast",
    )
    page.see(re.escape(message) + "$", WORKLOAD=team_a.workload_of("vast")["metadata"]["name"])
    page.see(r"^\S+ \d+-\d+-\d+T")
    page.see("^1 wait, in use: .*any-node", r"job-vast-\w+ +default +False")
    page.end()


def test_timeline_and_usage(control_plane: ControlPlane, recorder: Path, team_a: Scenario) -> None:
    """What happened to a Job that is gone, what it held, and the file for a report, which names no other team."""
    team_a.job("brief", queue="default", cpu="1")
    team_a.wait_started("brief")
    page = Reader("usage.md", control_plane, directory=recorder.parent)
    hours = r"team-a +cpu +core-hours +0\.\d+"
    page.see(hours, "team-a +any-node +cpu", r",team-a,cpu,core-hours,0\.\d*[1-9]", FILE=str(recorder))
    page.end()
    name = team_a.workload_of("brief")["metadata"]["name"]
    team_a.delete_job("brief")
    team_a.api.wait_gone(resource_path(GROUP, "workloads", name, namespace="team-a"), timeout=30)
    page = Reader("timeline.md", control_plane, directory=recorder.parent)
    page.skip("yaml")
    page.skip("yaml")
    holds = r"reserved  in ClusterQueue team-a: holds 1 CPU on flavor any-node"
    page.see(f"^Workload team-a/{name} ", "created  ", holds, "admitted", "deleted", NAME="brief", FILE=str(recorder))
    page.see("turnstile-bundle.tar.gz is written", FILE=str(recorder))
    page.end()
    with tarfile.open(recorder.parent / "turnstile-bundle.tar.gz") as packed:
        texts = {each.name: file.read().decode() for each in packed if (file := packed.extractfile(each))}
    assert re.search(r"\bteam-b\b", "".join(texts.values())) is None
    assert name in texts["turnstile-bundle/timelines.json"]
    assert json.loads(texts["turnstile-bundle/about.json"])["kubernetes"]["major"] == "1"


def test_what_if(control_plane: ControlPlane, team_a: Scenario) -> None:
    """A Job, a smaller quota, a queue that is deleted, a drained pool, and a pipeline: all are told."""
    page = Reader("what-if.md", control_plane)
    team_a.job("waits", queue="default", cpu="81")  # more than both teams have
    team_a.wait_pending("waits")
    page.see("Workload team-a/job-train-[0-9a-f]+ would be admitted now in ClusterQueue team-a with flavor any-node")
    page.see("can never start .*200", "would be admitted now")
    page.see("ClusterQueue|No other Workload is affected", "No other Workload is affected")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-what-if", "labels": {"pool": "gpu"}}}
    control_plane.api.create(node)
    try:
        page.see("Flavor gpu loses 1 of 1 nodes")
    finally:
        control_plane.api.delete(resource_path("v1", "nodes", "gpu-what-if"))
    page.see("would be admitted now")
    page.end()


def test_when(control_plane: ControlPlane, team_a: Scenario) -> None:
    """Before anything has finished, there is no forecast but a reason."""
    page = Reader("when.md", control_plane)
    team_a.job("waits", queue="default", cpu="81")  # more than both teams have
    team_a.wait_pending("waits")
    page.see("team-a/job-waits-[0-9a-f]+: no forecast: ", NAME="waits")
    page.end()


def test_kubectl_plugin(control_plane: ControlPlane, team_a: Scenario) -> None:
    """Workloads and usage are listed, a queue is stopped and resumed, and a Job is deleted by its Workload."""
    team_a.job("vast", queue="default", cpu="400")
    team_a.wait_pending("vast")
    page = Reader("kubectl-plugin.md", control_plane)
    page.see(r"job-vast-\w+ +job +vast +default +team-a +PENDING ")
    page.see(r"team-a +any-node +cpu +\S+ +\d+")
    page.do()
    page.do()
    page.do(WORKLOAD=team_a.workload_of("vast")["metadata"]["name"])
    team_a.api.wait_gone(resource_path("batch/v1", "jobs", "vast", namespace="team-a"))
    page.end()


EXPLAINED = (
    Cause.QUOTA_IN_USE,
    Cause.BEYOND_MAXIMUM,
    Cause.TAINT,
    Cause.AFFINITY,
    Cause.NOT_COVERED,
    Cause.NAMESPACE_NOT_SELECTED,
    Cause.LOCAL_QUEUE_MISSING,
    Cause.LOCAL_QUEUE_STOPPED,
    Cause.CLUSTER_QUEUE_MISSING,
    Cause.CLUSTER_QUEUE_INACTIVE,
)
"""Causes of `docs/reference/reasons.md` that the test makes."""


def sentences() -> list[tuple[str, str]]:
    """Sentences of the page's table, each with the condition that bears it."""
    rows = re.findall(r"^\| (`.*?) \| ", (TASKS / "why-a-job-waits.md").read_text().split("## ")[1], re.MULTILINE)
    found = []
    for row in rows:
        told, _, of = row.partition(" (condition `")
        found += [(sentence, of.partition("`")[0] or "QuotaReserved") for sentence in SPAN.findall(told)]
    return found


def test_the_sentences_that_tell_why_a_job_waits(scenario: Scenario) -> None:
    """Each of the page's table is one that a Workload bears, but for those that other tests show; so are those causes
    of the reference that a user can make alone."""
    on_demand = scenario.flavor("on-demand")
    taint = {"key": "capacity", "value": "spot", "effect": "NoSchedule"}
    main = scenario.queue("main", {on_demand: {"cpu": 32}})
    scenario.job("holds", queue="main", cpu="31")
    scenario.wait_started("holds")
    scenario.job("waits", queue="main", cpu="3")
    scenario.job("never-fits", queue="main", cpu="40")
    scenario.job("device", queue="main", template=asking({"nvidia.com/gpu": "1"}))
    scenario.queue("spot", {scenario.flavor("spot", taints=[taint]): {"cpu": 1}})
    scenario.job("tainted", queue="spot")
    scenario.queue("gpu", {scenario.flavor("gpu", labels={"pool": "gpu"}): {"cpu": 1}})
    scenario.job("elsewhere", queue="gpu", template={"nodeSelector": {"pool": "other"}})
    scenario.job("no-queue", queue="misspelt")
    scenario.local_queue("astray", scenario.named("misspelt"))
    scenario.job("no-quota", queue="astray")
    scenario.local_queue("held", main, stopPolicy="Hold")
    scenario.job("held", queue="held")
    scenario.queue("stopped", {on_demand: {"cpu": 1}}, stopPolicy="Hold")
    scenario.job("stopped", queue="stopped")
    scenario.queue("others", {on_demand: {"cpu": 1}}, namespaceSelector={"matchLabels": {"team": "other"}})
    scenario.job("not-ours", queue="others")
    scenario.job("deactivated", queue="held")
    workload = scenario.workload_of("deactivated")["metadata"]["name"]
    workloads = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    scenario.api.patch(f"{workloads}/{workload}", {"spec": {"active": False}})
    scenario.queue("ranked", {on_demand: {"cpu": 1}}, preemption={"withinClusterQueue": "LowerPriority"})
    scenario.job("gives-way", queue="ranked")
    scenario.wait_started("gives-way")
    urgent = {"kueue.x-k8s.io/priority-class": scenario.priority_class("urgent", 1)}
    scenario.job("urgent", queue="ranked", labels=urgent)

    wanted = {sentence: kind for sentence, kind in sentences() if not sentence.startswith(SHOWN_ELSEWHERE)}
    assert len(wanted) == 2

    def unseen() -> list[str]:
        found = scenario.api.items(workloads)
        messages = {
            kind: [condition(w, kind).get("message", "") for w in found] for kind in {"QuotaReserved", *wanted.values()}
        }
        told = {given.cause for message in messages["QuotaReserved"] for given in read(Cause, message)}
        return [cause.value for cause in EXPLAINED if cause not in told] + [
            sentence
            for sentence, kind in wanted.items()
            if not any(re.search(pattern_of(sentence, scenario), message) for message in messages[kind])
        ]

    wait_until(lambda: not unseen(), timeout=15, describe=lambda: f"nobody says {unseen()}")


def pattern_of(sentence: str, scenario: Scenario) -> str:
    """What finds a sentence whose flavors have the scenario's names, whose queues have any, and that may be cut."""
    pattern = re.escape(sentence).replace(r"\.\.\.", ".*")
    pattern = re.sub(r"(LocalQueue|ClusterQueue)\\ x", r"\1 \\S+", pattern)
    return re.sub(r"flavor\\ (on\\-demand|spot|gpu)", lambda m: f"flavor {scenario.named(m[1])}", pattern)


def asking(requests: Json) -> Json:
    """A template whose pod asks for devices too."""
    return {
        "containers": [
            {
                "name": "main",
                "image": "busybox:1.37",
                "resources": {"requests": {"cpu": "1", **requests}, "limits": requests},
            }
        ]
    }
