"""No loop of a webhook or a decision is bounded by a number that an object states.

Every integer that an object of any kind states, also as text, is made as large as the API server lets it be: one at a
time and all together, at creation and by a change, which is what a `scale` subresource does too.
"""

import contextlib
import copy
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from msgspec import inspect as mi

from tests.unit.controllers.job_cluster import TEMPLATE, Refused
from tests.unit.controllers.job_cluster import Cluster as Jobs
from tests.unit.jobs.subjects import RAW, REGISTRY, REPLICA_TYPES, WORDS
from tests.unit.webhooks.reviews import Cluster, Json, owned_by, request
from tests.unit.webhooks.test_any_json import seeds
from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Create, Delete, Patch, ReconcileResult
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.naming import webhook_path
from turnstile.webhooks.routes import routes

CPU_SECONDS: Final = 0.05
BYTES: Final = 10 << 20
WRITES: Final = 250
"""Most writes of one decision."""
VALUES: Final = (2**31 - 1, 0, -1)
TEXTS: Final = ("9" * 5000, "1e1000", "-" + "9" * 5000, "\u0663\u0663", "\u00b2", "1_000", "")
"""Numbers that Python refuses to read, or reads where Go does not."""
PATHS: Final = routes(Cluster(registry=REGISTRY))
KINDS: Final = [each.framework for each in REGISTRY.enabled]
Place = tuple[Any, ...]


def everything(info: mi.Type, name: str, raw: Json) -> Any:
    """A value of a type with all its fields."""
    match info:
        case mi.UnionType():
            return everything(next(each for each in info.types if not isinstance(each, mi.NoneType)), name, raw)
        case mi.BoolType():
            return False
        case mi.IntType() | mi.FloatType():
            return 2
        case mi.StrType():
            return WORDS.get(name, ("2",))[0]
        case mi.RawType():
            return everything(mi.type_info(RAW[name]), name, raw) if name in RAW else copy.deepcopy(raw)
        case mi.DictType() if isinstance(info.value_type, mi.StructType):
            return {key: everything(info.value_type, name, raw) for key in REPLICA_TYPES[:2]}
        case mi.DictType():
            return {}
        case mi.ListType():
            return [everything(info.item_type, name, raw)]
        case mi.StructType():
            return {each.encode_name: everything(each.type, each.encode_name, raw) for each in info.fields}
    return None


def overlaid(below: Any, above: Any) -> Any:
    """A JSON value with all of another one laid over it."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {key: overlaid(below.get(key), above.get(key)) for key in {**below, **above}}
    if isinstance(below, list) and isinstance(above, list) and below and above:
        return [overlaid(below[0], each) for each in above]
    return copy.deepcopy(below if above is None else above)


def subjects(integration: Integration[Any]) -> list[Json]:
    """Objects of a kind: a rich one as users write it, and that one with all fields that are read."""
    kind = integration.kind
    seed = seeds()[kind.KIND.lower()]
    raw = TEMPLATE["spec"] if kind.KIND == "Pod" else TEMPLATE
    info = mi.type_info(kind)
    assert isinstance(info, mi.StructType)
    fields = {each.encode_name: each.type for each in info.fields if each.encode_name != "metadata"}
    full = {name: everything(part, name, raw) for name, part in fields.items() if name not in ("apiVersion", "kind")}
    labels = {names.QUEUE_LABEL: "main", names.MAX_EXEC_TIME_LABEL: "5"}
    group = {**labels, names.POD_GROUP_NAME: "g"}
    meta = {"name": "x", "namespace": "team", "uid": "uid-x", "labels": labels, "annotations": _numbers_in_metadata()}
    alone = {"apiVersion": seed["apiVersion"], "kind": kind.KIND}
    found = [{**alone, **seed, "metadata": meta}, {**alone, **overlaid(full, seed), "metadata": meta}]
    if integration.groups is not None:
        found.append({**found[0], "metadata": {**meta, "labels": group}})
    for each in found:
        each.get("status", {}).pop("conditions", None)
    return found


def _numbers_in_metadata() -> Json:
    return {
        names.JOB_MIN_PARALLELISM: "1",
        names.POD_GROUP_TOTAL_COUNT: "2",
        "kueue.x-k8s.io/podset-slice-size": "1",
        "kueue.konflux-ci.dev/requests-pods": "2",
    }


def numbers(value: Any, path: Place = ()) -> Iterator[Place]:
    """The places of integers, and of texts that are one."""
    if value.isdecimal() if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool):
        yield path
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if path != ("metadata",) or key in ("labels", "annotations"):
                yield from numbers(part, (*path, key))


def with_number(body: Json, places: list[Place], number: int) -> Json:
    """The object with that number at these places."""
    body = copy.deepcopy(body)
    for *parents, last in places:
        inner: Any = body
        for each in parents:
            inner = inner[each]
        inner[last] = str(number) if isinstance(inner[last], str) else number
    return body


def with_text(body: Json, places: list[Place], text: str) -> Json:
    """The object with that text at these places, which have a text now."""
    body = copy.deepcopy(body)
    for *parents, last in places:
        inner: Any = body
        for each in parents:
            inner = inner[each]
        inner[last] = text
    return body


def texts(body: Json) -> Iterator[tuple[str, Json]]:
    """The object with each number that it states as a text spelled as no number should be, and with all of them."""
    places = [each for each in numbers(body) if isinstance(at(body, each), str)]
    for each in places:
        yield f"{each}={TEXTS[0][:9]}", with_text(body, [each], TEXTS[0])
    for text in TEXTS:
        yield f"all={text[:9]}", with_text(body, places, text)


def at(body: Any, place: Place) -> Any:
    """The value at a place."""
    for each in place:
        body = body[each]
    return body


def variants(body: Json) -> Iterator[tuple[str, Json]]:
    """The object with each of its integers as large as can be, and with all of them at their extremes."""
    places = list(numbers(body))
    for each in places:
        yield f"{'.'.join(map(str, each))}={VALUES[0]}", with_number(body, [each], VALUES[0])
    for value in VALUES:
        yield f"all={value}", with_number(body, places, value)


def held_to(what: str, call: Callable[[], Any]) -> Any:
    """What a call returns; it takes 50 ms of CPU and 10 MiB at most. No garbage is collected meanwhile."""
    gc.disable()
    try:
        began = time.thread_time()
        call()
        took = time.thread_time() - began
    finally:
        gc.enable()
    assert took < CPU_SECONDS, f"{what}: {took * 1000:.0f} ms"
    tracemalloc.start()
    try:
        answer = call()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < BYTES, f"{what}: {most / 2**20:.1f} MiB"
    return answer


def reviewed(what: str, integration: Integration[Any], new: Json, old: Json) -> None:
    """Both webhooks of a kind answer about its creation, and about the change in both directions."""
    for verb in ("mutate", "validate"):
        handler = PATHS.get(f"/{verb}-{webhook_path(integration.kind)}")
        if handler is not None:
            for now, before in ((new, None), (new, old), (old, new)):
                asked = request(now, old=before, seen_as=old, namespace="team")
                held_to(f"{verb} {integration.framework} {what}", partial(handler, asked))


def decided(what: str, integration: Integration[Any], body: Json) -> None:
    """The reconciler decides about the job when it is new, and when its Workload is admitted, evicted and deleted."""
    jobs = Jobs(registry=REGISTRY)
    jobs.flavor()
    jobs.put(integration.kind, body)
    if integration.rendering is not None:
        owner = owned_by(body["kind"], "x", uid="uid-x", api_version=body["apiVersion"])
        beside = copy.deepcopy(seeds()["jobset"])
        beside["metadata"] = {"name": "x", "namespace": "team", "uid": "uid-made", "ownerReferences": [owner]}
        jobs.put(JobSet, beside)
    [job] = [each for each in jobs.world.jobs[integration.kind].values() if each.metadata.name == "x"]
    key = REGISTRY.key_of(job)
    for step in (None, _admit, _evict, _delete):
        if step is not None:
            step(jobs, integration.kind)
        for _ in range(3):
            decision = held_to(f"decide {integration.framework} {what}", lambda: _decision(jobs, key))
            writes = [each for each in decision.actions if isinstance(each, Create | Patch | Delete)]
            assert len(writes) <= WRITES, f"{integration.framework} {what}: {len(writes)} writes"
            with contextlib.suppress(Refused):
                for action in decision.actions:
                    jobs.act(action)


def _decision(jobs: Jobs, key: str) -> ReconcileResult:
    """One decision; about a job that is invalid none is made before it changes."""
    try:
        return jobs.decide(key)
    except PermanentError:
        return ReconcileResult()


def _admit(jobs: Jobs, _: type[Kind]) -> None:
    for workload in jobs.workloads[:3]:
        given = [
            {"name": each["name"], "flavors": {"cpu": "default"}, "count": each["count"]}
            for each in workload["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "cq", "podSetAssignments": given}
        _status(jobs, workload, {"admission": admission}, "QuotaReserved", "Admitted")


def _evict(jobs: Jobs, _: type[Kind]) -> None:
    for workload in jobs.workloads[:3]:
        _status(jobs, workload, {}, "Evicted")


def _status(jobs: Jobs, workload: Json, more: Json, *types: str) -> None:
    since = "2026-01-02T03:04:00Z"
    added = [{"type": each, "status": "True", "reason": "Preempted", "lastTransitionTime": since} for each in types]
    conditions = [*workload.get("status", {}).get("conditions", []), *added]
    jobs.patch(Workload, f"team/{workload['metadata']['name']}", {"status": {**more, "conditions": conditions}})


def _delete(jobs: Jobs, kind: type[Kind]) -> None:
    jobs.delete(kind, "team/x")


@pytest.mark.parametrize("kind", KINDS)
def test_the_webhooks_loop_over_no_number_of_a_job(kind: str) -> None:
    """Defaulting and validation take 50 ms of CPU and 10 MiB at most, whatever numbers a job states."""
    integration = REGISTRY.by_framework(kind)
    assert integration is not None
    for body in subjects(integration):
        for what, changed in variants(body):
            reviewed(what, integration, changed, body)


@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_loops_over_no_number_of_a_job(kind: str) -> None:
    """It takes 50 ms of CPU, 10 MiB and some hundred writes at most, whatever numbers a job states."""
    integration = REGISTRY.by_framework(kind)
    assert integration is not None
    if not integration.handling.watched:
        pytest.skip("handled by the webhook alone")
    for body in subjects(integration):
        for what, changed in variants(body):
            decided(what, integration, changed)


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_job_breaks_a_review_or_a_decision(kind: str) -> None:
    """Numbers that others write as text are read by one parser, which says what is none: whatever they write, a review
    is answered and a decision is made, in 50 ms of CPU and 10 MiB each."""
    integration = REGISTRY.by_framework(kind)
    assert integration is not None
    for body in subjects(integration):
        for what, changed in texts(body):
            reviewed(what, integration, changed, body)
            if integration.handling.watched:
                decided(what, integration, changed)


@pytest.mark.parametrize("kind", ["resourceflavor", "clusterqueue", "cohort", "workload"])
def test_the_webhooks_loop_over_no_number_of_our_own_objects(kind: str) -> None:
    """Defaulting and validation take 50 ms of CPU and 10 MiB at most, whatever numbers the object states."""
    body = seeds()[kind]
    for path, handler in PATHS.items():
        if path.endswith(f"-v1beta2-{kind}"):
            for what, changed in variants(body):
                for now, before in ((changed, None), (changed, body), (body, changed)):
                    asked = request(now, old=before, seen_as=body)
                    held_to(f"{path} {what}", partial(handler, asked))


def test_every_subject_states_numbers() -> None:
    """Each kind that charges for several pods has a number of them in what is tried here."""
    few = [each.framework for each in REGISTRY.watched if not list(numbers(subjects(each)[1].get("spec", {})))]
    assert set(few) <= {"pod", "tekton.dev/pipelinerun"}
