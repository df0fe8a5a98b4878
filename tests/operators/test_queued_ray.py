"""What only Ray's kinds do, under KubeRay: upgrades and scaling within the quota, clean-ups, jobs on existing clusters.

At no time do pods run that request more than the quota (`Trial.wait`)."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path
from tests.bench.figures import cpu_seconds
from tests.cluster.scenario import GROUP, resource_groups
from tests.cluster.test_process_metrics import scraped
from tests.operators.rays import CLUSTER_LABEL, VERSION, cluster_spec, clusters_of, ray_path
from tests.operators.rows import ROWS
from tests.operators.rows.row import metadata, pod_spec
from tests.operators.trial import POOL, QUEUE, Trial, trial_of
from tests.turnstile import Turnstile

MANY = int(os.environ.get("RAY_CLUSTERS", "10"))
"""How many RayClusters change their size at once; a multiple of 10."""
CHANGES = 10
pytestmark = [pytest.mark.operator("kuberay"), pytest.mark.usefixtures("nodes")]


@contextmanager
def trial(name: str, control_plane: ControlPlane, *, jobs: int = 1) -> Iterator[Trial]:
    """A queue for so many jobs of a row."""
    row = next(each for each in ROWS if each.name == name)
    with trial_of(row, control_plane, jobs=jobs) as made:
        yield made


def with_memory(trial: Trial, *, cpu: str, memory: str = "64Gi") -> None:
    """Another queue, `roomy`, on the same nodes: what KubeRay adds to pods requests memory."""
    flavor = trial.scenario.named("pool")
    trial.scenario.queue("roomy", {flavor: {"cpu": cpu, "memory": memory}})


def reserved(trial: Trial) -> str:
    """The CPUs that are reserved in `roomy`."""
    queue = trial.scenario.api.get(resource_path(GROUP, "clusterqueues", trial.scenario.named("roomy")))
    flavors = queue.get("status", {}).get("flavorsReservation", ())
    return "".join(each["total"] for flavor in flavors for each in flavor["resources"] if each["name"] == "cpu")


def change(trial: Trial, name: str, *operations: Json) -> None:
    """A JSON Patch of a job."""
    path = ray_path(trial.scenario, trial.row.plural, name)
    trial.scenario.api.patch(path, list(operations), kind="json")


def replace(path: str, value: Any) -> Json:
    """One operation of a JSON Patch."""
    return {"op": "replace", "path": path, "value": value}


def wait_pods(trial: Trial, name: str, count: int, *, image: str = "") -> None:
    """Until so many pods of a job run, all of an image."""

    def looked() -> bool:
        found = trial.row.running(trial.scenario, name)
        images = {each["spec"]["containers"][0]["image"] for each in found}
        return len(found) == count and (not image or images == {image})

    trial.wait(looked, timeout=60, describe=lambda: f"{name} has not {count} pods of {image or 'any image'}")


def _running_first(trial: Trial, names: list[str]) -> list[str]:
    """The workers among these pods, those first that run."""
    running = {each["metadata"]["name"] for each in trial.pods("ray")}
    return sorted((each for each in names if "worker" in each), key=lambda each: (each not in running, each))


class TestRayService:
    def test_an_upgrade_under_a_full_quota_ends(self, control_plane: ControlPlane, turnstile: Turnstile) -> None:
        """It stops and runs again: there is no second RayCluster beside the first. A RayService of a lower priority is
        not preempted meanwhile, though the first takes its time to stop."""
        image = "registry.example/ray:2"
        config = "/spec/rayClusterConfig"
        with trial("rayservice", control_plane, jobs=2) as made:
            low, high = made.scenario.priority_class("low", 10), made.scenario.priority_class("high", 100)
            made.create("beside", priority=low)
            made.create("serve", priority=high)
            made.wait_runs("beside")
            made.wait_runs("serve")
            beside = {pod["metadata"]["uid"] for pod in made.pods("beside")}
            made.slow_to_stop("serve", seconds=3)
            change(
                made,
                "serve",
                replace(f"{config}/headGroupSpec/template/spec/containers/0/image", image),
                replace(f"{config}/workerGroupSpecs/0/template/spec/containers/0/image", image),
            )
            wait_pods(made, "serve", 3, image=image)
            made.wait_reserved(6)
            assert {pod["metadata"]["uid"] for pod in made.pods("beside")} == beside

    def test_it_is_scaled_to_zero_and_back(self, control_plane: ControlPlane, turnstile: Turnstile) -> None:
        """Without workers it holds quota for its head only."""
        replicas = "/spec/rayClusterConfig/workerGroupSpecs/0/replicas"
        with trial("rayservice", control_plane) as made:
            made.create("serve")
            made.wait_runs("serve")
            change(made, "serve", replace(replicas, 0))
            wait_pods(made, "serve", 1)
            made.wait_reserved(1)
            change(made, "serve", replace(replicas, 2))
            wait_pods(made, "serve", 3)


@pytest.mark.parametrize("name", ["rayjob", "rayservice"])
def test_an_elastic_owner_is_charged_for_the_pods_of_its_cluster(
    control_plane: ControlPlane, turnstile: Turnstile, name: str
) -> None:
    """The autoscaler, which is played here, changes the replicas of the RayCluster: it grows within the quota, and runs
    on while more of them wait."""
    with trial(name, control_plane, jobs=2) as made:
        with_memory(made, cpu="3500m")
        (job,) = made.row.objects(made.scenario, "ray", "roomy")
        job["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
        if name == "rayjob":
            job["spec"] |= {"submissionMode": "HTTPMode"}
            del job["spec"]["submitterPodTemplate"]
        config = job["spec"].get("rayClusterConfig") or job["spec"]["rayClusterSpec"]
        config["enableInTreeAutoscaling"] = True
        config["workerGroupSpecs"][0] |= {"replicas": 1, "maxReplicas": 5}
        made.scenario.create(job)
        wait_pods(made, "ray", 2)
        made.wait(lambda: reserved(made) == "2500m", describe=lambda: f"{reserved(made)} CPUs are reserved")
        (child,) = clusters_of(made.scenario, "ray")
        path = ray_path(made.scenario, "rayclusters", child["metadata"]["name"])
        replicas = "/spec/workerGroupSpecs/0/replicas"
        made.scenario.api.patch(path, [replace(replicas, 2)], kind="json")
        wait_pods(made, "ray", 3)
        made.wait(lambda: reserved(made) == "3500m", describe=lambda: f"{reserved(made)} CPUs are reserved")
        made.scenario.api.patch(path, [replace(replicas, 4)], kind="json")
        made.wait(
            lambda: len([each for each in made.workloads("ray") if not condition(each, "Finished")]) == 2,
            describe=lambda: "no slice waits",
        )
        wait_pods(made, "ray", 3)
        assert reserved(made) == "3500m"


class TestRayCluster:
    def test_one_that_scales_itself_stays_within_its_quota(
        self, control_plane: ControlPlane, turnstile: Turnstile
    ) -> None:
        """It is charged for the workers that it has, grows within the quota when its autoscaler, which is played here,
        changes the replicas, and runs on while more of them wait."""
        with trial("raycluster", control_plane, jobs=2) as made:
            elastic = {"kueue.x-k8s.io/elastic-job": "true"}
            spec = cluster_spec("1") | {"enableInTreeAutoscaling": True}
            spec["workerGroupSpecs"][0] |= {"replicas": 1, "maxReplicas": 5}
            with_memory(made, cpu="3500m")
            meta = metadata(made.scenario, "ray", "roomy", annotations=elastic)
            made.scenario.create({"apiVersion": VERSION, "kind": "RayCluster", "metadata": meta, "spec": spec})
            wait_pods(made, "ray", 2)
            made.wait(lambda: reserved(made) == "2500m", describe=lambda: f"{reserved(made)} CPUs are reserved")
            first = {pod["metadata"]["uid"] for pod in made.pods("ray")}
            replicas = "/spec/workerGroupSpecs/0/replicas"
            change(made, "ray", replace(replicas, 2))
            wait_pods(made, "ray", 3)
            made.wait(lambda: reserved(made) == "3500m", describe=lambda: f"{reserved(made)} CPUs are reserved")
            change(made, "ray", replace(replicas, 4))
            made.wait(
                lambda: len([each for each in made.workloads("ray") if not condition(each, "Finished")]) == 2,
                describe=lambda: "no slice waits",
            )
            wait_pods(made, "ray", 3)
            assert first <= {pod["metadata"]["uid"] for pod in made.pods("ray")}
            names = sorted(each["metadata"]["name"] for each in made.row.pods_of(made.scenario, "ray"))
            _, kept, *others = [*(each for each in names if "head" in each), *_running_first(made, names)]
            assert kept not in others
            strategy = {
                "op": "add",
                "path": "/spec/workerGroupSpecs/0/scaleStrategy",
                "value": {"workersToDelete": others},
            }
            change(made, "ray", strategy, replace(replicas, 1))
            made.wait(lambda: reserved(made) == "2500m", describe=lambda: f"{reserved(made)} CPUs are reserved")
            wait_pods(made, "ray", 2)

    @pytest.mark.parametrize("name", ["raycluster", "rayservice"])
    def test_a_deleted_one_cleans_up_redis_within_its_quota(
        self, control_plane: ControlPlane, turnstile: Turnstile, name: str
    ) -> None:
        """KubeRay's cleanup Job runs under the Workload of the cluster, though its owner is gone, and frees it."""
        with trial(name, control_plane) as made:
            with_memory(made, cpu="3")
            (job,) = made.row.objects(made.scenario, "ray", "roomy")
            config = job["spec"].get("rayClusterConfig", job["spec"])
            config["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
            made.scenario.create(job)
            wait_pods(made, "ray", 3)
            made.scenario.api.delete(ray_path(made.scenario, made.row.plural, "ray"))

            def cleaning() -> list[Json]:
                pods = made.scenario.api.items(resource_path("v1", "pods", namespace=made.scenario.namespace))
                return [
                    pod
                    for pod in pods
                    if pod["metadata"]["labels"].get("ray.io/node-type") == "redis-cleanup"
                    and pod["status"].get("phase") == "Running"
                ]

            made.wait(cleaning, timeout=60, describe=lambda: "no cleanup runs")
            assert reserved(made) == "3"
            control_plane.end_pods(made.scenario.namespace, labels="ray.io/node-type=redis-cleanup")
            made.wait(lambda: reserved(made) == "0", describe=lambda: f"{reserved(made)} CPUs are reserved")


class TestRayJob:
    def test_one_for_an_existing_cluster_is_not_queued(self, control_plane: ControlPlane, turnstile: Turnstile) -> None:
        """The cluster has the quota; KubeRay takes the RayJob up at once."""
        with trial("raycluster", control_plane) as made:
            made.create("ray")
            made.wait_runs("ray")
            spec = {"entrypoint": "true", "submissionMode": "HTTPMode", "clusterSelector": {"ray.io/cluster": "ray"}}
            meta = metadata(made.scenario, "job", QUEUE)
            made.scenario.create({"apiVersion": VERSION, "kind": "RayJob", "metadata": meta, "spec": spec})
            path = ray_path(made.scenario, "rayjobs", "job")
            seen = made.scenario.api.wait_for(
                path, lambda job: job.get("status", {}).get("jobDeploymentStatus") == "Running", timeout=30
            )
            assert not seen["spec"].get("suspend")
            assert (
                len(made.scenario.api.items(resource_path(GROUP, "workloads", namespace=made.scenario.namespace))) == 1
            )

    def test_the_submitter_of_one_for_an_existing_cluster_is_queued_by_itself(
        self, control_plane: ControlPlane, turnstile: Turnstile
    ) -> None:
        """In K8sJobMode, the default, KubeRay's Job has a Workload of its own in the queue that the RayJob names: it
        waits while the cluster has all quota, and runs when there is more."""
        with trial("raycluster", control_plane) as made:
            made.create("ray")
            made.wait_runs("ray")
            spec = {
                "entrypoint": "true",
                "clusterSelector": {"ray.io/cluster": "ray"},
                "submitterPodTemplate": {"spec": pod_spec("1")},
            }
            meta = metadata(made.scenario, "job", QUEUE)
            made.scenario.create({"apiVersion": VERSION, "kind": "RayJob", "metadata": meta, "spec": spec})
            made.scenario.wait_pending("job", timeout=60)
            assert not made.scenario.pods_of("job")
            made.quota += 1
            flavor = {made.scenario.named("pool"): {"cpu": made.quota}}
            made.scenario.patch_queue(made.scenario.named(QUEUE), {"resourceGroups": resource_groups(flavor)})
            made.scenario.wait_started("job", timeout=30)
            made.wait_reserved(4)
            control_plane.end_pods(made.scenario.namespace, labels="batch.kubernetes.io/job-name=job")
            made.wait_reserved(3)
            workloads = made.scenario.api.items(resource_path(GROUP, "workloads", namespace=made.scenario.namespace))
            owners = {each["metadata"]["ownerReferences"][0]["kind"] for each in workloads}
            assert owners == {"RayCluster", "Job"}

    def test_one_that_kuberay_refuses_is_on_hold(self, control_plane: ControlPlane, turnstile: Turnstile) -> None:
        """It has no quota, and is not tried again."""
        with trial("rayjob", control_plane) as made:
            (job,) = made.row.objects(made.scenario, "refused", QUEUE)
            job["spec"]["ttlSecondsAfterFinished"] = -1
            made.scenario.create(job)
            made.scenario.wait_workload(
                "refused",
                lambda workload: condition(workload, "QuotaReserved").get("reason") == "OnHold",
                kind="RayJob",
                timeout=40,
            )
            made.wait_reserved(0)


def _written(turnstile: Turnstile) -> Counter[str]:
    """Writes of Turnstile, by verb and kind."""
    found: Counter[str] = Counter()
    for (name, labels), value in scraped(turnstile).items():
        if name == "turnstile_writes_total":
            of = dict(labels)
            found[f"{of['verb']} {of['kind']}"] += int(value)
    return found


@pytest.mark.timeout(300 + 10 * MANY)  # KubeRay reconciles one RayCluster at a time
def test_many_that_scale_themselves_leave_nothing_behind(
    control_plane: ControlPlane, turnstile: Turnstile, add_node: Callable[..., str]
) -> None:
    """Their autoscalers, which are played here, give each another size CHANGES times, as fast as the API server takes
    it: in the end each has one slice, admitted and charged for the pods that run, and no pod is gated."""
    add_node("rays", labels=POOL, cpu=MANY, memory=f"{2 * MANY}Gi", pods=4 * MANY)
    names = [f"ray-{number}" for number in range(MANY)]
    with trial("raycluster", control_plane, jobs=MANY) as made:
        scenario, sizes = made.scenario, random.Random(7)
        with_memory(made, cpu=str(MANY), memory=f"{2 * MANY}Gi")
        for name in names:
            spec = cluster_spec("100m") | {"enableInTreeAutoscaling": True}
            spec["workerGroupSpecs"][0] |= {"replicas": 1, "maxReplicas": 3}
            meta = metadata(scenario, name, "roomy", annotations={"kueue.x-k8s.io/elastic-job": "true"})
            scenario.create({"apiVersion": VERSION, "kind": "RayCluster", "metadata": meta, "spec": spec})

        def pods() -> list[Json]:
            return scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))

        asked: dict[str, tuple[int, list[str]]] = {}

        def scale(wanted: Callable[[], int]) -> None:
            """Ask for so many workers of each cluster, and name those that go; nothing is asked for twice."""
            workers: dict[str, list[str]] = {}
            for each in pods():
                meta = each["metadata"]
                if "worker" in meta["name"] and not meta.get("deletionTimestamp"):
                    workers.setdefault(meta["labels"][CLUSTER_LABEL], []).append(meta["name"])
            for name in names:
                size = wanted()
                goes = sorted(workers.get(name, ()))[size:]
                if asked.get(name) == (size, goes):
                    continue
                asked[name] = size, goes
                path, value = "/spec/workerGroupSpecs/0/scaleStrategy", {"workersToDelete": goes}
                strategy = {"op": "add", "path": path, "value": value}
                change(made, name, strategy, replace("/spec/workerGroupSpecs/0/replicas", size))

        def standing() -> tuple[int, int, int, int]:
            """Pods that run, other pods, and Workloads that have not finished, admitted ones and others."""
            found = pods()
            running = sum(each["status"].get("phase") == "Running" for each in found)
            every = scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))
            slices = [each for each in every if condition(each, "Finished").get("status") != "True"]
            admitted = sum(condition(each, "Admitted").get("status") == "True" for each in slices)
            return running, len(found) - running, admitted, len(slices) - admitted

        def settled() -> bool:
            if standing() == (2 * MANY, 0, MANY, 0):
                return True
            scale(lambda: 1)  # an autoscaler sees what runs, and asks again
            return False

        def settle() -> None:
            made.wait(settled, timeout=60 + 2 * MANY, describe=lambda: f"{standing()}, not {(2 * MANY, 0, MANY, 0)}")

        settle()
        assert turnstile.process is not None
        before = _written(turnstile)
        began, used = time.monotonic(), cpu_seconds(turnstile.process.pid)
        for _ in range(CHANGES):
            scale(lambda: sizes.randint(1, 3))
        changed = time.monotonic() - began
        settle()
        spent, number = cpu_seconds(turnstile.process.pid) - used, MANY * CHANGES
        writes = _written(turnstile) - before
        print(
            f"{MANY} RayClusters of {CHANGES} sizes: changed in {changed:.1f} s, settled after"
            f" {time.monotonic() - began:.1f} s; for a change {spent / number * 1000:.1f} ms of CPU and"
            f" {writes.total() / number:.2f} writes:"
            f" {', '.join(f'{what} {count / number:.2f}' for what, count in writes.most_common())}"
        )
        # a head of 100m, its autoscaler of 500m, and a worker whose init container requests 200m
        made.wait(lambda: reserved(made) == f"{MANY * 8 // 10}", describe=lambda: f"{reserved(made)} CPUs are reserved")
