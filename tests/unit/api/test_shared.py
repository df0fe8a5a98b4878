"""What many Workloads have in common is held once."""

import msgspec

from turnstile.api.shared import LONGEST, Shared
from turnstile.api.workload import Workload, decode


def workload(name: str, *, cpu: str = "1", queue: str = "team") -> Workload:
    """A Workload of one pod set, from its JSON."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    template = {"metadata": {"labels": {"job": name}}, "spec": {"containers": containers}}
    waits = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "no quota left"}
    body = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"conditions": [{**waits, "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
    }
    return decode(msgspec.json.encode(body))


def test_equal_pod_specs_are_one() -> None:
    """Also in Workloads whose templates differ in their labels; an unequal one stays apart."""
    first, second, other = workload("a"), workload("b"), workload("c", cpu="2")
    one, two, three = (each.spec.pod_sets[0].template for each in (first, second, other))
    assert one.spec is two.spec
    assert one.metadata != two.metadata
    assert three.spec != one.spec
    assert three.spec.containers[0].resources is not None
    assert three.spec.containers[0].resources.requests == {"cpu": "2"}


def test_texts_are_one() -> None:
    """Names of queues and namespaces, and what conditions say."""
    first, second = workload("a"), workload("b")
    assert first.metadata.namespace is second.metadata.namespace
    assert first.spec.queue_name is second.spec.queue_name
    (one,), (two,) = first.status.conditions, second.status.conditions
    assert one.message is two.message
    assert one.reason is two.reason


def test_absent_lists_are_one() -> None:
    """And nobody can add to them."""
    first, second = workload("a"), workload("b")
    assert first.metadata.finalizers is second.metadata.finalizers
    assert first.status.admission_checks == ()


class TestShared:
    """What is remembered is bounded."""

    def test_number(self) -> None:
        """Past the limit all is forgotten; a value given again is the first of a new set."""
        shared = Shared(limit=10)
        kept = [shared.same(f"value {number}") for number in range(1000)]
        assert kept == [f"value {number}" for number in range(1000)]
        assert len(shared) <= 10

    def test_length(self) -> None:
        """A long value is not remembered."""
        shared = Shared()
        assert shared.same("x" * (LONGEST + 1)) == "x" * (LONGEST + 1)
        assert len(shared) == 0
