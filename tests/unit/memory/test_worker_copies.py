"""A manager holds little of its copies on a worker, whatever the worker's tenants write to them."""

import asyncio
import json

import pytest

from tests.unit.memory.test_large_templates import held
from turnstile.api.core import Job
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.clusters import COPIES_BY_WORKLOAD, caches_of
from turnstile.controllers.multikueue.situation import LONGEST, LONGEST_STATUS, remote_kind
from turnstile.jobs.labels import prebuilt_name
from turnstile.jobs.remote import origin_uid
from turnstile.kube import answers
from turnstile.kube.auth import Access, Fixed
from turnstile.kube.caches import Caches
from turnstile.kube.transport import Transport

ORIGIN, PREBUILT = "kueue.x-k8s.io/multikueue-origin", "kueue.x-k8s.io/prebuilt-workload-name"
HALF = 128 << 10
COPIES = 10
EACH = 8 << 10
"""Bytes that a copy costs, with its place in the stores and their indexes."""
JOB = remote_kind(Job)


def written(number: int, prebuilt: str, *, status: int = 0) -> bytes:
    """A copy to which a tenant has added as much as the API server takes of labels and annotations, and finalizers;
    with a status of so many bytes, if any."""
    letter = chr(ord("a") + number)
    several = {f"example.com/{letter}{each}": "x" * 60 for each in range(2 * HALF // 80)}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": letter * 200, "uid": letter * 200}
    meta = {
        "name": f"train-{number}",
        "namespace": "team",
        "uid": f"there-{number}",
        "resourceVersion": "7",
        "labels": {**several, ORIGIN: "multikueue"},
        "annotations": {"example.com/a": letter * HALF, PREBUILT: prebuilt, f"{ORIGIN}-uid": f"here-{number}"},
        "finalizers": [f"example.com/{letter}{each}" for each in range(5000)],
        "ownerReferences": [owner] * 100,
    }
    part = {"status": {"steps": letter * (status - len('{"steps": ""}'))}} if status else {}
    return json.dumps({"metadata": meta, "spec": {}, **part}).encode()


def caches() -> Caches:
    """The caches of a connection that nobody has opened."""

    async def made() -> Caches:
        async with Transport(Access(server="http://127.0.0.1:1", tls=None, credentials=Fixed())) as transport:
            return caches_of(transport, [JOB], "multikueue")

    return asyncio.run(made())


@pytest.mark.parametrize("kind", [Workload, JOB])
@pytest.mark.parametrize("length", [20, HALF])
def test_a_copy_costs_what_decides(kind: type[Kind], length: int) -> None:
    """By the answer to a write. The marks stay, as far as a name or a uid may reach."""
    store = caches().held(kind)
    assert store is not None
    bodies = [written(number, f"{number}{'w' * length}"[:length]) for number in range(COPIES)]
    with held() as found:
        for body in bodies:
            store.observe(answers.decoder(kind)(body))
    assert found["bytes"] < COPIES * EACH
    copy = store.get("team/train-3")
    assert copy is not None
    assert copy.metadata.labels == {ORIGIN: "multikueue"}
    assert (origin_uid(copy), prebuilt_name(copy)) == ("here-3", f"3{'w' * length}"[: min(length, LONGEST)])


def test_a_long_status_costs_nothing() -> None:
    """It is read when it is copied. One of the usual length is held as it is."""
    store = caches().held(JOB)
    assert store is not None
    bodies = [written(number, "job-train", status=1 << 20) for number in range(COPIES)]
    with held() as found:
        for body in bodies:
            store.observe(answers.decoder(JOB)(body))
    assert found["bytes"] < COPIES * EACH
    longest = answers.decoder(JOB)(written(COPIES, "job-train", status=LONGEST_STATUS))
    store.observe(longest)
    assert [len(memoryview(each.status)) for each in store.values()] == [0] * COPIES + [LONGEST_STATUS]


def test_a_list_of_copies_costs_what_decides() -> None:
    """Each is reduced as it is read: a list is held as a whole before it is stored."""
    keep = caches().scope(JOB).keeping
    assert keep is not None
    bodies = [written(number, "job-train") for number in range(COPIES)]
    with held() as found:
        read = [answers.selecting_decoder(JOB, keep)(body) for body in bodies]
    assert found["bytes"] < COPIES * EACH
    assert all(kept for _, kept in read)


def test_copies_are_found_by_their_workload() -> None:
    """The index reads what is held."""
    store = caches().held(JOB)
    assert store is not None
    store.observe(answers.decoder(JOB)(written(0, "job-train")))
    assert [each.metadata.name for each in store.by_index(COPIES_BY_WORKLOAD, "team/job-train")] == ["train-0"]
