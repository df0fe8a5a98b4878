"""Pods of every kind are where the topology assignment of their Workload says: with the real operators, on simulated
nodes in racks.

The jobs are larger than those of the table of kinds: a pod set of twelve pods takes three nodes of a rack, and in the
order of their names the twelfth pod comes before the third.
"""

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from testbed import ControlPlane
from testbed.client import Json, resource_path
from testbed.installation import MANAGED
from tests.attacks.sentry import Sentry
from tests.cluster.racks import TOPOLOGY, Racks
from tests.cluster.scenario import Scenario
from tests.faults.crew import Crew
from tests.operators.places import PODSET, Labels, Rank, Rules, faults
from tests.operators.rows import ROWS, Row
from tests.operators.trial import Trial

pytestmark = pytest.mark.usefixtures("crew")

MANY: Final = 12
ONE_RACK: Final = {"r1": [5, 5, 5], "r2": [5, 5]}
"""CPUs of the nodes by rack: one rack has room for twelve pods, the other one has not."""
Path = tuple[str | int, ...]
JOB: Final = {"parallelism": MANY, "completions": MANY, "completionMode": "Indexed", "backoffLimit": 9}
RAY: Final = {"replicas": MANY, "maxReplicas": MANY}


def label(name: str, *, first: int = 0) -> Rank:
    """Pods are numbered by a label, from this number on."""
    return lambda labels: int(labels[name]) - first


def index_in_jobset(labels: Labels) -> int:
    """Pods of a replicated Job of four pods a replica."""
    return 4 * int(labels["jobset.sigs.k8s.io/job-index"]) + COMPLETION(labels)


COMPLETION: Final = label("batch.kubernetes.io/job-completion-index")
REPLICA: Final = label("training.kubeflow.org/replica-index")
RANKS: Final[dict[str, dict[str, Rank]]] = {
    "job": {"main": COMPLETION},
    "cronjob": {"main": COMPLETION},
    "jobset": {"workers": index_in_jobset},
    "pytorchjob": {"worker": REPLICA},
    "tfjob": {"worker": REPLICA},
    "xgboostjob": {"worker": REPLICA},
    "paddlejob": {"worker": REPLICA},
    "jaxjob": {"worker": REPLICA},
    "mpijob": {"worker": REPLICA},
    "mpijob-launcher-works": {"worker": label("training.kubeflow.org/replica-index", first=1)},
    "trainjob": {"node": COMPLETION},
    "pod-group": {"": label("kueue.x-k8s.io/pod-group-pod-index")},
    "statefulset": {"main": label("apps.kubernetes.io/pod-index")},
    "leaderworkerset": {"worker": label("leaderworkerset.sigs.k8s.io/worker-index", first=1)},
    "appwrapper": {"-1": COMPLETION},
}
"""How the pods of a kind are numbered, by the end of the name of the pod set; pods of other kinds have no numbers."""
WORKER: Final = {"replicas": MANY}
GROUP_NAME: Final = "kueue.x-k8s.io/podset-group-name"
WIDER: Final[dict[str, dict[Path, Json]]] = {
    "job": {("spec",): JOB},
    "cronjob": {("spec", "jobTemplate", "spec"): JOB},
    "jobset": {
        ("spec", "replicatedJobs", 1): {"replicas": 3},
        ("spec", "replicatedJobs", 1, "template", "spec"): {"parallelism": 4, "completions": 4, "backoffLimit": 9},
    },
    "pytorchjob": {("spec", "pytorchReplicaSpecs", "Worker"): WORKER | {"restartPolicy": "OnFailure"}},
    "tfjob": {("spec", "tfReplicaSpecs", "Worker"): WORKER},
    "xgboostjob": {("spec", "xgbReplicaSpecs", "Worker"): WORKER},
    "paddlejob": {("spec", "paddleReplicaSpecs", "Worker"): WORKER},
    "jaxjob": {("spec", "jaxReplicaSpecs", "Worker"): WORKER},
    "mpijob": {("spec", "mpiReplicaSpecs", "Worker"): WORKER},
    "mpijob-launcher-works": {
        ("spec",): {"runLauncherAsWorker": True},
        ("spec", "mpiReplicaSpecs", "Worker"): WORKER,
    },
    "trainjob": {("spec", "trainer"): {"numNodes": MANY}},
    "statefulset": {("spec",): {"replicas": MANY}},
    "leaderworkerset": {("spec",): {"replicas": 1}, ("spec", "leaderWorkerTemplate"): {"size": MANY + 1}},
    "raycluster": {("spec", "workerGroupSpecs", 0): RAY},
    "rayjob": {("spec", "rayClusterSpec", "workerGroupSpecs", 0): RAY},
    "rayservice": {("spec", "rayClusterConfig", "workerGroupSpecs", 0): RAY},
    "appwrapper": {("spec", "components", 1, "template", "spec"): JOB},
    "sparkapplication": {("spec", "executor"): {"instances": MANY}},
}
"""The changes that give one pod set of a kind twelve pods, by where they are in its manifest."""
PODS: Final = {
    "job": MANY,
    "cronjob": MANY,
    "jobset": 1 + MANY,
    "pytorchjob": 1 + MANY,
    "tfjob": 2 + MANY,
    "xgboostjob": 1 + MANY,
    "paddlejob": 1 + MANY,
    "jaxjob": MANY,
    "mpijob": 1 + MANY,
    "mpijob-launcher-works": 1 + MANY,
    "trainjob": MANY,
    "pod-group": 1 + MANY,
    "statefulset": MANY,
    "leaderworkerset": 1 + MANY,
    "raycluster": 1 + MANY,
    "rayjob": 2 + MANY,
    "rayservice": 1 + MANY,
    "appwrapper": 1 + MANY,
    "sparkapplication": 1 + MANY,
}
"""Pods of a job of a kind with these changes."""
KINDS: Final = (*ROWS, *(replace(row, name="mpijob-launcher-works") for row in ROWS if row.name == "mpijob"))
"""The table of kinds, and a kind whose operator numbers the pods in another way if the job asks for that."""
ROLES: Final[dict[str, dict[str, Path]]] = {
    "job": {"main": ("spec", "template")},
    "jobset": {
        "leader": ("spec", "replicatedJobs", 0, "template", "spec", "template"),
        "workers": ("spec", "replicatedJobs", 1, "template", "spec", "template"),
    },
    "pytorchjob": {
        "master": ("spec", "pytorchReplicaSpecs", "Master", "template"),
        "worker": ("spec", "pytorchReplicaSpecs", "Worker", "template"),
    },
    "tfjob": {
        "chief": ("spec", "tfReplicaSpecs", "Chief", "template"),
        "worker": ("spec", "tfReplicaSpecs", "Worker", "template"),
    },
    "mpijob": {
        "launcher": ("spec", "mpiReplicaSpecs", "Launcher", "template"),
        "worker": ("spec", "mpiReplicaSpecs", "Worker", "template"),
    },
    "mpijob-launcher-works": {
        "launcher": ("spec", "mpiReplicaSpecs", "Launcher", "template"),
        "worker": ("spec", "mpiReplicaSpecs", "Worker", "template"),
    },
    "leaderworkerset": {
        "leader": ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        "worker": ("spec", "leaderWorkerTemplate", "workerTemplate"),
    },
    "raycluster": {
        "head": ("spec", "headGroupSpec", "template"),
        "workers": ("spec", "workerGroupSpecs", 0, "template"),
    },
    "rayjob": {
        "head": ("spec", "rayClusterSpec", "headGroupSpec", "template"),
        "workers": ("spec", "rayClusterSpec", "workerGroupSpecs", 0, "template"),
    },
}
"""Where the pod templates of a leader and of its workers, which come last, are, by the end of the name of the pod
set."""
PLACED: Final = {
    "sparkapplication": (("spec", "driver"), ("spec", "executor")),
    "inferenceservice": (("spec", "predictor"),),
}
"""Where a kind that has no pod templates has annotations of its pods."""


def templates(manifest: Any) -> Iterator[Json]:
    """The pod templates inside a manifest, or the manifest of a Pod."""
    if isinstance(manifest, dict):
        if isinstance(spec := manifest.get("spec"), dict) and "containers" in spec:
            yield manifest
        else:
            for part in manifest.values():
                yield from templates(part)
    elif isinstance(manifest, list):
        for part in manifest:
            yield from templates(part)


def at(manifest: Json, path: Path) -> Json:
    """The part of a manifest."""
    found: Any = manifest
    for step in path:
        found = found[step]
    assert isinstance(found, dict)
    return found


def group_of(members: list[Json]) -> list[Json]:
    """A group of a leader and twelve workers, which are numbered, in the place of one with two."""
    leader, worker, *_ = members
    made = [leader]
    for number in range(MANY):
        made.append(copy.deepcopy(worker))
        made[-1]["metadata"]["name"] = worker["metadata"]["name"].removesuffix("0") + str(number)
    for number, each in enumerate([0, *range(MANY)]):
        made[number]["metadata"]["labels"]["kueue.x-k8s.io/pod-group-pod-index"] = str(each)
        made[number]["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(len(made))
    return made


def widened(row: Row, annotations: Callable[[str], dict[str, str]]) -> Row:
    """The row with a pod set of twelve pods where the kind has one, whose pods have these annotations: those of a pod
    template by the end of the name of its pod set, if it is among the ROLES, and else those of no name."""

    def make(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
        made = row.make(scenario, name, queue, cpu)
        objects = made["items"] if made["kind"] == "List" else [made]
        if row.name == "pod-group":
            objects = group_of(objects)
        for each in objects:
            if each["kind"] == row.kind:
                for path, change in WIDER.get(row.name, {}).items():
                    at(each, path).update(change)
            for path in PLACED.get(row.name, ()):
                at(each, path).setdefault("annotations", {}).update(annotations(""))
            roles = ROLES.get(row.name, {}).items() if each["kind"] == row.kind else ()
            named = {id(at(each, path)): end for end, path in roles}
            for template in templates(each):
                more = annotations(named.get(id(template), ""))
                template.setdefault("metadata", {}).setdefault("annotations", {}).update(more)
        return {"apiVersion": "v1", "kind": "List", "items": objects}

    pods = PODS.get(row.name, row.pods)
    return replace(row, make=make, pods=pods, workloads=1 if row.name == "leaderworkerset" else row.workloads)


Asks = Callable[[Racks, str], dict[str, str]]
"""The annotations of the pods of a pod set, by the end of its name."""


class Placement:
    """A job of a row on racks of nodes, and what is wrong with the places of its pods."""

    def __init__(self, trial: Trial, racks: Racks) -> None:
        self.trial = trial
        self.racks = racks

    def faults(self, rules: Rules) -> list[str]:
        """What is wrong now."""
        api = self.trial.scenario.api
        return faults(
            rules,
            pods=self.pods,
            nodes=api.items(resource_path("v1", "nodes")),
            workloads=self.trial.workloads("gang"),
        )

    @property
    def pods(self) -> list[Json]:
        """The pods of the job."""
        return self.trial.row.pods_of(self.trial.scenario, "gang")

    def by_rank(self) -> dict[int, Json]:
        """The pods of the numbered pod set that run, by number."""
        ((end, rank),) = RANKS[self.trial.row.name].items()
        found = [pod for pod in self.trial.pods("gang") if pod["metadata"]["labels"].get(PODSET, "").endswith(end)]
        return {rank(pod["metadata"]["labels"]): pod for pod in found}

    def nodes(self) -> dict[int, str]:
        """The nodes of the numbered pods."""
        return {rank: pod["spec"]["nodeName"] for rank, pod in self.by_rank().items()}

    def delete(self, pod: Json) -> None:
        """Delete a pod as a user does."""
        self.trial.scenario.api.delete(self.trial.scenario.api.path_of({"apiVersion": "v1", "kind": "Pod", **pod}))

    def wait_right(self, rules: Rules, *, without: Collection[Json]) -> None:
        """Until these pods are gone, all pods of the job run, and they are where they belong."""
        gone = {pod["metadata"]["uid"] for pod in without}

        def wrong() -> list[str]:
            left = [pod["metadata"]["name"] for pod in self.pods if pod["metadata"]["uid"] in gone]
            return [f"{name} is still there" for name in left] + self.faults(rules)

        self.trial.wait(lambda: not wrong(), describe=lambda: "\n".join(wrong()))

    def runs(self) -> None:
        """Create the job and wait until all its pods run."""
        self.trial.create("gang")
        self.trial.wait_runs("gang")


@contextmanager
def placement_of(
    row: Row,
    control_plane: ControlPlane,
    add_node: Callable[..., str],
    *,
    racks: dict[str, list[int]],
    asks: Asks = lambda racks, _: {TOPOLOGY.format("required"): racks.rack},
) -> Iterator[Placement]:
    """A job that requires a rack, or `asks` for other places, and racks with these nodes."""
    scenario = Scenario(control_plane.api, control_plane.namespace("kinds", labels=MANAGED))
    sentry = Sentry(scenario.api, scenario.namespace)
    try:
        made = Racks(scenario, add_node, racks)
        asked = widened(row, lambda role: asks(made, role))
        yield Placement(Trial(asked, scenario, sentry, jobs=1, flavor=made.flavor), made)
    finally:
        sentry.end()
        scenario.remove()


def rows(*names: str) -> pytest.MarkDecorator:
    """Rows of the table of kinds by their names."""
    return pytest.mark.parametrize("row", [row.case for row in KINDS if row.name in names])


def grouped(mode: str, row: Row) -> Asks:
    """The leader and the workers are a pod set group, and all pods have a required or preferred rack."""

    def annotations(racks: Racks, role: str) -> dict[str, str]:
        group = {GROUP_NAME: "gang"} if role in ROLES[row.name] else {}
        return {TOPOLOGY.format(mode): racks.rack} | group

    return annotations


@rows(*(row.name for row in KINDS if row.name != "pipelinerun"))
def test_its_pods_are_where_their_workload_says(
    row: Row, control_plane: ControlPlane, crew: Crew, add_node: Callable[..., str]
) -> None:
    """No node has more pods than the assignment says, each pod set is on one rack, and pods that are numbered go to the
    nodes in the order of their numbers."""
    with placement_of(row, control_plane, add_node, racks=ONE_RACK) as made:
        made.runs()
        assert made.faults(Rules(made.racks.rack, RANKS.get(row.name))) == [], made.trial.story()


@rows(*(name for name, roles in ROLES.items() if len(roles) > 1))
def test_a_leader_and_its_workers_share_a_rack(
    row: Row, control_plane: ControlPlane, crew: Crew, add_node: Callable[..., str]
) -> None:
    """As a pod set group, though another rack has less room left over for the leader, which is placed first otherwise.
    The workers are in the order of their numbers, with whatever number their operator begins."""
    with placement_of(row, control_plane, add_node, racks=ONE_RACK, asks=grouped("required", row)) as made:
        made.runs()
        rules = Rules(made.racks.rack, RANKS.get(row.name), together=tuple(ROLES[row.name]))
        assert made.faults(rules) == [], made.trial.story()


@rows("jobset", "mpijob")
def test_a_group_without_a_rack_is_in_the_wider_domain(
    row: Row, control_plane: ControlPlane, crew: Crew, add_node: Callable[..., str]
) -> None:
    """No rack has room for all of it, so that the rack it would prefer is given up; each pod is in its place still."""
    racks = {"r1": [4, 4], "r2": [4, 4]}
    with placement_of(row, control_plane, add_node, racks=racks, asks=grouped("preferred", row)) as made:
        made.runs()
        rules = Rules(made.racks.block, RANKS[row.name], together=tuple(ROLES[row.name]))
        assert made.faults(rules) == [], made.trial.story()
        assert {made.racks.short(node)[:2] for node in made.nodes().values()} == {"r1", "r2"}


@rows("job", "jobset")
def test_each_slice_is_in_one_rack(
    row: Row, control_plane: ControlPlane, crew: Crew, add_node: Callable[..., str]
) -> None:
    """Four consecutive pods are a slice, as those of each Job of a JobSet; a rack that has room for seven gets no more,
    and a leader takes no slice's room."""
    *_, workers = ROLES[row.name]

    def asks(racks: Racks, role: str) -> dict[str, str]:
        slices = {TOPOLOGY.format("slice-required"): racks.rack, "kueue.x-k8s.io/podset-slice-size": "4"}
        return {TOPOLOGY.format("required"): racks.block} | (slices if role == workers else {})

    racks = {"r1": [3, 4], "r2": [2, 3], "r3": [3, 3]}
    with placement_of(row, control_plane, add_node, racks=racks, asks=asks) as made:
        made.runs()
        rules = Rules(made.racks.block, RANKS[row.name], slice_level=made.racks.rack, slice=4)
        assert made.faults(rules) == [], made.trial.story()


@rows("pipelinerun")
def test_pods_of_a_run_share_its_node(
    row: Row, control_plane: ControlPlane, crew: Crew, add_node: Callable[..., str]
) -> None:
    """The pod set that has all requests of a PipelineRun is on one node, and so are the pods of all its tasks."""
    with placement_of(row, control_plane, add_node, racks={"r1": [1, 1], "r2": [1, 2]}) as made:
        made.runs()
        assert {made.racks.short(pod["spec"]["nodeName"]) for pod in made.pods} == {"r2-1"}


@rows("job", "jobset", "pytorchjob", "leaderworkerset")
def test_pods_that_are_deleted_are_made_again_where_they_were(
    row: Row, control_plane: ControlPlane, crew: Crew, add_node: Callable[..., str]
) -> None:
    """Two at once, on two nodes, by their numbers: in the order of their names they would change places."""
    with placement_of(row, control_plane, add_node, racks=ONE_RACK) as made:
        made.runs()
        pods, before = made.by_rank(), made.nodes()
        assert before[2] != before[10]
        gone = [pods[2], pods[10]]
        for pod in gone:
            made.delete(pod)
        made.wait_right(Rules(made.racks.rack, RANKS[row.name]), without=gone)
        made.trial.wait(lambda: made.nodes() == before, describe=lambda: f"{made.nodes()}, not {before}")


@pytest.mark.parametrize("failure", ["deleted", "tainted"])
@rows("jobset")
def test_pods_of_a_failed_node_go_elsewhere_in_the_rack(
    row: Row, control_plane: ControlPlane, crew: Crew, add_node: Callable[..., str], failure: str
) -> None:
    """All of them, to the node of the rack that was free; the other pods run on where they are."""
    with placement_of(row, control_plane, add_node, racks={"r1": [5, 5, 5, 5], "r2": [5, 5]}) as made:
        made.runs()
        pods, node = made.by_rank(), made.nodes()[2]
        gone = [pod for pod in made.pods if pod["spec"]["nodeName"] == node]
        if failure == "deleted":
            control_plane.remove_node(node)
        else:
            taint = {"key": "example.com/maintenance", "effect": "NoExecute"}
            control_plane.api.patch(resource_path("v1", "nodes", node), {"spec": {"taints": [taint]}})
        made.wait_right(Rules(made.racks.rack), without=gone)
        now = made.by_rank()
        assert node not in made.nodes().values()
        stayed = {rank: pod["metadata"]["uid"] for rank, pod in pods.items() if pod["spec"]["nodeName"] != node}
        assert {rank: now[rank]["metadata"]["uid"] for rank in stayed} == stayed
