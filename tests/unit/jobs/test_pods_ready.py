"""Whether the pods of a job are ready (`waitForPodsReady`), for every kind, by what its real controller writes.

Each status here is what the kind's controller writes at that moment, by its source. A table knows nothing of how an
integration reads it. The table is in the samples of the kinds.
"""

import json
from datetime import UTC, datetime
from typing import Final

import pytest

from tests.unit.jobs.samples import SAMPLES, Moment
from tests.unit.jobs.samples.jobset import JOB_SET
from tests.unit.jobs.samples.sample import NAMED_TEMPLATE, true
from tests.unit.jobs.subjects import REGISTRY, Json, decode
from turnstile.api.core import Pod
from turnstile.jobs.kinds.pod.group import PodGroups
from turnstile.jobs.servingset import ServingSet

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


TABLE: Final = {each: found.moments for each, found in SAMPLES.items() if found.moments}
OF_A_JOB_SET: Final = "trainer.kubeflow.org/trainjob"


@pytest.mark.parametrize(
    ("framework", "moment"),
    [pytest.param(each, found, id=f"{each}-{found.words}") for each in TABLE for found in TABLE[each]],
)
def test_it_is_ready_when_its_controller_says_so_of_all_pods(framework: str, moment: Moment) -> None:
    """A pod that has succeeded is ready; a pod that is not made yet, or was lost, is not."""
    integration = REGISTRY.by_framework(framework)
    assert integration is not None
    meta = {"name": "train", "namespace": "ns", "uid": "u"}
    job = decode(integration, {"metadata": meta, "spec": moment.spec, "status": moment.status})
    assert integration.pods_ready(job) is moment.ready


@pytest.mark.parametrize("moment", JOB_SET, ids=[each.words for each in JOB_SET])
def test_a_trainjob_is_ready_when_its_job_set_is(moment: Moment) -> None:
    """Trainer copies these numbers to the TrainJob too, without the order of its stages."""
    integration = REGISTRY.by_framework(OF_A_JOB_SET)
    assert integration is not None
    rendering = integration.rendering
    assert rendering is not None
    meta = {"name": "train", "namespace": "ns", "uid": "u"}
    job = integration.kind.decoder()(_encoded({"metadata": meta, "spec": {}}))
    assert not integration.pods_ready(job)
    made = rendering.templates_in.decoder()(_encoded({"metadata": meta, "spec": moment.spec, "status": moment.status}))
    assert integration.pods_ready(rendering.joined(job, made)) is moment.ready


class TestGroup:
    """The pods of a group: those that a user creates, and the gangs of a StatefulSet or a LeaderWorkerSet."""

    @pytest.mark.parametrize(
        ("pods", "ready"),
        [
            (["Ready", "Ready"], False),
            (["Ready", "Ready", "Pending"], False),
            (["Ready", "Ready", "Ready"], True),
            (["Ready", "Ready", "Succeeded"], True),
            (["Ready", "Ready", "Failed"], False),
            (["Ready", "Ready", "Failed", "Pending"], False),
            (["Ready", "Ready", "Failed", "Ready"], True),
            (["Ready", "Ready", "gated"], False),
        ],
    )
    def test_it_is_ready_when_as_many_pods_as_it_announces_are(self, pods: list[str], ready: bool) -> None:
        """Also if a pod of it has failed and was replaced, and if some have not been created yet."""
        integration = PodGroups()
        found = integration.compose("ring", [_member(n, stage) for n, stage in enumerate(pods)], None, now=NOW)
        assert integration.pods_ready(found) is ready


def _encoded(body: Json) -> bytes:
    return json.dumps(body).encode()


def _member(number: int, stage: str) -> Pod:
    status: Json = {
        "phase": stage if stage in ("Succeeded", "Failed") else "Running" if stage == "Ready" else "Pending"
    }
    if stage == "Ready":
        status |= true("Ready")
    meta = {
        "name": f"p{number}",
        "namespace": "ns",
        "uid": f"u{number}",
        "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "ring"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
        "finalizers": ["kueue.x-k8s.io/managed"],
    }
    gates = [{"name": "kueue.x-k8s.io/admission"}] if stage == "gated" else []
    found: Pod = Pod.decoder()(
        _encoded({"metadata": meta, "spec": {**NAMED_TEMPLATE["spec"], "schedulingGates": gates}, "status": status})
    )
    return found


def test_every_kind_is_in_the_table() -> None:
    """A kind whose pods are gated is ready by its pods, alone or as groups; Kueue has the same."""
    queued = {each.framework for each in REGISTRY.watched}
    by_pods = {each.framework for each in REGISTRY.watched if isinstance(each, ServingSet)}
    assert by_pods == {"statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"}
    assert TABLE.keys() | {OF_A_JOB_SET} | by_pods == queued
    for found in TABLE.values():
        assert {each.ready for each in found} == {True, False}
