"""Which pods of a Workload with a topology assignment get which domain, and keep it."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from tests.unit.controllers.worlds import ADMITTED, RESERVED, condition, decode, store, workload, world
from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.meta import to_plain
from turnstile.api.topologyassignment import Domain, encode
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Action, Patch, RequeueAfter
from turnstile.controllers.topology.ungater import Decided, decide
from turnstile.controllers.workloads import heldpods
from turnstile.engine.pace import finish
from turnstile.jobs.kinds.kubeflow.mpijob import MPI_JOBS

Json = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job-uid", "controller": True}


def pod(
    name: str,
    index: object = None,
    *,
    rack: str = "",
    cpu: str = "1",
    phase: str = "Pending",
    deleted: bool = False,
    **spec: Any,
) -> Pod:
    """A pod of the Job, in a rack or gated; one that is `deleted` runs until it has stopped."""
    labels = {names.PODSET_LABEL: "main"} | ({INDEX: str(index)} if index is not None else {})
    meta: Json = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "labels": labels,
        "annotations": {names.WORKLOAD: "wl"},
        "ownerReferences": [JOB],
    }
    placed: Json = {"nodeSelector": {RACK: rack}} if rack else {"schedulingGates": [{"name": names.TOPOLOGY_GATE}]}
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    if deleted:
        meta |= {"deletionTimestamp": "2026-01-02T03:00:00Z"}
        placed |= {"nodeName": "node"}
    return decode(
        Pod, {"metadata": meta, "spec": {"containers": containers, **placed, **spec}, "status": {"phase": phase}}
    )


def charging(*racks: tuple[str, int], level: str = RACK, conditions: tuple[Json, ...] = (), **status: Any) -> Workload:
    """The Workload of the Job, with this many pods in each rack."""
    count = sum(pods for _, pods in racks)
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    request = {"podIndexLabel": INDEX}
    spec = {"podSets": [{"name": "main", "count": count, "template": template, "topologyRequest": request}]}
    given = {
        "name": "main",
        "flavors": {"cpu": "f"},
        "resourceUsage": {"cpu": str(count)},
        "count": count,
        "topologyAssignment": to_plain(encode([level], [Domain((rack,), pods) for rack, pods in racks])),
    }
    admission = {"clusterQueue": "cq", "podSetAssignments": [given]}
    return workload(RESERVED, ADMITTED, *conditions, spec=spec, more_status={"admission": admission, **status})


def test_an_assignment_without_domains_opens_no_gate() -> None:
    """Whoever may write a Workload's status may write that; pods with ranks stay gated, and others too."""
    assert placed(charging(), pod("a", 0), pod("b", 1)) == {}
    assert placed(charging(), pod("a")) == {}
    assert placed(charging(("r1", 0)), pod("a", 0)) == {}


def placed(given: Workload, *pods: Pod, decided: Decided | None = None, level: str = RACK) -> dict[str, str]:
    """The rack of each pod whose gate is lifted."""
    return racks(finish(decide("ns/wl", world(given, *pods), decided or Decided())).actions, level=level)


def racks(actions: Iterable[Action], *, level: str = RACK) -> dict[str, str]:
    """The rack of each pod whose gate these actions lift."""
    found = {}
    for each in actions:
        assert isinstance(each, Patch)
        spec = orjson.loads(each.body)["spec"]
        assert spec["schedulingGates"] is None
        found[each.name] = spec["nodeSelector"][level]
    return found


class TestByRank:
    def test_neighbours_are_together(self) -> None:
        """The lowest ranks are in the first rack, whatever the pods are called."""
        given = [pod("a", 3), pod("b", 0), pod("c", 2), pod("d", 1)]
        assert placed(charging(("r1", 2), ("r2", 2)), *given) == {"b": "r1", "d": "r1", "c": "r2", "a": "r2"}

    def test_pods_that_are_not_there_yet_keep_their_place(self) -> None:
        """A pod goes where its rank says, though places before it are free."""
        assert placed(charging(("r1", 2), ("r2", 2)), pod("a", 3)) == {"a": "r2"}

    def test_a_replaced_pod_goes_where_its_predecessor_was(self) -> None:
        """The pod that has ended does not count."""
        given = [pod("a", 0, rack="r1", phase="Failed"), pod("b", 1, rack="r2"), pod("c", 0)]
        assert placed(charging(("r1", 1), ("r2", 1)), *given) == {"c": "r1"}


class TestGroupsOfALeaderAndItsWorkers:
    """The workers are placed by rank, with whatever number the controller of their kind begins."""

    REPLICA, GROUPED = "training.kubeflow.org/replica-index", "leaderworkerset.sigs.k8s.io/worker-index"

    @staticmethod
    def gang(label: str, *, kind: str = "Job") -> Workload:
        """The Workload of a leader in r1, and of four workers in r1 and r2."""
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
        request = {"podIndexLabel": label, "podSetGroupName": "gang", "required": "example.com/block"}
        racks = {"leader": [Domain(("r1",), 1)], "worker": [Domain(("r1",), 2), Domain(("r2",), 2)]}
        pod_sets, given = [], []
        for name, domains in racks.items():
            count = sum(each.pods for each in domains)
            pod_sets.append({"name": name, "count": count, "template": template, "topologyRequest": request})
            charged = {"name": name, "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(count)}}
            given.append({**charged, "topologyAssignment": to_plain(encode([RACK], domains))})
        owner = {**JOB, "kind": kind} | ({"apiVersion": "kubeflow.org/v2beta1"} if kind == "MPIJob" else {})
        return workload(
            RESERVED,
            ADMITTED,
            spec={"podSets": pod_sets},
            more_status={"admission": {"clusterQueue": "cq", "podSetAssignments": given}},
            ownerReferences=[owner],
        )

    @staticmethod
    def workers(label: str, *, first: int) -> list[Pod]:
        """Their names are in the opposite order; the first of them is not there yet."""
        made = []
        for number in range(1, 4):
            each = pod("dcba"[number])
            each.metadata.labels = {names.PODSET_LABEL: "worker", label: str(number + first)}
            made.append(each)
        return made

    @pytest.mark.parametrize(("label", "first"), [(INDEX, 0), (REPLICA, 0), (GROUPED, 1)])
    def test_the_label_says_where_the_numbers_begin(self, label: str, first: int) -> None:
        """Jobs and Kubeflow's operators begin with 0, LeaderWorkerSet after the leader."""
        want = {"c": "r1", "b": "r2", "a": "r2"}
        assert placed(self.gang(label), *self.workers(label, first=first)) == want

    @pytest.mark.parametrize("works", [True, False])
    def test_the_job_says_it_where_the_label_does_not(self, works: bool) -> None:
        """The MPI operator begins after the launcher if that works too."""
        meta = {"name": "job", "namespace": "ns", "uid": "job-uid"}
        job = decode(MPI_JOBS.kind, {"metadata": meta, "spec": {"runLauncherAsWorker": works}})
        given = self.gang(self.REPLICA, kind="MPIJob")
        pods = self.workers(self.REPLICA, first=int(works))
        for each in pods:
            each.metadata.owner_references = given.metadata.owner_references
        cluster = world(given, *pods)
        cluster.jobs = {**cluster.jobs, MPI_JOBS.kind: store([job])}
        assert racks(finish(decide("ns/wl", cluster, Decided())).actions) == {"c": "r1", "b": "r2", "a": "r2"}


class TestContainersThatAnOperatorAdds:
    """KubeRay gives each worker an init container with 200m CPU and 256Mi memory, which waits for the head."""

    @staticmethod
    def wait(**requests: str) -> list[Json]:
        """That init container."""
        return [{"name": "wait-gcs-ready", "resources": {"requests": requests}}]

    def test_what_no_quota_counts_keeps_no_pod_gated(self) -> None:
        """The template requests CPU alone, and the flavor has quota for CPU alone."""
        given = pod("a", 0, initContainers=self.wait(cpu="200m", memory="256Mi"))
        assert placed(charging(("r1", 1)), given) == {"a": "r1"}

    def test_more_of_what_a_quota_counts_does(self) -> None:
        """As of any pod."""
        assert placed(charging(("r1", 1)), pod("a", 0, initContainers=self.wait(cpu="2", memory="1Gi"))) == {}

    def test_requests_that_cannot_be_read_do_too(self) -> None:
        """Nobody knows whether a quota counts them."""
        assert placed(charging(("r1", 1)), pod("a", 0, initContainers=self.wait(memory="much"))) == {}


class TestPodsThatAreBeingDeleted:
    def test_the_next_pod_waits_for_the_place_of_its_rank(self) -> None:
        """And no other pod gets it, though its name comes first."""
        given = [pod("a", 2), pod("b", 0), pod("c", 0, rack="r1", deleted=True), pod("d", 2, rack="r2", deleted=True)]
        assert placed(charging(("r1", 2), ("r2", 1)), *given) == {"b": "r1"}
        assert placed(charging(("r1", 1), ("r9", 1), ("r2", 1)), *given) == {}
        assert placed(charging(("r1", 1), ("r9", 1), ("r2", 1)), *given[:2], given[3]) == {"b": "r1"}

    def test_a_pod_on_a_node_that_was_replaced_has_no_rank(self) -> None:
        """It may be there for as long as its node is away."""
        given = [pod("a", 1), pod("b", 0), pod("c", 0, rack="r9", deleted=True)]
        assert placed(charging(("r1", 1), ("r2", 1)), *given) == {"a": "r2", "b": "r1"}


class TestRanksThatLie:
    @pytest.mark.parametrize(
        "ranks", [(0, 0), (0, 7), (0, None), (0, "-1"), (0, "x"), (1, 1 << 70)], ids=lambda each: str(each)[:9]
    )
    def test_no_domain_gets_more_pods_than_it_has_places(self, ranks: tuple[object, object]) -> None:
        """Pods are placed by their names instead."""
        given = [pod(name, rank) for name, rank in zip("ab", ranks, strict=True)]
        assert placed(charging(("r1", 1), ("r2", 1)), *given) == {"a": "r1", "b": "r2"}

    def test_a_pod_that_runs_elsewhere_gives_the_ranks_up(self) -> None:
        """Its place counts as taken."""
        given = [pod("a", 0, rack="r2"), pod("b", 1)]
        assert placed(charging(("r1", 1), ("r2", 1)), *given) == {"b": "r1"}

    def test_a_pod_that_selects_a_rack_itself_gets_that_one(self) -> None:
        """Kubernetes would refuse another value, for ever; another pod gets the first rack."""
        given = [pod("a", 0, nodeSelector={RACK: "r2"}), pod("b", 1)]
        assert placed(charging(("r1", 1), ("r2", 1)), *given) == {"a": "r2", "b": "r1"}
        assert placed(charging(("r1", 1), ("r2", 1)), pod("a", 0, nodeSelector={RACK: "r9"})) == {}

    def test_the_offset_is_a_claim_too(self) -> None:
        """One that no pod can have is given up."""
        given = pod("a", 0)
        given.metadata.annotations = given.metadata.annotations | {names.POD_INDEX_OFFSET: "99"}
        assert placed(charging(("r1", 1)), given) == {"a": "r1"}


class TestWithoutRanks:
    def test_each_rack_gets_as_many_as_it_has_places(self) -> None:
        """Pods that run count, and surplus pods stay gated."""
        given = [pod("a", rack="r1"), *(pod(name) for name in "bcde")]
        assert placed(charging(("r1", 2), ("r2", 1)), *given) == {"b": "r1", "c": "r2"}

    def test_a_pod_that_requests_more_than_is_charged_for_takes_no_place(self) -> None:
        """Another one gets it."""
        assert placed(charging(("r1", 1)), pod("a", cpu="2"), pod("b")) == {"b": "r1"}

    def test_a_pod_on_its_node_takes_the_place_of_that_host(self) -> None:
        """It was started before it had to select the host."""
        given = [pod("a", rack="", nodeName="h1", schedulingGates=[]), pod("b")]
        assert placed(charging(("h1", 1), ("h2", 1), level=HOST), *given, level=HOST) == {"b": "h2"}


class TestWritesInDoubt:
    def test_a_pod_keeps_its_place_until_it_is_seen_there(self) -> None:
        """A pod that comes first by its name does not get a place that another one may have by now."""
        decided = Decided()
        assert placed(charging(("r1", 1)), pod("b"), decided=decided) == {"b": "r1"}
        assert placed(charging(("r1", 1)), pod("a"), pod("b"), decided=decided) == {"b": "r1"}
        assert placed(charging(("r1", 1)), pod("a"), pod("b", rack="r1"), decided=decided) == {}

    def test_a_place_that_is_not_assigned_any_more_is_forgotten(self) -> None:
        """The Workload got another node."""
        decided = Decided()
        placed(charging(("r1", 1)), pod("a"), decided=decided)
        assert placed(charging(("r2", 1)), pod("a"), decided=decided) == {"a": "r2"}


class TestNobodyStarts:
    @pytest.mark.parametrize(
        "given",
        [
            charging(("r1", 1), conditions=(condition("Evicted", "True", "Preempted"),)),
            charging(("r1", 1), conditions=(condition("Finished", "True", "Succeeded"),)),
            workload(RESERVED, admission=True),
        ],
        ids=["evicted", "finished", "not admitted"],
    )
    def test_without_an_admission(self, given: Workload) -> None:
        """The pod waits."""
        assert placed(given, pod("a", 0)) == {}

    def test_on_a_node_that_is_to_be_replaced(self) -> None:
        """The pod waits for another one."""
        given = charging(("h1", 1), ("h2", 1), level=HOST, unhealthyNodes=[{"name": "h1"}])
        assert placed(given, pod("a", 0), pod("b", 1), level=HOST) == {"b": "h2"}

    def test_while_a_pod_may_be_unknown(self) -> None:
        """It may have a place that looks free."""
        cluster = world(charging(("r1", 1)), pod("a", 0))
        cluster.pods.doubt()
        (again,) = finish(decide("ns/wl", cluster, Decided())).actions
        assert isinstance(again, RequeueAfter), "the watch may go on without a change by which it would be decided"


def test_gates_without_a_place_are_left_to_others() -> None:
    """And the other way round: nobody else lifts the gate of a pod that has a place."""
    assert heldpods.lift(charging(("r1", 1)), world(charging(("r1", 1)), pod("a", 0))) is None
