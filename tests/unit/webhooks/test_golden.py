"""The webhooks answer as is written down in `golden/`, a file for each kind; and what holds of all their answers."""

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.jobs.subjects import REGISTRY, jobs
from tests.unit.webhooks.golden.cases import HERE, file_of, lines, samples, text
from tests.unit.webhooks.reviews import Cluster, Json, mutated, operations, request
from turnstile.api import names
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.webhooks.jobreview import mutating, validating

ENABLED = pytest.mark.parametrize("kind", [each.framework for each in REGISTRY.enabled])
RENEW = "`make generate` writes them; read what has changed"


@pytest.mark.parametrize("name", sorted(samples()))
def test_reviews_are_answered_as_written(name: str) -> None:
    """Patch, warnings and refusals of each case, by the bytes of whole AdmissionReviews."""
    assert file_of(name).exists(), RENEW
    assert file_of(name).read_text() == text(lines(samples()[name])), RENEW


def test_every_kind_has_reviews_and_no_file_is_left_over() -> None:
    """Over all kinds there are at least 300 pairs."""
    assert {path.stem for path in HERE.glob("*.jsonl")} == samples().keys()
    answers = [line for name in samples() for line in map(json.loads, file_of(name).read_text().splitlines())]
    assert sum(verb in line for line in answers for verb in ("mutate", "validate")) >= 300


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """An installation with and without defaults, that manages all jobs or only queued ones, of some namespaces."""
    return Cluster(
        options=JobOptions(
            manage_jobs_without_queue_name=draw(st.booleans()),
            managed_jobs_namespace_selector=namespaces(without=draw(st.sampled_from([[], ["team-a"]]))),
        ),
        default_queue_in=draw(st.sampled_from([(), ("team-a",)])),
        has_default_priority_class=draw(st.booleans()),
        registry=REGISTRY,
    )


@st.composite
def marked(draw: st.DrawFn, body: Json) -> Json:
    """The object with other labels and annotations of Kueue's group, valid or not."""
    body = copy.deepcopy(body)
    words = st.sampled_from(["main", "A_", "", "60", "true", "example.com/a"])
    for part, keys in (
        ("labels", (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL, names.MAX_EXEC_TIME_LABEL, names.MANAGED_LABEL)),
        ("annotations", (names.PREBUILT_WORKLOAD, names.ELASTIC_JOB, names.ADMISSION_GATED_BY, names.JOB_STOPPING)),
    ):
        body["metadata"][part] = draw(st.dictionaries(st.sampled_from(keys), words))
    return body


@ENABLED
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_defaults_are_set_once_and_checking_changes_nothing(kind: str, data: st.DataObject) -> None:
    """Whatever the object and the installation: the defaults of an object with defaults are none (`mutated` asks
    again), the same review has the same answer, and the validating webhook has no patch."""
    integration: Any = REGISTRY.by_framework(kind)
    body, cluster = data.draw(jobs(integration).flatmap(marked)), data.draw(clusters())
    handler = mutating(integration, cluster)
    first = operations(handler(request(body)))
    after = mutated(handler, body)
    assert operations(handler(request(body))) == first
    checked = validating(integration, cluster)(request(after))
    assert checked.patch is None
    assert checked.code in {0, 403}
