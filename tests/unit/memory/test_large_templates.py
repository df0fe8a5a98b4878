"""The controller holds little of jobs with large templates, however many there are."""

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.controllers.test_large_templates import MEGABYTE, template
from turnstile.api.core import Job
from turnstile.api.quantity import NANOS, to_int
from turnstile.api.remembered import BUDGET, remembered
from turnstile.api.workload import Workload
from turnstile.engine.quota.requests import nanos
from turnstile.jobs import workload as build
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.options import JobOptions
from turnstile.jobs.podsets import equivalent
from turnstile.kube.answers import decoder
from turnstile.kube.store import Store

JOBS = 15
EACH = 96 << 10
"""Bytes that a Job of a megabyte costs in stores, with its Workload; the caches of functions come on top, once."""


@contextmanager
def held() -> Iterator[dict[str, int]]:
    """How much more memory is held after the block."""
    found: dict[str, int] = {}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield found
        found["bytes"] = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def manifest(number: int) -> bytes:
    """A waiting Job of a megabyte that differs from all others."""
    made = template(value=chr(ord("A") + number), size=MEGABYTE)
    meta = {"name": f"train-{number}", "namespace": "team", "uid": f"uid-{number}", "resourceVersion": "1"}
    return json.dumps({"metadata": meta, "spec": {"suspend": True, "template": made}}).encode()


def test_a_job_costs_what_decides() -> None:
    """Jobs of a megabyte, each with its Workload, are held in a few kilobytes: no store and no cache of a function
    keeps their templates."""
    integration = BatchJob()
    jobs: Store[Job] = Store()
    workloads: Store[Workload] = Store()
    with held() as found:
        for number in range(JOBS):
            read = manifest(number)
            job, whole = decoder(Job)(read), decoder(Job, whole=True)(read)
            jobs.observe(job)
            pod_sets = integration.pod_sets(whole)
            body = build.body(integration, whole, pod_sets, build.Priority(), JobOptions())
            body["metadata"]["resourceVersion"] = "1"
            workload = decoder(Workload)(json.dumps(body).encode())
            workloads.observe(workload)
            assert equivalent(integration.pod_sets(job), workload, None)
            assert integration.claims(job)
            assert not integration.carries_admission(job)
            del job, whole, pod_sets, body, workload, read
    assert found["bytes"] < JOBS * EACH
    assert len(workloads) == len(jobs) == JOBS


@pytest.mark.parametrize("length", [10, 10_000, 100_000, MEGABYTE])
def test_what_is_remembered_is_bounded_in_bytes(length: int) -> None:
    """Whatever a function is called with: its results and its arguments."""

    @remembered()
    def doubled(value: bytes, more: tuple[str, ...]) -> Any:
        return {"decoded": value.decode() * 2, "more": more}

    with held() as found:
        for number in range(20 * BUDGET // length if length > 1000 else 5000):
            doubled(f"{number:09}".encode() + b"x" * length, (f"{number}" * 10,))
    assert found["bytes"] < 1.5 * BUDGET


def test_what_quantities_stand_for_is_bounded_in_bytes() -> None:
    """However they are written: a quantity of a thousand digits is not remembered."""
    with held() as found:
        for number in range(5000):
            long = f"{number}." + "0" * 900 + "1"
            assert to_int("memory", long) == number + 1
            assert nanos(long) == number * NANOS + 1
    assert found["bytes"] < 1 << 20


def test_what_was_returned_is_returned_again() -> None:
    """The same object, for short and long arguments; what differs is worked out anew."""
    calls: list[int] = []

    @remembered()
    def size(value: bytes) -> bytes:
        calls.append(len(value))
        return json.dumps(len(value)).encode()

    for length in (10, 10_000):
        assert size(b"a" * length) is size(b"a" * length)
    assert size(b"b" * 10_000) == b"10000"
    assert calls == [10, 10_000, 10_000]
