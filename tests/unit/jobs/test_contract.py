"""What holds for every registered kind, and for one that only the configuration file describes."""

import copy
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit.jobs.samples import SAMPLES
from tests.unit.jobs.subjects import LEFT_OUT, REGISTRY, WORDS, Json, decode, jobs, unfinished, without_pods, written
from tests.unit.webhooks.reviews import Cluster, mutated
from turnstile.api.errors import PermanentError
from turnstile.api.patch import JsonPatch, apply_merge_patch
from turnstile.api.pods import Toleration
from turnstile.api.workload import PodSet
from turnstile.api.workload import decode as decode_workload
from turnstile.jobs.integration import NOT_ADMITTED, Change, Integration, Removal, Stop
from turnstile.jobs.podsets import PodSetInfo
from turnstile.jobs.servingset import ServingSet
from turnstile.jobs.workload import limited_reclaimable, reclaimable
from turnstile.kube.raws import stripped
from turnstile.webhooks.jobreview import mutating

CAN_RUN = {each: found.pods for each, found in SAMPLES.items() if found.pods is not None}
"""The most pods that an object may run: by the documentation of its kind, not by its integration."""
NOW = datetime(2026, 1, 2, tzinfo=UTC)
EXAMPLES = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
WITHOUT_COUNT = ("pod",)
"""Kinds whose objects are deleted to stop them; their quota is free when that is asked for."""
FOR_ONE_RUN = ("tekton.dev/pipelinerun",)
"""Kinds whose objects end when they are stopped, and are not changed by an admission."""
EVERY_KIND = pytest.mark.parametrize("kind", [each.framework for each in REGISTRY.enabled])
WATCHED_KINDS = pytest.mark.parametrize("kind", [each.framework for each in REGISTRY.watched])
QUEUED_KINDS = pytest.mark.parametrize(
    "kind", [each.framework for each in REGISTRY.watched if not isinstance(each, ServingSet)]
)
"""Kinds whose jobs are started and stopped themselves; a serving set leaves that to the groups of its pods."""


def integration_of(framework: str) -> Integration[Any]:
    """The integration of that name."""
    found = REGISTRY.by_framework(framework)
    assert found is not None
    return found


def applied(body: Json, change: Change) -> Json:
    """The object after a patch, as the API server would make it."""
    before = copy.deepcopy(body)
    if isinstance(change.body, JsonPatch):
        after: Json = jsonpatch.apply_patch(before, json.loads(change.body.encode()))
    else:
        after = apply_merge_patch(before, change.body)
    meta = after["metadata"]
    meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
    meta["generation"] += after["spec"] != body["spec"]
    return after


def held(integration: Integration[Any], body: Json) -> Json:
    """The object as the webhook lets it in; its caller knows how many pods it may ask for."""
    return mutated(mutating(integration, Cluster(registry=REGISTRY)), body)


def pod_sets_of(integration: Integration[Any], body: Json) -> list[PodSet]:
    """The pod sets that the Workload of this object would keep."""
    try:
        found = [each.body(topologies=True) for each in integration.pod_sets(decode(integration, body))]
    except PermanentError:
        assume(False)
    assume(found)
    assume(len({each["name"] for each in found}) == len(found))
    return decode_workload(json.dumps({"metadata": {"name": "w"}, "spec": {"podSets": found}}).encode()).spec.pod_sets


@st.composite
def admissions(draw: st.DrawFn, pod_sets: list[PodSet]) -> list[PodSetInfo]:
    """What an admission may give the pods, some of them fewer than asked for."""
    more = st.dictionaries(st.sampled_from(["c", "d", "x/y~z"]), st.sampled_from(["x", "y"]), max_size=2)
    return [
        PodSetInfo(
            each.name,
            draw(st.integers(each.min_count, each.count)) if each.min_count is not None else each.count,
            labels={"kueue.x-k8s.io/podset": each.name, **draw(more)},
            annotations=draw(more),
            node_selector=draw(more),
            tolerations=tuple(draw(st.lists(st.just(Toleration(key="t", operator="Exists")), max_size=1))),
            scheduling_gates=tuple(draw(st.lists(st.just("g/3"), max_size=1))),
        )
        for each in pod_sets
    ]


def started(integration: Integration[Any], body: Json, infos: list[PodSetInfo]) -> Json:
    """The object once it runs, after as many patches as that takes."""
    for _ in range(4):
        if not integration.suspended(decode(integration, body)):
            return body
        try:
            change = integration.start(decode(integration, body), infos)
        except PermanentError:  # a template wants something else
            assume(False)
        assert change is not None, "no pod of an earlier run is left"
        body = applied(body, change)
    raise AssertionError(f"still suspended: {body}")


def counts(pod_sets: list[PodSet]) -> list[tuple[str, int, int | None]]:
    """How many pods each asks for."""
    return [(each.name, each.count, each.min_count) for each in pod_sets]


def stop_of(integration: Integration[Any], body: Json, pod_sets: list[PodSet]) -> Stop:
    """What is left to do."""
    return integration.stop(decode(integration, body), pod_sets, reason=NOT_ADMITTED, message="m", now=NOW)


def stopped(integration: Integration[Any], body: Json, pod_sets: list[PodSet]) -> Json | None:
    """The object once it has stopped and its pods are gone; None if it was deleted."""
    for _ in range(6):
        stop = stop_of(integration, body, pod_sets)
        for step in stop.steps:
            if isinstance(step, Removal):
                return None
            if not step.strategic:
                body = applied(body, step)
        if not stop.steps and stop.complete:
            return body
        body = without_pods(body)
    raise AssertionError(f"still not stopped: {body}")


def templates(value: Any) -> Any:
    """A value without what is empty, as the API server keeps no difference there, and without status and metadata."""
    if isinstance(value, dict):
        kept = {key: found for key, part in value.items() if (found := templates(part)) not in (None, {}, [])}
        return {key: part for key, part in kept.items() if part is not False}
    return [templates(part) for part in value] if isinstance(value, list) else value


def without(spec: Json, names: list[str]) -> Json:
    """The spec without these fields."""
    return {key: part for key, part in spec.items() if key not in names}


@QUEUED_KINDS
@EXAMPLES
@given(data=st.data())
def test_a_run_that_is_stopped_leaves_no_trace(kind: str, data: st.DataObject) -> None:
    """Also a run of fewer pods than were asked for; and it can be started again."""
    if kind in FOR_ONE_RUN:
        return
    integration = integration_of(kind)
    before = held(integration, without_pods(unfinished(data.draw(jobs(integration)))))
    before = stopped(integration, before, pod_sets_of(integration, before)) or before
    pod_sets = pod_sets_of(integration, before)
    infos = data.draw(admissions(pod_sets))
    running = started(integration, before, infos)
    running["status"] = unfinished(data.draw(jobs(integration)))["status"]
    after = stopped(integration, running, pod_sets)
    if after is None:
        return
    assert integration.suspended(decode(integration, after))
    suspension = integration.suspension
    assert suspension is None or not suspension.carries_admission(decode(integration, after))
    added = [name for name in LEFT_OUT if name not in before["spec"]]
    assert templates(without(written(after), added)) == templates(written(before))
    assert counts(pod_sets_of(integration, after)) == counts(pod_sets)
    started(integration, without_pods(after), infos)


@QUEUED_KINDS
@EXAMPLES
@given(data=st.data())
def test_a_stop_may_be_cut_short_anywhere(kind: str, data: st.DataObject) -> None:
    """Each step may be the last one that is written, or be written twice; the next stop does what is left."""
    if kind in FOR_ONE_RUN:
        return
    integration = integration_of(kind)
    before = held(integration, without_pods(unfinished(data.draw(jobs(integration)))))
    pod_sets = pod_sets_of(integration, before)
    body = started(integration, before, data.draw(admissions(pod_sets)))
    body["status"] = unfinished(data.draw(jobs(integration)))["status"]
    whole = stopped(integration, body, pod_sets)
    for _ in range(10):
        stop = stop_of(integration, body, pod_sets)
        if not stop.steps:
            if stop.complete:
                break
            body = without_pods(body)
            continue
        step = stop.steps[0]
        if isinstance(step, Removal) or step.strategic:
            assert whole is None
            return
        once = applied(body, step)
        if not step.fresh:  # a fresh one is refused by its resourceVersion the second time
            assert applied(once, step)["spec"] == once["spec"]
        body = data.draw(st.sampled_from([once, without_pods(once)]))
    assert whole is not None
    assert templates(written(body)) == templates(written(whole))
    assert body["metadata"].get("annotations") == whole["metadata"].get("annotations")


@QUEUED_KINDS
@EXAMPLES
@given(data=st.data())
def test_a_stop_is_complete_only_without_pods(kind: str, data: st.DataObject) -> None:
    """Or the Workload, and the quota with it, would be let go while pods run."""
    integration = integration_of(kind)
    if integration.framework in WITHOUT_COUNT:
        return
    before = held(integration, without_pods(unfinished(data.draw(jobs(integration)))))
    pod_sets = pod_sets_of(integration, before)
    body = started(integration, before, data.draw(admissions(pod_sets)))
    body["status"] = unfinished(data.draw(jobs(integration)))["status"]
    while (stop := stop_of(integration, body, pod_sets)).steps:
        step = stop.steps[0]
        assert isinstance(step, Change)
        body = applied(body, step)
    assert stop.complete != integration.active(decode(integration, body))


@EVERY_KIND
@EXAMPLES
@given(data=st.data())
def test_defaulting_twice_is_defaulting_once(kind: str, data: st.DataObject) -> None:
    """And holds the job."""
    integration = integration_of(kind)
    after = held(integration, data.draw(jobs(integration)))
    if integration.handling.watched and not isinstance(integration, ServingSet):
        assert integration.suspended(decode(integration, after))


@WATCHED_KINDS
@settings(EXAMPLES, max_examples=25)
@given(data=st.data())
def test_the_charge_is_never_less_than_the_pods_that_can_run(kind: str, data: st.DataObject) -> None:
    """Of all pod sets, without what they need no longer."""
    integration = integration_of(kind)
    body = data.draw(jobs(integration))
    job = decode(integration, body)
    assume(integration.finished(job) is None)
    if isinstance(integration, ServingSet):  # its gangs have Workloads of their own
        assert sum(each.count for each in integration.pod_sets(job)) >= CAN_RUN[kind](body)
        return
    workload = decode_workload(json.dumps({"metadata": {"name": "w"}, "spec": {}}).encode())
    workload.spec.pod_sets = pod_sets_of(integration, body)
    given_back = limited_reclaimable(workload, reclaimable(integration, job))
    charge = sum(each.count - given_back.get(each.name, 0) for each in workload.spec.pod_sets)
    assert charge >= CAN_RUN[kind](body)


def answers(integration: Integration[Any], job: Any, infos: list[PodSetInfo], pod_sets: list[PodSet]) -> list[Any]:
    """All that a decision may ask about a job.

    Whether pods run, and what starts or stops them, is asked of a job that runs only to stop it, which changes its
    spec; so it counts here once the job is suspended.
    """
    suspension, gated = integration.suspension, integration.gated_pods
    cut_short = suspension is not None and suspension.half_stopped(job)
    asked: list[Any] = [
        lambda: integration.suspended(job),
        lambda: cut_short,
        lambda: suspension is not None and suspension.carries_admission(job),
        lambda: integration.finished(job),
        lambda: integration.pod_sets(job),
        lambda: reclaimable(integration, job),
        lambda: integration.priority_class_name(job),
        lambda: integration.exceptions.skip(job),
        lambda: gated is not None and gated.finalize(job),
    ]
    if integration.suspended(job) or cut_short:
        asked += [
            lambda: integration.active(job),
            lambda: told(integration.start(job, infos)),
            lambda: [told(each) for each in stop(integration, job, pod_sets).steps],
            lambda: stop(integration, job, pod_sets).complete,
        ]
    return [outcome(each) for each in asked]


def stop(integration: Integration[Any], job: Any, pod_sets: list[PodSet]) -> Stop:
    """What is left to do."""
    return integration.stop(job, pod_sets, reason=NOT_ADMITTED, message="m", now=NOW)


def told(step: Any) -> Any:
    """A step as plain values."""
    if not isinstance(step, Change):
        return step
    body = step.body.operations if isinstance(step.body, JsonPatch) else step.body
    return body, step.subresource


def outcome(ask: Any) -> Any:
    """An answer; one that is refused is its text."""
    try:
        return ask()
    except PermanentError as error:
        return str(error)


def mutations(value: Any, name: str = "") -> Iterator[Any]:
    """The value with one thing in it changed, added to or taken away, at any depth."""
    match value:
        case bool():
            yield not value
        case int():
            yield value + 1
            yield 0
        case str():
            yield from (word for word in WORDS.get(name, ("x", "y")) if word != value)
        case dict():
            for key, part in value.items():
                yield {other: each for other, each in value.items() if other != key}
                for changed in mutations(part, key):
                    yield {**value, key: changed}
        case list():
            for index, part in enumerate(value):
                yield [*value[:index], *value[index + 1 :]]
                for changed in mutations(part, name):
                    yield [*value[:index], changed, *value[index + 1 :]]


@WATCHED_KINDS
@settings(EXAMPLES, max_examples=6)
@given(data=st.data())
def test_what_an_answer_depends_on_is_significant(kind: str, data: st.DataObject) -> None:
    """A change of spec or status that leaves `significant` equal leaves every answer equal."""
    integration = integration_of(kind)
    body = data.draw(jobs(integration))
    job = decode(integration, body)
    pod_sets = pod_sets_of(integration, body)
    infos = data.draw(admissions(pod_sets))
    before = answers(integration, job, infos, pod_sets)
    significant = integration.significant(job)
    for part in ("spec", "status"):
        for changed in mutations(body[part]):
            other = {**body, part: changed, "metadata": {**body["metadata"], "resourceVersion": "2"}}
            try:
                seen = decode(integration, other)
                changes = integration.significant(seen) != significant
            except msgspec.ValidationError:  # not to be had from an API server
                continue
            integration.pods_ready(seen)
            if not changes:
                assert answers(integration, seen, infos, pod_sets) == before, changed


@EVERY_KIND
def test_an_object_without_a_template_is_not_taken_for_one_that_was_cached_without(kind: str) -> None:
    """Its templates would be waited for: such an object would never be queued."""
    integration = integration_of(kind)
    assert not stripped(decode(integration, {"metadata": {"name": "train"}}))


def test_every_queued_kind_is_charged_by_a_second_opinion() -> None:
    """The sample of a new kind says how many pods may run."""
    assert CAN_RUN.keys() == {each.framework for each in REGISTRY.watched}
