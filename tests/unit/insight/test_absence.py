"""A job without a Workload is told which of six reasons it has, and nothing is concluded from what cannot be read."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.core import Namespace
from turnstile.api.errors import TurnstileError
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.insight.absence import LEASE, Absence, Objects
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.targets import target_of, workload_of
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)
JOB = "/apis/batch/v1/namespaces/team/jobs/train"
MANAGED = {"kueue-managed": "true"}


def job(**labels: str) -> dict[str, Any]:
    """A Job as the API server has it."""
    return {"metadata": {"name": "train", "namespace": "team", "labels": labels}}


def lease(renewed: str = "2026-01-31T08:59:55.000000Z") -> dict[str, Any]:
    """The Lease of a leader."""
    return {"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": renewed}}


def why(
    objects: Mapping[str, Any],
    target: str = "job/train",
    *,
    labels: Mapping[str, str] = MANAGED,
    frameworks: tuple[str, ...] | None = None,
    snapshot: Snapshot | None = None,
) -> str:
    """The reason that is told. Objects that are not given do not exist, those given as `...` may not be read."""
    snapshot = snapshot or Snapshot()
    meta = {"name": "team", "labels": dict(labels)}
    snapshot.put(msgspec.convert({"metadata": meta}, Namespace))

    def look(paths: Iterable[str]) -> Objects:
        return {path: objects.get(path) for path in paths if objects.get(path) is not ...}

    absence = Absence(
        snapshot=snapshot,
        namespace="team",
        fetch=look,
        now=NOW,
        registry=Registry(frameworks),
        options=JobOptions(),
        configured=frameworks is not None,
    )
    with pytest.raises(TurnstileError) as raised:
        workload_of(snapshot, target_of(target), "team", lambda _: None, absence.why)
    return str(raised.value)


def test_no_such_job() -> None:
    """And the namespace that has one of this name."""
    snapshot = Snapshot()
    snapshot.put(b.workload("train", namespace="other"))
    told = why({LEASE: lease()}, snapshot=snapshot)
    assert told == 'There is no Job "train" in namespace team. Did you mean namespace other?'


def test_a_typing_error() -> None:
    """The name that is most like it."""
    snapshot = Snapshot()
    snapshot.put(b.workload("training"))
    assert why({LEASE: lease()}, "trainning", snapshot=snapshot).endswith("Did you mean training?")


def test_its_namespace_is_not_managed() -> None:
    """With the label that the chart selects by."""
    told = why({JOB: job(**{"kueue.x-k8s.io/queue-name": "main"}), LEASE: lease()}, labels={})
    assert "does not manage namespace team" in told
    assert "kubectl label namespace team kueue-managed=true" in told


def test_it_names_no_queue() -> None:
    """And its namespace has none for such jobs."""
    assert "names no queue" in why({JOB: job(), LEASE: lease()})


def test_a_default_queue_is_enough() -> None:
    """Then something else is the reason."""
    snapshot = Snapshot()
    default: LocalQueue = b.local("default", "main")
    snapshot.put(default)
    assert "names no queue" not in why({JOB: job(), LEASE: lease()}, snapshot=snapshot)


def test_its_kind_is_off() -> None:
    """By the configuration that the asker gave."""
    told = why({JOB: job(), LEASE: lease()}, frameworks=("jobset.x-k8s.io/jobset",))
    assert told.startswith("Job train is not queued: its kind is switched off.")


@pytest.mark.parametrize("found", [None, lease("2026-01-31T08:50:00.000000Z")])
def test_nobody_leads(found: dict[str, Any] | None) -> None:
    """There is no Lease, or it is over."""
    queued = job(**{"kueue.x-k8s.io/queue-name": "main"})
    assert "no replica of Turnstile leads" in why({JOB: queued, LEASE: found})


def test_a_lease_that_may_not_be_read_proves_nothing() -> None:
    """A user of a namespace may not read it."""
    told = why({JOB: job(**{"kueue.x-k8s.io/queue-name": "main"}), LEASE: ...})
    assert told.startswith("Job train has no Workload yet.")


def test_a_job_that_may_not_be_read_is_not_said_to_be_absent() -> None:
    """Only that no Workload is for it."""
    assert why({JOB: ..., LEASE: lease()}) == (
        "No Workload is for job/train in namespace team: is it in a managed namespace, with a queue?"
    )


def test_workloads_may_not_be_listed() -> None:
    """Nothing else is concluded."""
    told = why({}, snapshot=Snapshot(hidden={Workload: ""}))
    assert told.startswith("You may not list Workloads in namespace team")


def test_a_name_alone_is_that_of_the_job() -> None:
    """As its owner knows it; the newest of several."""
    snapshot = Snapshot()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "finetune", "uid": "u", "controller": True}
    for number in (1, 2):
        workload = b.workload(f"job-finetune-{number}", second=number)
        snapshot.put(b.changed(workload, metadata={"ownerReferences": [owner]}))
    key = workload_of(snapshot, target_of("finetune"), "team", lambda _: None, lambda *_: "")
    assert key == "team/job-finetune-2"


def test_the_workload_of_a_job_that_grows_is_the_slice_that_waits() -> None:
    """Also one of the same second; not one that is finished, however new."""
    snapshot = Snapshot()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "finetune", "uid": "u", "controller": True}
    growth = {"kueue.x-k8s.io/workload-slice-replacement-for": "team/z"}
    ended = b.with_conditions(b.workload("past", second=2), Finished=("True", "OutOfSync"))
    for workload in (b.workload("z", second=1), b.workload("a", second=1, annotations=growth), ended):
        snapshot.put(b.changed(workload, metadata={"ownerReferences": [owner]}))
    key = workload_of(snapshot, target_of("finetune"), "team", lambda _: None, lambda *_: "")
    assert key == "team/a"
