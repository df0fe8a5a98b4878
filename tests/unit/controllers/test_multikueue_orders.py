"""A worker's controller: which keys a change concerns, and the writes that follow."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.test_serving_sets import LWS, put_lws
from tests.unit.controllers.worlds import ADMITTED, RESERVED, decode
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.multikueue import MultiKueueCluster
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.clusters import COPIES_BY_WORKLOAD, Clusters, Connection
from turnstile.controllers.multikueue.kubeconfigs import ACTIVE, Standing
from turnstile.controllers.multikueue.orders import Ordering
from turnstile.controllers.multikueue.remotes import Remotes
from turnstile.controllers.multikueue.workloads import Dispatching, controller
from turnstile.controllers.runtime.actions import Create, Delete, Emit, Patch
from turnstile.controllers.runtime.controller import Controller
from turnstile.controllers.runtime.executor import Executor
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSet
from turnstile.jobs.options import MultiKueueOptions
from turnstile.kube import answers
from turnstile.kube.auth import Access, Fixed
from turnstile.kube.caches import Caches
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

ORIGIN = "kueue.x-k8s.io/multikueue-origin"


def nobody(*_: object) -> Any:
    """No recorder and no fence: nothing is written."""
    raise AssertionError("nothing is written")


class Worker:
    """The worker `east` of a manager on which LeaderWorkerSet `model` of two groups is admitted."""

    def __init__(self, transport: Transport) -> None:
        self.manager = Cluster()
        spec = {"controllerName": "kueue.x-k8s.io/multikueue"}
        check = decode(AdmissionCheck, {"metadata": {"name": "elsewhere"}, "spec": spec})
        self.manager.world.admission_checks.observe(check)
        clusters = Clusters(
            self.manager.world,
            Executor(transport, {}, nobody, fence=nobody),
            MultiKueueOptions(),
            controller=lambda connection: self.orders.on(connection),
        )
        self.orders = Ordering(Remotes(self.manager.world, clusters), lambda workload, cluster: None)
        self.caches = Caches(transport)
        self.caches.of(Workload)
        for each in clusters.kinds.values():
            named: Store[Any] = self.caches.of(each, optional=True)
            named.add_index(COPIES_BY_WORKLOAD, lambda copy: [copy.metadata.key])  # the copy of a set names none
        self.connection = clusters.connections["east"] = Connection("east", clusters)
        self.connection.standing = Standing(ACTIVE, "Connected")
        self.connection._caches = self.caches
        put_lws(self.manager, replicas=2)
        self.manager.settle(LWS)
        for each in self.manager.workloads:
            self.admit(each)
        marks = {"labels": {ORIGIN: "multikueue"}, "annotations": {f"{ORIGIN}-uid": "uid-model"}}
        meta = {"name": "model", "namespace": "team", "uid": "there", "resourceVersion": "1", **marks}
        copies = self.connection.jobs(LeaderWorkerSet)
        assert copies is not None
        copies.observe(decode(clusters.kinds[LeaderWorkerSet], {"metadata": meta, "spec": {"replicas": 2}}))

    def admit(self, workload: Any) -> None:
        """A group runs on the worker."""
        meta = workload["metadata"]
        state = [{"name": "elsewhere", "state": "Ready", "message": ""}]
        status = {"conditions": [RESERVED, ADMITTED], "admissionChecks": state, "clusterName": "east"}
        self.manager.patch(Workload, f"team/{meta['name']}", {"status": status})
        marks = {"labels": {ORIGIN: "multikueue"}, "annotations": {f"{ORIGIN}-uid": meta["uid"]}}
        there = {"name": meta["name"], "namespace": "team", "uid": f"there-{meta['uid']}", **marks}
        body = {"metadata": there, "spec": workload["spec"], "status": {"conditions": [RESERVED, ADMITTED]}}
        self.connection.workloads.observe(answers.decoder(Workload)(orjson.dumps(body)))

    def watched(self, change: Callable[[], None]) -> list[str]:
        """The keys that a change concerns."""
        controller: Controller = self.orders.on(self.connection)
        keys: list[str] = []
        undo = [
            watch.store.subscribe(lambda *found, watch=watch: keys.extend(watch.keys(*found)))
            for watch in controller.watches
        ]
        change()
        for each in undo:
            each()
        return list(dict.fromkeys(keys))

    def actions(self, keys: list[str]) -> list[Any]:
        """The writes that are decided for these keys."""
        decide = self.orders.on(self.connection).decide
        return [action for key in keys for action in decide(key).actions]


def with_worker(test: Callable[[Worker], None]) -> None:
    """Run a test with the worker, which is connected."""

    async def run() -> None:
        access = Access(server="http://nowhere.example.com", tls=None, credentials=Fixed())
        async with Transport(access) as transport:
            test(Worker(transport))

    asyncio.run(run())


def test_a_set_that_grows_has_its_copy_grow() -> None:
    """Its pods wait at their gates there until the Workloads of the new groups have come."""

    def grown(worker: Worker) -> None:
        keys = worker.watched(lambda: put_lws(worker.manager, replicas=3))
        assert keys == [f"team/{each['metadata']['name']}" for each in worker.manager.workloads]
        patches = [each for each in worker.actions(keys) if isinstance(each, Patch)]
        assert patches
        assert {orjson.dumps(orjson.loads(each.body)["spec"]) for each in patches} == {b'{"replicas":3}'}

    with_worker(grown)


def test_a_set_without_groups_has_no_copy() -> None:
    """Its Workloads are gone on the manager; the copy is deleted by its own key."""

    def emptied(worker: Worker) -> None:
        def scale() -> None:
            put_lws(worker.manager, replicas=0)
            worker.manager.settle(LWS)

        assert "team/model" in worker.watched(scale)
        assert worker.manager.workloads == []
        (deleted,) = [each for each in worker.actions(["team/model"]) if isinstance(each, Delete)]
        assert (deleted.kind.KIND, deleted.name) == ("LeaderWorkerSet", "model")

    with_worker(emptied)


def test_a_job_that_has_only_the_label_is_no_copy() -> None:
    """A tenant of the worker can write that; the job is deleted, and a copy made."""

    def forged(worker: Worker) -> None:
        copies = worker.connection.jobs(LeaderWorkerSet)
        assert copies is not None
        meta = {
            "name": "model",
            "namespace": "team",
            "uid": "forged",
            "resourceVersion": "9",
            "labels": {ORIGIN: "multikueue"},
        }
        copies.observe(decode(type(copies.values()[0]), {"metadata": meta, "spec": {"replicas": 2}}))
        key = f"team/{worker.manager.workloads[0]['metadata']['name']}"
        deleted = [each for each in worker.actions([key]) if isinstance(each, Delete)]
        assert [each.uid for each in deleted if each.name == "model"] == ["forged"]

    with_worker(forged)


def test_a_deleted_job_has_quota_until_the_worker_has_released_its_own() -> None:
    """Pods of its copy may run there; a worker that is not heard of is believed to run them until it is lost."""

    def held(worker: Worker) -> None:
        remotes = worker.orders.remotes
        (first, *_) = worker.manager.world.workloads.values()
        worker.manager.world.multikueue.clusters.observe(decode(MultiKueueCluster, {"metadata": {"name": "east"}}))
        assert remotes.holds(first)
        worker.connection.standing = Standing("Lost", "no answer")
        assert remotes.holds(first)
        worker.connection._lost_since = asyncio.get_running_loop().time() - 3600
        assert not remotes.holds(first)
        worker.connection.standing = Standing(ACTIVE, "Connected")
        worker.connection.workloads.delete(first.metadata.key)
        assert not remotes.holds(first)

    with_worker(held)


def test_a_copy_that_the_worker_refuses_is_reported_on_the_job() -> None:
    """A webhook there may ask whether the manager's account has rights that it lacks, as that of AppWrappers does."""

    def refused(worker: Worker) -> None:
        copies = worker.connection.jobs(LeaderWorkerSet)
        assert copies is not None
        copies.delete("team/model")
        keys = [f"team/{each['metadata']['name']}" for each in worker.manager.workloads]
        create = next(each for each in worker.actions(keys) if isinstance(each, Create))
        assert create.refused is not None
        (event,) = create.refused("may not create deployments")
        assert isinstance(event, Emit)
        assert (event.regarding.KIND, event.regarding.metadata.key, event.type) == (
            "LeaderWorkerSet", "team/model", "Warning",
        )  # fmt: skip
        assert event.note == 'Cluster "east" refuses the copy: may not create deployments'

    with_worker(refused)


def test_names_that_are_taken_are_forgotten_though_no_job_asks_again() -> None:
    """A tenant of both clusters can take and release any number of names."""

    def taken(worker: Worker) -> None:
        now = asyncio.get_running_loop().time()
        worker.connection._taken = {("Job", f"team/{number}"): now - 3600 for number in range(5)}
        worker.connection.note_taken(LeaderWorkerSet, "team/model")
        assert list(worker.connection._taken) == [("LeaderWorkerSet", "team/model")]

    with_worker(taken)


def test_a_deleted_workload_has_no_round() -> None:
    """A Workload that no cluster has admitted is forgotten when it is gone."""

    def gone(worker: Worker) -> None:
        work = Dispatching(worker.orders.remotes)
        (first, *_) = worker.manager.world.workloads.values()
        work._rounds.begin(first, worker.manager.world.measured)
        for watch in controller(work).watches:
            watch.store.subscribe(lambda *found, watch=watch: list(watch.keys(*found)))
        worker.manager.world.workloads.delete(first.metadata.key)
        assert not work._rounds._begun

    with_worker(gone)


def test_a_set_with_groups_keeps_its_copy() -> None:
    """The key of the copy is that of no Workload."""

    def kept(worker: Worker) -> None:
        assert worker.actions(["team/model"]) == []

    with_worker(kept)
