"""A cluster that Kueue manages and Turnstile takes over, and what must be the same before and after.

Two teams have half of the Jobs each, and quota for three in ten of theirs. Pods run until a test ends them. What runs
is counted from the pods alone, at every moment (`tests.attacks.sentry`).
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from testbed import ControlPlane, resource_path
from testbed.client import Json, condition, wait_until
from testbed.errors import ApiError
from testbed.installation import CHART, Installation
from testbed.operators import RunningOperator
from testbed.operators.description import Program
from testbed.peers import KUEUE
from testbed.ports import lent_port
from testbed.processes import Process
from tests.attacks.sentry import Sentry
from tests.cluster.reader import Reader
from tests.cluster.scenario import GROUP, job

PAGE: Final = "from-kueue.md"
TEAMS: Final = ("blue", "red")
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
URGENT_EVERY: Final = 7
"""One Job in so many is urgent."""
PATIENCE: Final = 600
"""Seconds for what each of a thousand Jobs needs writes for, on a machine that others use too."""
NEXT_SECONDS: Final = 240
"""For what few Jobs need writes for: less than the five minutes after which the API server first has etcd forget old
versions, until when a Kueue that reads an old version admits nothing."""


class ReleasedKueue(RunningOperator):
    """Kueue as kubectl installs it from the manifests of a release, with its Deployment."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        super().__init__(control_plane, KUEUE)
        self._cp = control_plane
        self._manifest = directory / "kueue.yaml"
        self._manifest.write_text(yaml.safe_dump_all(self.release()))

    def install(self) -> None:
        """Apply the manifests, in the words of Kueue's documentation."""
        self._cp.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(self._manifest))

    def _launch(self, program: Program) -> None:
        self._wait_discovered()
        super()._launch(program)


@dataclass(frozen=True)
class Standing:
    """What a cluster holds at one moment."""

    pods: Mapping[str, str]
    """Pods that run, by uid, with how often their containers were started again."""
    workloads: Mapping[str, tuple[str, str]]
    """Workloads by the name of their Job: uid, and when they were created, which is their place in the queue."""
    admitted: frozenset[str]
    """Names of the Jobs whose Workloads have quota."""
    queues: Mapping[str, Json]
    """Specs of queues and flavors by path."""


class Cluster:
    """A control plane with Kueue's objects, and either program beside it."""

    def __init__(self, control_plane: ControlPlane, directory: Path, *, jobs: int) -> None:
        self.cp = control_plane
        self.api = control_plane.api
        self.directory = directory
        self.jobs = jobs // len(TEAMS)
        """Of each team."""
        self.quota = self.jobs * 3 // 10
        self.kueue = ReleasedKueue(control_plane, directory)
        self.installation = Installation(
            control_plane, visibility=True, namespaces=("--exclude-namespace", "kueue-system")
        )
        self.turnstile: Process | None = None
        self.sentries: dict[str, Sentry] = {}
        (directory / "charts").symlink_to(CHART.parent)
        for number in range(4):
            control_plane.add_node(f"node-{number}", cpu=256, memory="1024Gi", pods=1000, wait=False)

    # ---------------------------------------------------------------- the world

    def fill(self) -> None:
        """Make queues and Jobs; returns when all quota is used and every Job has its Workload."""
        api = self.api
        api.create({"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "default"}})
        urgent = {"apiVersion": GROUP, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 100}
        api.create(urgent)
        for team in TEAMS:
            # A limit for the cohort, so that the field whose name differs between the versions of the API counts.
            limits = {"name": "cpu", "nominalQuota": self.quota, "borrowingLimit": 0}
            groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [limits]}]}]
            spec = {"cohortName": "research", "namespaceSelector": {}, "resourceGroups": groups}
            api.create({"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": team}, "spec": spec})
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
            api.wait_for(resource_path("v1", "serviceaccounts", "default", namespace=team), bool, timeout=60)
            meta = {"name": "main", "namespace": team}
            api.create({"apiVersion": GROUP, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": team}})
            self.sentries[team] = Sentry(api, team)
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(self._create, range(self.jobs)):
                pass
        self.wait_full()
        wait_until(
            lambda: len(self.standing().workloads) == self.jobs * len(TEAMS),
            timeout=PATIENCE,
            describe=lambda: f"{len(self.standing().workloads)} Workloads",
        )

    def _create(self, number: int) -> None:
        for team in TEAMS:
            self.api.create(self.job(team, f"{team}-{number:04}", urgent=number % URGENT_EVERY == 0))

    @staticmethod
    def job(team: str, name: str, *, urgent: bool = False) -> Json:
        """A Job of one pod."""
        made = job(name, namespace=team, queue="main")
        if urgent:
            made["metadata"]["labels"][PRIORITY] = "urgent"
        return made

    # ---------------------------------------------------------------- the programs

    def guide(self, section: str) -> Reader:
        """A section of the page, as an administrator follows it: in a directory with `kueue.yaml` and the charts."""
        return Reader(PAGE, self.cp, directory=self.directory, section=section)

    def set_values(self) -> None:
        """Point the values that the page makes at the process beside the cluster."""
        file = self.directory / "values.yaml"
        values = yaml.safe_load(file.read_text())
        values |= {
            "webhook": {"url": f"https://127.0.0.1:{self.installation.port}"},
            "visibility": {"url": f"https://localhost:{self.installation.visibility_port}"},
        }
        file.write_text(yaml.safe_dump(values))

    def start_turnstile(self) -> None:
        """With the file of the chart's ConfigMap; its addresses are given as flags, as the chart does."""
        file = self.directory / "config.yaml"
        file.write_text(self.installation.configuration())
        addresses = ("--health-bind", f"127.0.0.1:{lent_port()}", "--metrics-bind", f"127.0.0.1:{lent_port()}")
        self.turnstile = self.installation.start(arguments=("--config", str(file), *addresses))
        self.installation.wait_ready(self.turnstile, timeout=120)
        self.wait_readable()

    def stop_turnstile(self) -> None:
        """SIGTERM, and wait for the end."""
        if self.turnstile is not None:
            self.turnstile.terminate()
            self.turnstile = None

    def restart_kueue_once(self) -> None:
        """As the page says, and Kueue's process with its Deployment."""
        self.guide("Restart Kueue once").do()
        self.kueue.stop()
        self.kueue.start()

    # ---------------------------------------------------------------- what is asked

    def wait_readable(self) -> None:
        """Until objects that are stored in an older version can be read: what converts them runs."""
        why: object = None

        def look() -> bool:
            nonlocal why
            try:
                self.standing()
            except ApiError as error:
                why = error
                return False
            return True

        wait_until(look, timeout=60, describe=lambda: f"objects cannot be read: {why}")

    def standing(self) -> Standing:
        """What the cluster holds now."""
        pods: dict[str, str] = {}
        workloads: dict[str, tuple[str, str]] = {}
        admitted: set[str] = set()
        for team in TEAMS:
            for pod in self.api.items(resource_path("v1", "pods", namespace=team)):
                if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                    restarts = sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
                    pods[pod["metadata"]["uid"]] = str(restarts)
            for workload in self.api.items(resource_path(GROUP, "workloads", namespace=team)):
                meta = workload["metadata"]
                [owner] = meta["ownerReferences"]
                workloads[owner["name"]] = meta["uid"], meta["creationTimestamp"]
                if condition(workload, "QuotaReserved").get("status") == "True" and not _is_over(workload):
                    admitted.add(owner["name"])
        return Standing(pods, workloads, frozenset(admitted), dict(self._queues()))

    def _queues(self) -> Iterator[tuple[str, Json]]:
        paths = [resource_path(GROUP, plural) for plural in ("clusterqueues", "resourceflavors")]
        for path in (*paths, *(resource_path(GROUP, "localqueues", namespace=team) for team in TEAMS)):
            for each in self.api.items(path):
                yield f"{path}/{each['metadata']['name']}", each["spec"]

    def wait_full(self) -> None:
        """Until pods run with all the quota there is."""
        wait_until(
            lambda: all(sentry.runs == self.quota for sentry in self.sentries.values()),
            timeout=PATIENCE,
            describe=lambda: f"of {self.quota} cpus each: {[(name, int(s.runs)) for name, s in self.sentries.items()]}",
        )

    def assert_within_quota(self) -> None:
        """At no moment until now did a team's pods use more than its quota."""
        assert {team: int(sentry.most) for team, sentry in self.sentries.items()} == dict.fromkeys(TEAMS, self.quota)

    def assert_the_next_ones_start(self, count: int) -> None:
        """When so many Jobs of each team end, those that start in their place are the first of the queue: urgent ones
        first, and then by age."""
        before = self.standing()
        waiting = before.workloads.keys() - before.admitted - self.over()
        for team in TEAMS:
            for name in sorted(each for each in before.admitted if each.startswith(team))[:count]:
                self.cp.end_pods(team, labels=f"batch.kubernetes.io/job-name={name}")
        wait_until(
            lambda: len(self.standing().admitted - before.admitted) == count * len(TEAMS) or None,
            timeout=NEXT_SECONDS,
            describe=lambda: f"started: {sorted(self.standing().admitted - before.admitted)}",
        )
        self.wait_full()
        started = self.standing().admitted - before.admitted
        for team in TEAMS:
            line = sorted(_place(name, before) for name in waiting if name.startswith(team))
            places = sorted(_place(name, before) for name in started if name.startswith(team))
            # Those of one second have no order among themselves.
            assert len(places) == count
            assert places == line[:count], f"{team}: {places} started before {line[:count]}"

    def over(self) -> set[str]:
        """Names of the Jobs that have ended."""
        return {
            each["metadata"]["name"]
            for team in TEAMS
            for each in self.api.items(resource_path("batch/v1", "jobs", namespace=team))
            if condition(each, "Complete").get("status") == "True"
        }

    def assert_still(self, before: Standing) -> None:
        """What ran runs, in the same pods, and what waited waits in the same place; queues say what they said."""
        now = self.standing()
        assert now.pods == before.pods
        assert now.workloads == before.workloads
        assert now.admitted == before.admitted
        assert now.queues == before.queues
        self.assert_within_quota()


def _is_over(workload: Json) -> bool:
    return bool(condition(workload, "Finished").get("status") == "True")


def _place(name: str, standing: Standing) -> tuple[bool, str]:
    """Urgent Jobs first, and then by age."""
    return int(name.rpartition("-")[2]) % URGENT_EVERY != 0, standing.workloads[name][1]
