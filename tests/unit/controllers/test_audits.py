"""When the leader reports what an audit finds, and what it has reconciled."""

import asyncio

import pytest

from tests.unit.controllers import worlds
from tests.unit.engine import builders as b
from turnstile.api.core import Job, Pod
from turnstile.controllers import audit
from turnstile.controllers.audit import Auditor
from turnstile.controllers.runtime.actions import Emit
from turnstile.controllers.runtime.controller import Target
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine import Options

pytestmark = pytest.mark.asyncio

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job-uid", "controller": True}


class Audits:
    """An auditor of a cluster, and what it did."""

    def __init__(self, cluster: ClusterView, *, interval: float = 30.0) -> None:
        self.cluster = cluster
        self.events: list[Emit] = []
        self.requeued: list[Target] = []
        self.auditor = Auditor(
            cluster, Options(), emit=self.events.append, requeue=self.requeued.append, interval=interval
        )

    async def run(self, times: int) -> None:
        """Audit so often."""
        for _ in range(times):
            await self.auditor.audit()

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """Figures that are not 0."""
        return {key: count for key, count in self.auditor.counts().items() if count}


def pod(name: str = "behind", **metadata: object) -> Pod:
    """A pod on a node that names a queue and no Workload."""
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    return worlds.decode(
        Pod,
        {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels, **metadata},
            "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"},
        },
    )


async def test_a_finding_counts_once_two_audits_have_it() -> None:
    """Watches may have lagged in the first."""
    audits = Audits(worlds.world(pod(), worlds.local_queue(), worlds.cluster_queue()))
    await audits.run(1)
    assert (audits.events, audits.counts) == ([], {})
    await audits.run(1)
    (event,) = audits.events
    assert (event.regarding.metadata.name, event.type, event.reason) == ("behind", "Warning", "NotAdmitted")
    assert event.note == "Pod ns/behind runs on node n, but no admitted Workload is charged for it"
    assert audits.counts["NotAdmitted", "cq"] == 1


async def test_a_finding_is_reported_once_until_it_ends() -> None:
    """And again when it returns."""
    audits = Audits(worlds.world(pod(), worlds.local_queue(), worlds.cluster_queue()))
    await audits.run(5)
    assert len(audits.events) == 1
    audits.cluster.pods.delete("ns/behind")
    await audits.run(1)
    assert audits.counts == {}
    returned = pod()
    returned.metadata.resource_version = "99"
    audits.cluster.pods.observe(returned)
    await audits.run(3)
    assert len(audits.events) == 2


async def test_what_a_finding_concerns_is_reconciled_while_it_stands() -> None:
    """The pod and its Job; for quota that nothing uses the Job of the Workload, or the Workload without one."""
    job = worlds.decode(Job, {"metadata": {"name": "job", "namespace": "ns", "uid": "job-uid"}})
    audits = Audits(worlds.world(pod(ownerReferences=[JOB]), job, worlds.cluster_queue()))
    await audits.run(1)
    assert audits.requeued == []
    await audits.run(2)
    assert audits.requeued == [("pod", "pod:ns/behind"), ("batch/job", "batch/job:ns/job")] * 2
    admitted = (worlds.RESERVED, worlds.ADMITTED)
    for owners, target in (([JOB], ("batch/job", "batch/job:ns/job")), ([], ("Workload", "ns/wl"))):
        held = worlds.workload(*admitted, admission=True, ownerReferences=owners)
        audits = Audits(worlds.world(held, worlds.cluster_queue(resourceGroups=b.quotas({"f": {"cpu": 1}}))))
        await audits.run(2)
        assert [event.reason for event in audits.events] == ["HeldUnused"]
        assert audits.requeued == [target]


async def test_nothing_is_audited_before_everything_was_read() -> None:
    """A missing pod or job may be in the cluster."""
    audits = Audits(worlds.world(pod()))
    audits.cluster.pods.doubt()
    await audits.run(3)
    assert (audits.auditor.audits, audits.counts) == (0, {})
    audits.cluster.pods.believe()
    await audits.run(2)
    assert (audits.auditor.audits, audits.counts) == (2, {("NotAdmitted", ""): 1})


async def test_many_findings_are_reported_over_several_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted at once."""
    monkeypatch.setattr(audit, "REPORTS", 2)
    audits = Audits(worlds.world(*(pod(f"p{number}") for number in range(5))))
    reported = []
    for _ in range(5):
        await audits.run(1)
        reported.append(len(audits.events))
    assert reported == [0, 2, 4, 5, 5]
    assert audits.counts == {("NotAdmitted", ""): 5}


async def test_an_interval_of_zero_switches_audits_off() -> None:
    """The task ends at once."""
    audits = Audits(worlds.world(pod()), interval=0)
    await asyncio.wait_for(audits.auditor.run(), 60)
    assert audits.auditor.audits == 0
