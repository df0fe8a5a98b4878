"""A tenant who may edit one managed namespace with a quota of 2 CPUs, and what must hold whatever the tenant does.

All attacks of a process share one control plane with nothing else in it. Each test has a namespace and a ClusterQueue
of its own, states its attack in its docstring, and ends with `tenant.within_quota()`. `python -m tests.attacks.page`
writes the docstrings into docs/reference/attacks.md.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from testbed import ControlPlane
from testbed.client import Api, Json, condition, resource_path, wait_until
from testbed.components import RUN_FOR
from testbed.installation import MANAGED, Installation
from tests.attacks.replicas import Replicas
from tests.attacks.sentry import Sentry
from tests.audits import assert_passes
from tests.cluster.scenario import GROUP, QUEUE, Scenario
from tests.turnstile import Turnstile

QUOTA = 2
HERE = Path(__file__).parent
EDIT, BATCH_USER = "edit", "turnstile-batch-user-role"
"""Roles of tenants: Kubernetes' own, and the chart's for those who only submit jobs."""
WITHOUT_QUEUE_NAME = os.environ.get("ATTACKS_WITHOUT_QUEUE_NAME") == "1"
"""Whether jobs without a queue name are managed too (`manageJobsWithoutQueueName: true`)."""
leaves_alone = pytest.mark.skipif(WITHOUT_QUEUE_NAME, reason="needs a job without a queue name that is left alone")
REPLICAS = int(os.environ.get("ATTACKS_REPLICAS", "1"))
"""With 2, two webhooks and two controllers run in the place of one process."""
QUIET_SECONDS = 1.5
"""The cluster is at rest when nothing changed for so long: decisions take milliseconds."""


LONG = {"test_first_sync.py": 40, "test_orders.py": 60, "test_deletion.py": 40}
"""Modules that take longer than others with so few tests: as long as one with so many."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every attack needs a control plane. The modules that take longest come first, so that none is left for the end
    when several processes do a module each."""
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    for item in mine:
        item.add_marker(pytest.mark.cluster)
    if len(mine) == len(items):
        tests = Counter(item.path.name for item in mine)
        items.sort(key=lambda item: -max(tests[item.path.name], LONG.get(item.path.name, 0)))


@pytest.fixture(scope="session")
def attacked() -> Iterator[Turnstile]:
    """Turnstile with all roles on a control plane of its own, with nodes for far more than the quota."""
    with installed() as turnstile:
        yield turnstile


@contextmanager
def installed(**options: Any) -> Iterator[Turnstile]:
    """A control plane with these options, and Turnstile in it."""
    with ControlPlane(**options) as cp:
        for number in range(3):
            cp.add_node(f"n{number}", cpu=64, memory="256Gi", pods=500, wait=False)
        installation = Installation(cp)
        installation.install(*(["manageJobsWithoutQueueName=true"] if WITHOUT_QUEUE_NAME else []))
        arguments = ["--manage-jobs-without-queue-name"] if WITHOUT_QUEUE_NAME else []
        turnstile = (Replicas if REPLICAS > 1 else Turnstile)(installation, *arguments)
        turnstile.start()
        yield turnstile


@dataclass
class Tenant:
    """Kubernetes' `edit` (or another role) in a managed namespace, which has the LocalQueue `main`."""

    api: Api
    """The API server as the tenant may use it."""
    world: Scenario
    """The same namespace as an administrator sees it."""
    sentry: Sentry
    turnstile: Turnstile
    others: list[Scenario] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """The tenant's namespace."""
        return self.world.namespace

    # ------------------------------------------------------------ objects

    def job(
        self,
        name: str,
        *,
        cpu: str = "1",
        pods: int = 2,
        annotations_of_pods: dict[str, str] | None = None,
        **metadata: Any,
    ) -> Json:
        """Create a Job of `pods` pods that run until they are deleted; `metadata` as in a manifest."""
        body = self.job_body(name, cpu=cpu, pods=pods, **metadata)
        body["spec"]["template"]["metadata"] = {"annotations": annotations_of_pods or {}}
        return self.api.create(body)

    def job_body(self, name: str, *, cpu: str = "1", pods: int = 2, **metadata: Any) -> Json:
        """The manifest of such a Job, not created."""
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(name, metadata),
            "spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec(cpu)}},
        }

    def pod(self, name: str, *, cpu: str = "1", spec: Json | None = None, **metadata: Any) -> Json:
        """Create a Pod that runs until it is deleted."""
        return self.api.create(self.pod_body(name, cpu=cpu, spec=spec, **metadata))

    def pod_body(self, name: str, *, cpu: str = "1", spec: Json | None = None, **metadata: Any) -> Json:
        """The manifest of such a Pod, not created."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self._metadata(name, metadata),
            "spec": {**pod_spec(cpu), **(spec or {})},
        }

    def _metadata(self, name: str, metadata: Json) -> Json:
        return {"name": name, "namespace": self.namespace, "labels": {QUEUE: "main"}, **metadata}

    def path(self, api_version: str, plural: str, name: str | None = None) -> str:
        """The URL path of an object in the tenant's namespace."""
        return resource_path(api_version, plural, name, namespace=self.namespace)

    def patch(self, api_version: str, plural: str, name: str, patch: Json) -> Json:
        """Merge-patch an object in the tenant's namespace."""
        return self.api.patch(self.path(api_version, plural, name), patch)

    def delete(self, api_version: str, plural: str, name: str, **options: Any) -> None:
        """Delete an object in the tenant's namespace."""
        self.api.delete(self.path(api_version, plural, name), **options)

    def end_pods(self) -> None:
        """Let the pods of the namespace that run now end by themselves; pods that wait are left alone."""
        for pod in filter(self.sentry.is_running, self.pods()):
            path = self.path("v1", "pods", pod["metadata"]["name"])
            self.world.api.patch(path, {"metadata": {"annotations": {RUN_FOR: "0s"}}})

    def second_namespace(self) -> Scenario:
        """Another managed namespace with a LocalQueue `main` in the same ClusterQueue."""
        other = Scenario(self.world.api, self.turnstile.installation.control_plane.namespace("other", labels=MANAGED))
        other.local_queue("main", self.world.named("main"))
        self.others.append(other)
        return other

    # ------------------------------------------------------------ questions

    def pods(self) -> list[Json]:
        """All pods of the namespace."""
        return self.world.api.items(self.path("v1", "pods"))

    def pod_runs(self, name: str) -> bool:
        """Whether the Pod of that name is bound and has not ended."""
        return any(each["metadata"]["name"] == name and self.sentry.is_running(each) for each in self.pods())

    @property
    def reserved(self) -> Fraction:
        """CPUs that are reserved in the ClusterQueue, by its status."""
        found = self.world.api.get(resource_path(GROUP, "clusterqueues", self.world.named("main")))
        resources = [each for flavor in found["status"].get("flavorsReservation", ()) for each in flavor["resources"]]
        return sum((_number(each["total"]) for each in resources if each["name"] == "cpu"), Fraction(0))

    def wait_reserved(self, cpus: float) -> None:
        """Wait until the status of the ClusterQueue says that so many CPUs are reserved."""
        self.wait(
            lambda: self.reserved == Fraction(cpus),
            describe=lambda: f"{float(self.reserved):g} CPUs are reserved, not {cpus}",
        )

    def workloads(self) -> list[Json]:
        """All Workloads of the namespace."""
        return self.world.api.items(self.path(GROUP, "workloads"))

    def wait_runs(self, cpus: float, *, timeout: float = 15) -> None:
        """Wait until pods of so many CPUs run."""
        self.wait(
            lambda: self.sentry.runs == Fraction(cpus),
            timeout=timeout,
            describe=lambda: f"{float(self.sentry.runs):g} CPUs run, not {cpus}",
        )

    def wait(self, look: Callable[[], object], *, timeout: float = 10, describe: Callable[[], str]) -> None:
        """Wait for a condition; tells the story of the pods if it does not come true."""
        wait_until(lambda: bool(look()), timeout=timeout, describe=lambda: f"{describe()}\n{self.story()}")

    def story(self) -> str:
        """What happened to the pods, and the Workloads as they are now."""
        lines = list(self.sentry.story)
        for each in self.workloads():
            states = {found["type"]: found["status"] for found in each.get("status", {}).get("conditions", ())}
            lines.append(f"Workload {each['metadata']['name']}: {states}")
        return "\n".join(lines)

    def within_quota(self) -> None:
        """Assert that pods of more than the quota ran at no time, and wait until nothing is reserved that does not run.

        Both hold once the namespace has come to rest, and then an audit of the API server's objects finds nothing.
        """

        def at_rest() -> bool:
            assert self.sentry.most <= QUOTA, f"{float(self.sentry.most):g} CPUs ran of {QUOTA}\n{self.story()}"
            return self.sentry.quiet_for(QUIET_SECONDS) and self.reserved <= self.sentry.runs_or_will

        self.wait(
            at_rest,
            describe=lambda: (
                f"{float(self.reserved):g} CPUs are reserved, {float(self.sentry.runs_or_will):g} are run or will be; "
                f"at rest: {self.sentry.quiet_for(QUIET_SECONDS)}"
            ),
        )
        namespaces = [self.namespace, *(other.namespace for other in self.others)]
        assert_passes(self.world.api, *namespaces, about=f" in\n{self.story()}\n")


@pytest.fixture
def tenant(attacked: Turnstile) -> Iterator[Tenant]:
    """A tenant with `edit` in a fresh managed namespace."""
    with tenant_of(attacked) as made:
        yield made


@pytest.fixture(params=[EDIT, BATCH_USER], ids=["edit", "batch user"])
def submitter(attacked: Turnstile, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A tenant with `edit`, then one who may only submit jobs."""
    with tenant_of(attacked, role=request.param) as made:
        yield made


@contextmanager
def tenant_of(attacked: Turnstile, *, role: str = EDIT, **queue: Any) -> Iterator[Tenant]:
    """A tenant as by the fixture, with that ClusterRole; `queue` is more of the spec of the ClusterQueue."""
    attacked.start()
    cp = attacked.installation.control_plane
    world = Scenario(cp.api, cp.namespace("tenant", labels=MANAGED))
    sentry = Sentry(cp.api, world.namespace)
    world.queue("main", {world.flavor("default"): {"cpu": QUOTA}}, **queue)
    cp.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "eve", "namespace": world.namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
        }
    )
    made = Tenant(cp.api_as("eve"), world, sentry, attacked)
    cp.api.wait_for(
        resource_path(GROUP, "clusterqueues", world.named("main")),
        lambda found: condition(found, "Active").get("status") == "True",
        describe="Active",
    )
    wait_until(
        lambda: may(made, verb="create", group="batch", resource="jobs"),
        timeout=10,
        describe=lambda: "the tenant may not edit the namespace",
    )
    try:
        yield made
    finally:
        sentry.end()
        for other in made.others:
            other.remove()
        world.remove()
        for pod in cp.api.items(resource_path("v1", "pods", namespace=world.namespace)):
            path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=world.namespace)
            cp.api.delete(path, grace_seconds=0)


def default_queue(tenant: Tenant) -> None:
    """Give the namespace a LocalQueue `default` to the same ClusterQueue, and wait until the webhook knows it."""
    tenant.world.local_queue("default", tenant.world.named("main"))

    def known() -> bool:
        made = tenant.api.create(tenant.job_body("probe", labels={}), dry_run=True)
        return QUEUE in made["metadata"].get("labels", {})

    wait_until(known, timeout=10, describe=lambda: "the default queue is not known")


def pod_spec(cpu: str) -> Json:
    """One container that requests so much."""
    resources = {"requests": {"cpu": cpu}}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "registry.example/main:1", "resources": resources}],
    }


def may(tenant: Tenant, **attributes: str) -> bool:
    """Whether the tenant has a right in the namespace; the attributes are those of a SelfSubjectAccessReview."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": tenant.namespace, **attributes}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(tenant.api.request("POST", path, review)["status"]["allowed"])


def _number(quantity: str) -> Fraction:
    return Fraction(quantity[:-1]) / 1000 if quantity.endswith("m") else Fraction(quantity)
