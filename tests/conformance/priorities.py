"""Priorities of jobs: the class that they or their pods name, or the default."""

import json
from typing import Any

import msgspec

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from turnstile.api.core import PriorityClass
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.workload import PriorityClasses, PriorityClassMissing, priority_of

Json = Any


def _by_name(kind: type[Any], listed: Json) -> dict[str, Any]:
    items = (listed or {}).get("items") or ()
    return {item["metadata"]["name"]: world.load(kind, item) for item in items}


def of_a_class(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Value and class of a job's priority."""
    body = case.body.get("case") or {}
    if "wantPriorityClassValue" not in body:
        return None
    classes = PriorityClasses(
        _by_name(WorkloadPriorityClass, body.get("workloadPriorityClassList")),
        _by_name(PriorityClass, body.get("priorityClassList")),
    )
    label, name = body.get("workloadPriorityClassName"), body.get("priorityClassName")
    labels = {"kueue.x-k8s.io/priority-class": label} if label else {}
    pods = {"spec": {"containers": [], "priorityClassName": name or ""}}
    integration = BatchJob()
    body_of_job = {"metadata": {"name": "job", "labels": labels}, "spec": {"template": pods}}
    job = msgspec.json.decode(json.dumps(body_of_job), type=integration.kind, strict=False)
    try:
        found = priority_of(integration, job, classes)
    except PriorityClassMissing:
        return differs("missing", bool(body.get("wantErr")), True)
    ref = found.ref and {"group": found.ref.group, "kind": found.ref.kind, "name": found.ref.name}
    return [
        *differs("missing", bool(body.get("wantErr")), False),
        *differs("value", body["wantPriorityClassValue"], found.value),
        *differs("class", body.get("wantPriorityClassRef") or None, ref),
    ]


def default_exists(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether there is a class that jobs get which name none."""
    from turnstile.process.views import WebhookCaches  # here, so that the other tables do not need the whole program

    body = case.body["case"]
    view = WebhookCaches.__new__(WebhookCaches)
    view._priority_classes = _by_name(WorkloadPriorityClass, body.get("workloadPriorityClassList"))  # type: ignore[assignment]
    return differs("default", body["wantExist"], view.default_priority_class())
