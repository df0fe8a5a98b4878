"""The webhook of Deployments counts the revisions of the template, for those that decide whose quota a pod may take."""

import copy
import json
from typing import Any

import jsonpatch
import msgspec
import pytest

from tests.unit.webhooks.reviews import Cluster
from turnstile.api import names, rollout
from turnstile.jobs.kinds.deployment import Deployments
from turnstile.webhooks.jobreview import mutating
from turnstile.webhooks.review import GroupVersionKind, Request

Json = dict[str, Any]


def deployment(*, image: str = "web:1", replicas: int = 3, stamp: str = "", **spec: Any) -> Json:
    """A queued Deployment as the API server has it after its webhook."""
    annotations = {names.POD_SUSPENDING_PARENT: "deployment", **({rollout.TEMPLATE: stamp} if stamp else {})}
    labels = {"app": "web", names.MANAGED_LABEL: "true", names.QUEUE_LABEL: "main"}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [{"image": image}]}}
    metadata = {"name": "web", "namespace": "team-a", "labels": {names.QUEUE_LABEL: "main"}}
    body = {"replicas": replicas, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": body}


def updated(old: Json, new: Json) -> Json:
    """The changed object after the webhook."""
    request = Request(
        uid="review",
        kind=GroupVersionKind(group="apps", version="v1", kind="Deployment"),
        operation="UPDATE",
        namespace="team-a",
        object=msgspec.Raw(json.dumps(new).encode()),
        old_object=msgspec.Raw(json.dumps(old).encode()),
    )
    answer = mutating(Deployments(), Cluster())(request)
    assert not answer.message
    patched: Json = (
        jsonpatch.apply_patch(copy.deepcopy(new), json.loads(answer.patch.encode())) if answer.patch else new
    )
    return patched


def stamp_of(body: Json) -> str | None:
    """The revision in the template."""
    found: str | None = body["spec"]["template"]["metadata"]["annotations"].get(rollout.TEMPLATE)
    return found


@pytest.mark.parametrize(
    ("replicas", "strategy", "stamp"),
    [
        (3, {}, "1:replaces"),
        (4, {}, "1"),
        (4, {"rollingUpdate": {"maxUnavailable": 0}}, "1:replaces"),
        (1, {"rollingUpdate": {"maxUnavailable": 1}}, "1"),
        (1, {"type": "Recreate"}, "1"),
    ],
)
def test_another_template_is_another_revision(replicas: int, strategy: Json, stamp: str) -> None:
    """A pod of it replaces an old one only if the rollout may make no pod unavailable."""
    old = deployment(replicas=replicas, strategy=strategy)
    new = deployment(image="web:2", replicas=replicas, strategy=strategy)
    assert stamp_of(updated(old, new)) == stamp


def test_the_same_template_is_the_same_revision() -> None:
    """Also for a client that writes the Deployment without what the webhook has added."""
    old = deployment(stamp="2:replaces")
    assert stamp_of(updated(old, deployment(stamp="2:replaces", replicas=9))) == "2:replaces"
    bare = deployment(replicas=9)
    bare["spec"]["template"]["metadata"] = {"labels": {"app": "web"}}
    assert stamp_of(updated(old, bare)) == "2:replaces"
    assert stamp_of(updated(deployment(), deployment(replicas=9))) is None


def test_going_back_is_a_revision_too() -> None:
    """The template of an earlier revision carries its number, which is counted on from the one before."""
    old, back = deployment(image="web:2", stamp="4"), deployment(image="web:1", stamp="3", replicas=4)
    once = updated(old, back)
    assert stamp_of(once) == "5"
    assert updated(old, once) == once
