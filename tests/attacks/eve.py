"""A tenant with Kubernetes' `edit` in one namespace of a manager and of its worker cluster.

The manager has a quota of 2 CPUs there, the worker of 4.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from testbed import ApiError, ControlPlane
from testbed.client import Api, Json, resource_path, wait_until
from testbed.components import STOP_FOR
from testbed.installation import NAMESPACE as INSTALLED
from tests.attacks.conftest import EDIT, QUIET_SECONDS
from tests.attacks.sentry import Sentry
from tests.cluster.scenario import GROUP, Scenario, job, job_path
from tests.cluster.sites import Site, Sites, Team, a_team, connect
from turnstile.api import names

ORIGIN, UID = names.MULTIKUEUE_ORIGIN, names.MULTIKUEUE_ORIGIN_UID
MANAGER_CPUS, WORKER_CPUS = 2, 4


@dataclass
class Eve:
    """Kubernetes' `edit` in one namespace of both clusters."""

    here: Api
    """The manager as Eve may use it."""
    there: Api
    """The worker as Eve may use it."""
    team: Team
    sentry: Sentry
    """What runs in the namespace of the worker."""

    @property
    def worker(self) -> Scenario:
        """The namespace on the worker as its administrator sees it."""
        return self.team.there["east"]

    def job(self, name: str, **options: Any) -> Json:
        """The manifest of a Job in the queue."""
        return job(name, namespace=self.team.here.namespace, queue="team", **options)

    def sent(self, name: str) -> str:
        """Wait until the copy of a Job runs; the name of its Workload."""
        self.team.wait_on(name, "east")
        found: str = self.team.here.workload_of(name)["metadata"]["name"]
        return found

    def path(self, api_version: str, plural: str, name: str | None = None) -> str:
        """The URL path of an object of the namespace, on both clusters."""
        return resource_path(api_version, plural, name, namespace=self.team.here.namespace)

    def job_path(self, name: str) -> str:
        """The URL path of a Job, on both clusters."""
        return job_path(self.team.here.namespace, name)

    def reserved(self, scenario: Scenario) -> int:
        """CPUs that are reserved in the queue of a cluster."""
        found = scenario.api.get(resource_path(GROUP, "clusterqueues", scenario.named("team")))
        resources = [each for flavor in found["status"].get("flavorsReservation", ()) for each in flavor["resources"]]
        return sum(int(each["total"]) for each in resources)

    def wait_reserved(self, cpus: int) -> None:
        """Wait until so many CPUs are reserved on the manager."""
        here = self.team.here
        wait_until(
            lambda: self.reserved(here) == cpus,
            timeout=40,
            describe=lambda: f"{self.reserved(here)} CPUs are reserved on the manager: {self.story()}",
        )

    def wait_told(self, text: str) -> None:
        """Wait until an event on the manager says so."""
        path = self.path("events.k8s.io/v1", "events")

        def told() -> bool:
            return any(text in each.get("note", "") for each in self.team.here.api.items(path))

        wait_until(told, timeout=40, describe=self.story)

    def story(self) -> str:
        """The pods, and the Workloads of both clusters."""
        lines = list(self.sentry.story)
        for api in (self.team.here.api, self.worker.api):
            for each in api.items(self.path(GROUP, "workloads")):
                status = each.get("status", {})
                states = {found["type"]: found["status"] for found in status.get("conditions", ())}
                cluster = status.get("clusterName")
                lines.append(f"Workload {each['metadata']['name']}: {states} {cluster} {status.get('admissionChecks')}")
        return "\n".join(lines)

    def stays_apart(self) -> None:
        """Assert that no more than the worker's quota ran at any time, once all has come to rest."""
        wait_until(lambda: self.sentry.quiet_for(QUIET_SECONDS), timeout=30, describe=self.story)
        assert self.sentry.most <= WORKER_CPUS, self.story()


@contextmanager
def two_clusters(*, audit: bool = False) -> Iterator[Sites]:
    """A manager and a worker that is connected; with `audit` the worker's API server records each request."""
    without_pods = ("etcd", "kube-apiserver", "kube-controller-manager")
    with ControlPlane(components=without_pods) as first, ControlPlane(audit=audit) as second:
        yield connect(Site(first), {"east": Site(second)})


@contextmanager
def a_tenant(sites: Sites) -> Iterator[Eve]:
    """The tenant as by the fixture."""
    with a_team(sites.manager, sites.workers, sends=MANAGER_CPUS, takes=WORKER_CPUS) as team:
        sentry = Sentry(sites.workers["east"].api, team.here.namespace)
        for site in (sites.manager, sites.workers["east"]):
            bind(site.api, team.here.namespace)
        eve = Eve(sites.manager.cp.api_as("eve"), sites.workers["east"].cp.api_as("eve"), team, sentry)
        for api in (eve.here, eve.there):
            wait_until(lambda a=api: may_edit(a, eve), timeout=10, describe=lambda: "the tenant may not edit")
        try:
            yield eve
        finally:
            sentry.end()


def bind(api: Api, namespace: str) -> None:
    """Give Eve the role in a namespace."""
    rbac = "rbac.authorization.k8s.io"
    api.create({
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "eve", "namespace": namespace},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": EDIT},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "eve"}],
    })  # fmt: skip


def may_edit(api: Api, eve: Eve) -> bool:
    """Whether Eve may create Jobs."""
    attributes = {"namespace": eve.team.here.namespace, "verb": "create", "group": "batch", "resource": "jobs"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(
        api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]
    )


def slow(eve: Eve, name: str) -> Json:
    """The manifest of a Job of 2 CPUs whose pods stop when they are released."""
    body = eve.job(name, cpu="2")
    body["spec"]["template"]["metadata"]["annotations"] = {STOP_FOR: "3600s"}
    body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3600
    return body


def refused(request: Any) -> None:
    """Assert that the API server refuses a request."""
    with pytest.raises(ApiError) as found:
        request()
    assert found.value.code in (403, 422)


class Writes:
    """What an account writes to the namespace on the worker, by the audit log of its API server."""

    def __init__(self, eve: Eve, cp: ControlPlane, account: str) -> None:
        self._log, self._user = cp.audit_log, f"system:serviceaccount:{INSTALLED}:{account}"
        self._namespace = eve.team.here.namespace
        self._before = self._count()

    def since(self) -> int:
        """Writes since this was made."""
        return self._count() - self._before

    def _count(self) -> int:
        found = 0
        with self._log.open() as lines:
            for line in lines:
                if self._user not in line or self._namespace not in line or not line.endswith("\n"):
                    continue
                event = json.loads(line)
                mine = event["user"]["username"] == self._user
                there = event.get("objectRef", {}).get("namespace") == self._namespace
                found += mine and there and event["verb"] not in ("get", "list", "watch")
        return found
