"""How decisions reach the API server: in order, fenced, never twice at once, housekeeping last."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import pytest_asyncio

from testbed import ControlPlane
from tests.cluster.desk import Desk, desk
from tests.waiting import until
from turnstile.api.core import Job
from turnstile.api.errors import AlreadyExists, Conflict, Invalid, NotFound, NotLeading
from turnstile.api.patch import JsonPatch
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.runtime.actions import Create, Delete, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.executor import Executor
from turnstile.jobs.integration import Change
from turnstile.kube.fence import Fence
from turnstile.kube.gate import Rank

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def at(schema_server: ControlPlane) -> AsyncIterator[Desk]:
    """A desk with one suspended Job, `train`."""
    async with desk(schema_server) as made:
        await made.create(Job, job("train"))
        yield made


def job(name: str) -> dict[str, Any]:
    """A suspended Job."""
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": pod}}}


def label(at: Desk, value: str, *, name: str = "train", version: str = "", deferrable: bool = False) -> Patch:
    """A patch of one label, for one version if given."""
    metadata = {"labels": {"l": value}, **({"resourceVersion": version} if version else {})}
    return Patch(Job, at.namespace, name, json.dumps({"metadata": metadata}).encode(), deferrable=deferrable)


def stop(at: Desk, found: Job, form: str) -> Patch:
    """The stop of a Job as it was found, by an annotation, in one of the forms of patches."""
    change = Change({"metadata": {"annotations": {"stopped": "yes"}}}, fresh=True)
    if form == "json":
        change = Change(JsonPatch().add("metadata", "annotations", value={"stopped": "yes"}), fresh=True)
    return job_patch(Job, found, change, stops=True)


def seen(at: Desk, name: str = "train") -> Job:
    """The Job as our store has it."""
    found = at.stores[Job].get(f"{at.namespace}/{name}")
    assert isinstance(found, Job)
    return found


def sent(at: Desk, outcome: str) -> int:
    """Patches that the server answered so."""
    return at.transport.stats.requests["PATCH", outcome]


async def test_an_answer_is_seen_before_the_watch_tells_of_it(at: Desk) -> None:
    """The next decision starts from what was written."""
    await at.carry_out(label(at, "a"))
    assert seen(at).metadata.labels["l"] == "a"
    assert at.executor.stats.writes["Job", "patch"] == 1


async def test_the_first_failure_ends_a_decision(at: Desk) -> None:
    """What comes after a refused write is not done; the object's owner is told why, once for all retries to come."""
    refused = Patch(Job, at.namespace, "train", b'{"spec":{"completionMode":"Indexed"}}')
    with pytest.raises(Invalid) as error:
        await at.carry_out(refused, label(at, "never"), Emit(seen(at), "Normal", "Never", "never"))
    assert "l" not in (await at.see(Job, "train")).metadata.labels
    ((reason, note),) = at.notes.told
    assert reason == "FailedUpdate"
    assert "completionMode" in note
    assert error.value.retry_after == 1.0


class TestAStaleVersion:
    """A decision from an older look."""

    async def test_is_refused_and_not_sent_again(self, at: Desk) -> None:
        """The second try reads instead, so that the third decides from what is there."""
        stale = label(at, "b", version=seen(at).metadata.resource_version)
        await at.transport.patch(Job, "train", at.namespace, {"metadata": {"labels": {"other": "x"}}})
        for _ in range(2):
            with pytest.raises(Conflict):
                await at.carry_out(stale)
        assert sent(at, "409") == 1
        assert seen(at).metadata.labels["other"] == "x"
        await at.carry_out(label(at, "b", version=seen(at).metadata.resource_version))
        assert seen(at).metadata.labels["l"] == "b"

    async def test_that_the_store_knows_to_be_stale_is_not_sent(self, at: Desk) -> None:
        """The Job changed while the write waited for its turn."""
        stale = label(at, "b", version=seen(at).metadata.resource_version)
        gate = at.executor.gate
        async with AsyncExitStack() as stack:
            for _ in range(gate.window.size):
                await stack.enter_async_context(gate.turn(Rank.STOP))
            write = asyncio.ensure_future(at.carry_out(stale))
            await _until(lambda: gate.waiting(Rank.STOP) == 1)
            await at.patch(Job, "train", {"metadata": {"labels": {"l": "newer"}}})
        with pytest.raises(Conflict):
            await write
        assert sent(at, "409") == 0
        assert (await at.see(Job, "train")).metadata.labels["l"] == "newer"

    async def test_is_decided_anew_by_an_update(self, at: Desk) -> None:
        """The function is asked again with the newer object."""
        await at.transport.patch(Job, "train", at.namespace, {"metadata": {"labels": {"other": "x"}}})

        def patch(found: Job) -> Patch:
            value = f"after-{found.metadata.labels.get('other', 'nothing')}"
            return label(at, value, version=found.metadata.resource_version)

        written = await at.executor.update(Job, seen(at).metadata.key, patch, rank=Rank.START)
        assert written.metadata.labels["l"] == "after-x"


class TestAStop:
    """The patch that stops a job, which somebody else changes all the time."""

    @pytest.mark.parametrize("form", ["merge", "json"])
    async def test_is_lost_to_one_conflict_only(self, at: Desk, form: str) -> None:
        """The second stop is sent on condition of the uid alone, whatever version it was decided from."""
        stale = seen(at)
        for number in range(2):
            await at.transport.patch(Job, "train", at.namespace, {"metadata": {"labels": {"other": f"x{number}"}}})
            if number == 0:
                with pytest.raises(Conflict):
                    await at.carry_out(stop(at, stale, form))
        await at.carry_out(stop(at, stale, form))
        assert seen(at).metadata.annotations["stopped"] == "yes"
        assert seen(at).metadata.labels["other"] == "x1"

    @pytest.mark.parametrize("form", ["merge", "json"])
    async def test_never_stops_another_job_of_that_name(self, at: Desk, form: str) -> None:
        """A Job that was created in the place of the stopped one is not changed."""
        stale = seen(at)
        await at.transport.patch(Job, "train", at.namespace, {"metadata": {"labels": {"other": "x"}}})
        with pytest.raises(Conflict):
            await at.carry_out(stop(at, stale, form))
        await at.transport.delete(Job, "train", at.namespace)
        await at.create(Job, job("train"))
        with pytest.raises((Conflict, Invalid)):
            await at.carry_out(stop(at, stale, form))
        assert "stopped" not in (await at.see(Job, "train")).metadata.annotations

    async def test_starts_keep_their_precondition(self, at: Desk) -> None:
        """A patch that stops nothing is refused as often as its version is stale."""
        stale = label(at, "b", version=seen(at).metadata.resource_version)
        for number in range(3):
            await at.transport.patch(Job, "train", at.namespace, {"metadata": {"labels": {"other": f"x{number}"}}})
            with pytest.raises(Conflict):
                await at.carry_out(stale)


async def test_an_update_that_wants_nothing_writes_nothing(at: Desk) -> None:
    """The object is returned as it is."""
    assert await at.executor.update(Job, seen(at).metadata.key, lambda found: None, rank=Rank.START) is seen(at)
    assert sent(at, "200") == 0


async def test_an_update_of_what_does_not_exist_says_so(at: Desk) -> None:
    """The store may not have seen it yet, so the server is asked."""
    with pytest.raises(NotFound):
        await at.executor.update(Job, f"{at.namespace}/none", lambda found: None, rank=Rank.START)


async def test_without_the_lease_nothing_is_sent(at: Desk) -> None:
    """The fence is asked right before each write."""
    at.fence.close()
    for action in (label(at, "a"), Create(Job, at.namespace, "x", b"{}"), Delete(Job, at.namespace, "train")):
        with pytest.raises(NotLeading):
            await at.carry_out(action)
    assert sent(at, "200") == 0
    assert await at.see(Job, "train")


class TestASuspendedTerm:
    """The Lease was not renewed in time; no other process has it."""

    @pytest.mark.parametrize("ending", ["renewed", "over"])
    async def test_writes_wait_until_it_is_renewed_or_over(self, at: Desk, ending: str) -> None:
        """What was decided before is written then, or refused."""
        now = time.monotonic()
        fence = Fence(clock=time.monotonic, epoch=1, renewed_at=now - 10, span=5.0)
        executor = Executor(at.transport, at.stores, at.notes, fence=fence)
        second = {"apiVersion": "batch/v1", "kind": "Job", **job("second")}
        actions = (label(at, "late"), Create(Job, at.namespace, "second", json.dumps(second).encode()))
        writes = [
            asyncio.ensure_future(executor.carry_out(Job, "key", ReconcileResult([action]), at.queue))
            for action in actions
        ]
        before = sum(at.transport.stats.requests.values())
        _, waiting = await asyncio.wait(writes, timeout=0.2)
        assert waiting == set(writes)
        assert sum(at.transport.stats.requests.values()) == before
        if ending == "over":
            fence.close()
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(each) for each in outcomes] == [NotLeading, NotLeading]
            assert sent(at, "200") == 0
        else:
            fence.extend(time.monotonic())
            await asyncio.gather(*writes)
            assert seen(at).metadata.labels["l"] == "late"

    async def test_the_end_of_the_process_does_not_wait_for_them(self, at: Desk) -> None:
        """And none of them is sent after `drain`, also if the term is renewed."""
        fence = Fence(clock=time.monotonic, epoch=1, renewed_at=time.monotonic() - 10, span=5.0)
        executor = Executor(at.transport, at.stores, at.notes, fence=fence)
        decision = ReconcileResult([label(at, "late")])
        writing = asyncio.ensure_future(executor.carry_out(Job, "key", decision, at.queue))
        async with asyncio.timeout(60):
            await executor.drain(at_most=60.0)
        fence.extend(time.monotonic())
        _, waiting = await asyncio.wait({writing}, timeout=0.2)
        assert waiting
        writing.cancel()
        assert sent(at, "200") == 0


async def test_one_object_is_written_by_one_at_a_time(at: Desk) -> None:
    """Ten at once do not meet in a conflict."""

    def add_one(found: Job) -> Patch:
        count = int(found.metadata.labels.get("l", "0")) + 1
        return label(at, str(count), version=found.metadata.resource_version)

    key = seen(at).metadata.key
    await asyncio.gather(*(at.executor.update(Job, key, add_one, rank=Rank.START) for _ in range(10)))
    assert seen(at).metadata.labels["l"] == "10"
    assert sent(at, "409") == 0


class TestCreation:
    """An object to be made."""

    async def test_is_seen_at_once(self, at: Desk) -> None:
        """Like every write."""
        await at.carry_out(Create(Job, at.namespace, "other", json.dumps(job("other")).encode()))
        assert seen(at, "other").metadata.uid

    async def test_of_what_is_there_shows_it(self, at: Desk) -> None:
        """The store learns what the watch has not told yet."""
        await at.transport.create(Job, at.namespace, job("other"))
        with pytest.raises(AlreadyExists):
            await at.carry_out(Create(Job, at.namespace, "other", json.dumps(job("other")).encode()))
        assert seen(at, "other").metadata.uid

    async def test_that_is_refused_is_told(self, at: Desk) -> None:
        """On the object that it was to be made for."""
        with pytest.raises(Invalid):
            await at.carry_out(
                Create(Job, at.namespace, "bad", b'{"metadata":{"name":"bad"},"spec":{"template":{}}}'),
                Emit(seen(at), "Normal", "CreatedWorkload", "never told"),
            )
        assert [reason for reason, _ in at.notes.told] == ["FailedCreate"]


class TestDeletion:
    """An object to go."""

    async def test_of_what_is_gone_is_done(self, at: Desk) -> None:
        """No error."""
        await at.carry_out(Delete(Job, at.namespace, "none"))

    async def test_of_what_is_gone_is_seen_at_once(self, at: Desk) -> None:
        """The next decision does not delete it again before the watch tells that it is gone."""
        await at.carry_out(Delete(Job, at.namespace, "train", uid=seen(at).metadata.uid))
        assert f"{at.namespace}/train" not in at.stores[Job]

    async def test_of_what_others_have_deleted_is_seen_at_once(self, at: Desk) -> None:
        """The garbage collector was first."""
        await at.transport.delete(Job, "train", at.namespace)
        await at.carry_out(Delete(Job, at.namespace, "train", uid=seen(at).metadata.uid))
        assert f"{at.namespace}/train" not in at.stores[Job]

    async def test_of_what_stays_for_a_while_is_seen_at_once(self, at: Desk) -> None:
        """A finalizer keeps it: the next decision does not delete it again."""
        kept = job("kept")
        kept["metadata"]["finalizers"] = ["example.com/kept"]
        await at.create(Job, kept)
        await at.carry_out(Delete(Job, at.namespace, "kept", uid=seen(at, "kept").metadata.uid))
        assert seen(at, "kept").metadata.deletion_timestamp

    async def test_of_another_object_of_that_name_is_not_done(self, at: Desk) -> None:
        """The uid tells them apart."""
        await at.carry_out(Delete(Job, at.namespace, "train", uid="of-an-earlier-one"))
        assert await at.see(Job, "train")
        assert seen(at)
        await at.carry_out(Delete(Job, at.namespace, "train", uid=seen(at).metadata.uid))
        with pytest.raises(NotFound):
            await at.see(Job, "train")


class TestHousekeeping:
    """Patches that may wait."""

    async def test_waits_for_quiet_and_is_done(self, at: Desk) -> None:
        """Not before `run`, and once nothing more useful is written."""
        async with _housekeeping(at):
            async with at.executor.gate.turn(Rank.STOP):
                await at.carry_out(label(at, "late", deferrable=True))
                await _until(lambda: at.executor.gate.waiting(Rank.STATUS) == 1)
                assert at.executor.waiting == 1
                assert sent(at, "200") == 0
            await _until(lambda: at.executor.waiting == 0)
        assert seen(at).metadata.labels["l"] == "late"

    async def test_is_told_of_once(self, at: Desk) -> None:
        """Looking again while it waits repeats neither the patch nor the event."""
        for _ in range(3):
            await at.carry_out(label(at, "late", deferrable=True), Emit(seen(at), "Normal", "Once", "told"))
        assert at.executor.waiting == 1
        assert at.notes.told == [("Once", "told")]

    async def test_gives_way_to_an_urgent_write_of_the_same_object(self, at: Desk) -> None:
        """What was to be kept tidy has changed: the next look decides anew."""
        await at.carry_out(label(at, "late", deferrable=True))
        await at.carry_out(label(at, "now"))
        assert at.executor.waiting == 0
        assert seen(at).metadata.labels["l"] == "now"

    async def test_of_an_older_version_is_given_up(self, at: Desk) -> None:
        """The change that made it stale is reconciled anyway. If the store has the newer version, nothing is sent."""
        await at.carry_out(label(at, "late", version=seen(at).metadata.resource_version, deferrable=True))
        await at.patch(Job, "train", {"metadata": {"labels": {"l": "seen"}}})
        async with _housekeeping(at):
            await _until(lambda: at.executor.waiting == 0)
        assert sent(at, "409") == 0

    async def test_of_a_version_that_is_older_unnoticed_is_given_up(self, at: Desk) -> None:
        """The API server refuses it."""
        await at.carry_out(label(at, "late", version=seen(at).metadata.resource_version, deferrable=True))
        await at.transport.patch(Job, "train", at.namespace, {"metadata": {"labels": {"l": "newer"}}})
        async with _housekeeping(at):
            await _until(lambda: at.executor.waiting == 0)
        assert (await at.see(Job, "train")).metadata.labels["l"] == "newer"

    async def test_that_is_refused_is_sent_again_later(self, at: Desk) -> None:
        """After a back-off of its own: others are written meanwhile, and a newer patch takes its place at once."""
        refused = Patch(Job, at.namespace, "train", b'{"spec":{"completionMode":"Indexed"}}', deferrable=True)
        await at.create(Job, job("other"))
        async with _housekeeping(at):
            await at.carry_out(refused)
            await at.carry_out(label(at, "other", name="other", deferrable=True))
            await _until(lambda: seen(at, "other").metadata.labels.get("l") == "other")
            assert sent(at, "422") == 1
            assert at.executor.waiting == 1
            await _until(lambda: sent(at, "422") == 2)
            await at.carry_out(label(at, "newer", deferrable=True))
            await _until(lambda: at.executor.waiting == 0)
        assert seen(at).metadata.labels["l"] == "newer"

    async def test_ends_with_the_lease(self, at: Desk) -> None:
        """A lost leader tidies nothing up."""
        await at.carry_out(label(at, "late", deferrable=True))
        at.fence.close()
        with pytest.raises(NotLeading):
            await at.executor.run()


async def test_a_look_later_is_asked_of_the_queue(at: Desk) -> None:
    """Whatever happens until then."""
    await at.carry_out(RequeueAfter(60.0))
    assert at.queue.delayed == 1
    at.queue.shut_down()


async def _until(done: Callable[[], bool]) -> None:
    await until(done, seconds=10, what="it does not come about")


class _housekeeping:  # noqa: N801  reads as a block
    """Housekeeping runs for the time of a block."""

    def __init__(self, at: Desk) -> None:
        self._at = at

    async def __aenter__(self) -> None:
        self._task = asyncio.ensure_future(self._at.executor.run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
