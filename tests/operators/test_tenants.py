"""What a tenant tries alike with jobs of every kind, with its real operator: to evade a default queue, to hold quota by
pods that are none of the job's, and to stay for as long as it likes when it is preempted.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from testbed import ApiError, ControlPlane
from testbed.client import resource_path, wait_until
from testbed.components import KILLED_IN_TIME, STOP_FOR
from tests.cluster.scenario import QUEUE, Scenario, job
from tests.operators.rows import ROWS, Row
from tests.operators.tenants import at_rest, tenant_in
from tests.operators.trial import COLLECTED, Trial, trial_of
from tests.turnstile import Turnstile

PATIENCE: Final = 4
YEAR: Final = 31536000
STUBBORN: Final = {"metadata": {"annotations": {STOP_FOR: "2h", KILLED_IN_TIME: "true"}}}
"""Let a pod end when its kubelet kills it, and not before."""
NOBODY: Final = {
    "apiVersion": "workload.codeflare.dev/v1beta2",
    "kind": "AppWrapper",
    "name": "nobody",
    "uid": "1-2-3",
    "controller": True,
}
RESUMED: Final = ({"suspend": False}, {"runPolicy": {"suspend": False}}, {"status": None})
"""Patches of `spec`, one of which resumes a job."""

pytestmark = [pytest.mark.usefixtures("nodes"), pytest.mark.parametrize("row", [row.case for row in ROWS])]


@pytest.fixture(scope="module")
def patient(installation: Turnstile) -> Iterator[Turnstile]:
    """Preemptors have four seconds of patience."""
    installation.restart("--victim-patience", str(PATIENCE))
    yield installation
    installation.stop()


@pytest.fixture
def trial(control_plane: ControlPlane, patient: Turnstile, row: Row) -> Iterator[Trial]:
    """A queue with quota for one job of the row, in an empty namespace."""
    with trial_of(row, control_plane) as made:
        yield made


@pytest.fixture
def tenant(control_plane: ControlPlane, trial: Trial) -> Scenario:
    """The namespace as a tenant may change it."""
    return tenant_in(trial, control_plane)


def test_an_owner_that_is_not_there_evades_no_default_queue(trial: Trial, tenant: Scenario) -> None:
    """Name a controller that does not exist in a job without a queue, while another job has all quota; then take the
    reference away and resume the job: it does not run."""
    trial.scenario.local_queue("default", trial.scenario.named("main"))
    probe = job("probe", namespace=trial.scenario.namespace, queue=None)
    wait_until(
        lambda: QUEUE in tenant.api.create(probe, dry_run=True)["metadata"].get("labels", {}),
        timeout=10,
        describe=lambda: "the default queue is not known",
    )
    trial.create("job")
    trial.wait_runs("job")
    path = trial.row.path(trial.scenario, "evader")
    with suppress(ApiError):  # refused, or deleted by the garbage collector
        for each in trial.row.objects(tenant, "evader", ""):
            if each["kind"] == trial.row.kind:
                each["metadata"]["ownerReferences"] = [NOBODY]
            tenant.create(each)
        for spec in RESUMED:
            with suppress(ApiError):
                tenant.api.patch(path, {"metadata": {"ownerReferences": None}, "spec": spec})
    trial.wait(lambda: at_rest(trial), timeout=30, describe=lambda: "not at rest")


def test_a_pod_that_is_none_of_its_own_holds_no_quota(trial: Trial, tenant: Scenario) -> None:
    """Create a pod with all labels and annotations of a job's pod, which asks for nothing; when the job is deleted its
    quota is free."""
    trial.create("job")
    trial.wait_runs("job")
    meta = trial.row.running(trial.scenario, "job")[0]["metadata"]
    kept = {key: meta[key] for key in ("labels", "annotations", "namespace") if key in meta}
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/main:1"}]}
    with suppress(ApiError):  # the attempt may be refused
        tenant.create({"apiVersion": "v1", "kind": "Pod", "metadata": {**kept, "name": "stranger"}, "spec": spec})
    trial.delete("job")
    trial.wait(lambda: trial.reserved == 0, timeout=COLLECTED, describe=lambda: f"{trial.reserved} CPUs are reserved")


def test_a_year_to_stop_is_cut(trial: Trial) -> None:
    """Give all pods of a job a year to stop, and have it preempted: the preemptor runs after its patience."""
    low, high = trial.scenario.priority_class("low", 10), trial.scenario.priority_class("high", 100)
    objects = trial.row.objects(trial.scenario, "victim", "main", priority=low)
    for each in objects:
        _with_a_year(each)
        trial.scenario.create(each)
    trial.row.begin(trial.scenario, "victim")
    trial.created["victim"] = objects
    trial.wait_runs("victim")
    for pod in trial.row.running(trial.scenario, "victim"):
        path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=trial.scenario.namespace)
        trial.scenario.api.patch(path, STUBBORN)
    trial.create("urgent", priority=high)
    trial.wait_runs("urgent", timeout=90)


def _with_a_year(value: Any) -> None:
    if isinstance(value, dict):
        if "containers" in value:
            value["terminationGracePeriodSeconds"] = YEAR
        for part in value.values():
            _with_a_year(part)
    elif isinstance(value, list):
        for part in value:
            _with_a_year(part)
