"""What an entry of `integrations.customKinds` makes of an object."""

from typing import Any

import pytest

from tests.unit.jobs.subjects import CONFIGURED, ENTRY, decode
from tests.unit.jobs.test_contract import NOW, applied
from turnstile.api.config.customkinds import CustomKind
from turnstile.api.errors import PermanentError
from turnstile.jobs.bases.configured import ConfiguredJobs
from turnstile.jobs.integration import NOT_ADMITTED, Outcome
from turnstile.jobs.naming import webhook_path

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c"}]}}


def simulation(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> Any:
    """An object of the entry of subjects.py with one group, unless the spec has others."""
    groups = {"groups": [{"name": "a", "template": TEMPLATE}]}
    body = {"metadata": {"name": "s", **meta}, "spec": {**groups, **(spec or {})}, "status": status or {}}
    return decode(CONFIGURED, body)


def group(name: Any = "a", **fields: Any) -> dict[str, Any]:
    """A spec of one group."""
    return {"groups": [{"name": name, "template": TEMPLATE, **fields}]}


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 2),
        ({"replicas": 3}, 6),
        ({"replicas": 3, "size": 4}, 12),
        ({"replicas": 3, "size": 4, "limit": 1}, 3),
        ({"replicas": 0}, 0),
        ({"replicas": None, "size": 1}, 1),
    ],
)
def test_a_count_is_the_product_of_its_factors(fields: dict[str, Any], count: int) -> None:
    """Each with its default, and never above its limit."""
    (pod_set,) = CONFIGURED.pod_sets(simulation(group(**fields)))
    assert (pod_set.name, pod_set.count) == ("a", count)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"groups": []}, "spec.leader.template: Required value: at least one pod template is needed"),
        ({"groups": {}}, "spec.groups: Invalid value: must be a list"),
        ({"groups": [{"name": "a"}]}, "spec.groups[0].template: Required value: a pod template is needed"),
        ({"groups": [3]}, "spec.groups[0].template: Required value: a pod template is needed"),
        (group(template=[]), "spec.groups[0].template: Invalid value: is no pod template: "),
        (group(name="A b"), 'spec.groups[0].name: Invalid value: "A b": cannot name a pod set: '),
        (group(name=None), 'spec.groups[0].name: Invalid value: "": cannot name a pod set: '),
        (group(replicas=-1), "spec.groups[0].replicas: Invalid value: -1: must be a whole number from 0 to 2147483647"),
        (group(replicas="2"), 'spec.groups[0].replicas: Invalid value: "2": must be a whole number'),
        (group(size=1.5), "spec.groups[0].size: Invalid value: 1.5: must be a whole number"),
        (group(replicas=2**20, size=2**20), "spec.groups[0].template: Invalid value: 1099511627776: has more pods"),
        (
            {"groups": [{"name": "a", "template": TEMPLATE}, {"name": "A", "template": TEMPLATE}]},
            'spec.groups[1].template: Invalid value: "A": another pod set has this name',
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_can_be_suspended(spec: dict[str, Any], error: str) -> None:
    """The webhook names the field; a decision about its pods is impossible, but it can be stopped."""
    job = simulation(spec, resourceVersion="1")
    (found,) = CONFIGURED.create_errors(job)
    assert str(found).startswith(error)
    with pytest.raises(PermanentError):
        CONFIGURED.pod_sets(job)
    CONFIGURED.significant(job)
    CONFIGURED.pods_ready(job)
    assert not CONFIGURED.carries_admission(job)
    (step,) = CONFIGURED.stop(job, [], reason=NOT_ADMITTED, message="", now=NOW).steps
    body = {"metadata": {"resourceVersion": "1", "generation": 1}, "spec": spec}
    assert applied(body, step)["spec"]["run"] == {"suspend": True}  # type: ignore[arg-type]


def test_nulls_of_a_template_are_absent_fields() -> None:
    """A CRD that keeps unknown fields keeps them, and clients in Go write them."""
    template = {
        "metadata": {"labels": None, "creationTimestamp": None},
        "spec": {**TEMPLATE["spec"], "nodeSelector": None},
    }
    job = simulation(group(template=template))
    assert not CONFIGURED.create_errors(job)
    (pod_set,) = CONFIGURED.pod_sets(job)
    assert pod_set.body(topologies=True)["template"]["spec"] == TEMPLATE["spec"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({}, None),
        ({"conditions": [{"type": "Complete", "status": "False", "reason": "Done"}]}, None),
        ({"conditions": [{"type": "Complete", "status": "True", "reason": "Why"}]}, None),
        (
            {
                "conditions": [{"type": "Complete", "status": "True", "reason": "Done", "message": "yes"}],
                "message": "no",
            },
            Outcome(success=True, message="yes"),
        ),
        ({"phase": "Failed", "message": "no"}, Outcome(success=False, message="no")),
        ({"phase": "Failed", "message": 3}, Outcome(success=False)),
        ({"phase": "Other", "conditions": "none"}, None),
    ],
)
def test_the_end_is_known_by_facts(status: dict[str, Any], outcome: Outcome | None) -> None:
    """A condition with one of the reasons, or a field with one of the values."""
    assert CONFIGURED.finished(simulation(status=status)) == outcome


@pytest.mark.parametrize(
    ("status", "active"),
    [
        ({"observedGeneration": 2}, False),
        ({"observedGeneration": 2, "running": 1}, True),
        ({"observedGeneration": 2, "stopping": 1, "running": 0}, True),
        ({"observedGeneration": 2, "phase": "Busy"}, True),
        ({"observedGeneration": 1}, True),
        ({}, True),
        ({"observedGeneration": 2, "running": "many"}, False),
    ],
)
def test_pods_run_by_counts_and_facts_or_while_the_status_is_old(status: dict[str, Any], active: bool) -> None:
    """An operator that has not seen the stop may have pods that its status does not tell of."""
    assert CONFIGURED.active(simulation({"run": {"suspend": True}}, status, generation=2)) is active


@pytest.mark.parametrize(("suspended", "active"), [(True, False), (False, True)])
def test_a_new_object_that_was_held_has_no_pods(suspended: bool, active: bool) -> None:
    """Though nobody has looked at it yet."""
    assert CONFIGURED.active(simulation({"run": {"suspend": suspended}}, generation=1)) is active


def test_what_else_an_entry_names() -> None:
    """Its PriorityClass, and pods that need no quota any more."""
    job = simulation({"priorityClassName": "high"}, {"leadersDone": 1})
    assert CONFIGURED.priority_class_name(job) == "high"
    assert CONFIGURED.reclaimable(job) == {"leader": 1}
    assert CONFIGURED.priority_class_name(simulation()) is None


def test_only_true_suspends() -> None:
    """An object is reviewed before it is held against its schema."""
    for value in (None, "true", 1, {}, False):
        assert not CONFIGURED.suspended(simulation({"run": {"suspend": value}}))
    assert CONFIGURED.suspended(simulation({"run": {"suspend": True}}))
    assert not CONFIGURED.suspended(simulation({"run": 3}))


def test_two_entries_are_two_kinds() -> None:
    """With stores and paths of their own."""
    other = ConfiguredJobs(CustomKind.model_validate({**ENTRY.plain(), "kind": "Trial", "plural": "trials"}))
    assert other.kind is not CONFIGURED.kind
    assert (other.kind.PLURAL, CONFIGURED.kind.PLURAL) == ("trials", "simulations")
    assert webhook_path(other.kind) == "example-com-v1-trial"
