"""A null in a pod template means an absent field, and what is no template is refused with its place."""

import json
from typing import Any

import msgspec
import pytest

from turnstile.api.workload import Workload, decode
from turnstile.webhooks.handlers import checking
from turnstile.webhooks.review import Answer, GroupVersionKind, Request


def workload(**spec: Any) -> bytes:
    """A Workload whose only template says this."""
    template = {"spec": {"containers": [{"name": "c"}], **spec}}
    return json.dumps({"spec": {"podSets": [{"name": "main", "count": 1, "template": template}]}}).encode()


def reviewed(data: bytes) -> Answer:
    """What a webhook of Workloads without rules answers."""
    kind = GroupVersionKind(group="kueue.x-k8s.io", version="v1beta2", kind="Workload")
    request = Request(uid="u", kind=kind, operation="CREATE", object=msgspec.Raw(data))
    return checking(Workload, lambda *_: [])(request)


NULLS: list[dict[str, Any]] = [
    {"tolerations": None},
    {"nodeSelector": None, "initContainers": None},
    {"containers": [{"name": "c", "resources": None, "ports": None}]},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}}},
]


@pytest.mark.parametrize("spec", NULLS, ids=lambda spec: next(iter(spec)))
def test_null_is_absent(spec: dict[str, Any]) -> None:
    """It decodes as if the field was not there, for caches and webhooks alike, and to the same digest."""
    (pod_set,) = decode(workload(**spec)).spec.pod_sets
    (plain,) = decode(workload()).spec.pod_sets
    assert (pod_set.template.spec.tolerations, pod_set.template.spec.node_selector) == ((), {})
    assert pod_set.containers_digest == plain.containers_digest
    assert not reviewed(workload(**spec)).code


@pytest.mark.parametrize("wrong", ["none", 5, [None, "x"], {"a": 1}])
def test_wrong_type(wrong: Any) -> None:
    """A field of the wrong type is denied with a sentence that names it."""
    answer = reviewed(workload(tolerations=wrong))
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith("Workload: Expected ")
    assert "at `$.spec.podSets[0].template.spec.tolerations" in answer.message


def test_half_a_character() -> None:
    """A text that is none (half of a surrogate pair) is refused, not a failure of ours."""
    with pytest.raises(msgspec.DecodeError):
        decode(workload(hostname="x").replace(b'"x"', b'"\\ud800"'))


def test_too_deep() -> None:
    """Nor is one that is nested without end."""
    deep = b"[" * 2000 + b"null" + b"]" * 2000
    assert reviewed(workload(tolerations=None).replace(b"null", deep)).code == 400
