"""Events are seen by kubectl, repeat cheaply, give way under load, and never get in anyone's way."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio

from testbed import ControlPlane
from testbed.patience import Patience
from tests.waiting import until
from turnstile.api.core import Namespace, Pod, PriorityClass
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.kube.events import TEXTS, Event, Recorder
from turnstile.kube.gate import Rank
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


@pytest_asyncio.fixture
async def transport(control_plane: ControlPlane) -> AsyncIterator[Transport]:
    """A connection of our own."""
    async with await Transport.connect(str(control_plane.kubeconfig())) as connected:
        yield connected


@asynccontextmanager
async def writing(recorder: Recorder) -> AsyncIterator[None]:
    """Let the writer run for the time of a block, and flush at its end."""
    run = asyncio.ensure_future(recorder.run())
    await asyncio.sleep(0)  # begun, so that it has an end
    try:
        yield
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


def pod(namespace: str, name: str = "train", uid: str = "") -> Pod:
    """A pod to talk about; it need not exist."""
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-of-{name}"))


async def events(transport: Transport, namespace: str) -> list[Event]:
    """What the server has in a namespace, oldest first."""
    found = await transport.list_all(Event, namespace)
    ours = [event for event in found if event.reporting_controller == "turnstile"]
    return sorted(ours, key=lambda event: event.event_time or "")


async def test_kubectl_describe_shows_it(control_plane: ControlPlane, transport: Transport, namespace: str) -> None:
    """An event about an existing object stands at the end of its description, with who reported it."""
    control_plane.api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}
    )

    class ConfigMap(Namespace):
        """v1 ConfigMap."""

        KIND = "ConfigMap"
        PLURAL = "configmaps"
        NAMESPACED = True

    regarding = await transport.get(ConfigMap, "c", namespace)
    recorder = Recorder(transport, instance="turnstile-0")
    async with writing(recorder):
        recorder.emit(regarding, type="Normal", reason="QuotaReserved", note="Quota reserved in ClusterQueue team-a")
        recorder.emit(regarding, type="Warning", reason="Pending", note="insufficient quota", action="Queued")
    described = control_plane.kubectl("describe", "configmap", "c", "-n", namespace)
    lines = [" ".join(line.split()) for line in described.splitlines()]
    assert any(line.startswith("Normal QuotaReserved") and line.endswith("ClusterQueue team-a") for line in lines)
    assert any(line.startswith("Warning Pending") and " turnstile" in line for line in lines)


async def test_all_fields_are_as_asked_for(transport: Transport, namespace: str) -> None:
    """Action is the reason unless given; the object is named with kind, version and uid."""
    recorder = Recorder(transport, controller="turnstile", instance="turnstile-0")
    async with writing(recorder):
        recorder.emit(pod(namespace, uid="u1"), type="Normal", reason="Admitted", note="by team-a")
        recorder.emit(pod(namespace, uid="u1"), type="Warning", reason="Conflict", note="no", action="Admission")
    first, second = sorted(await events(transport, namespace), key=lambda event: event.reason)
    assert (first.action, first.note, first.type, first.reporting_instance) == (
        "Admitted",
        "by team-a",
        "Normal",
        "turnstile-0",
    )
    assert (second.action, second.type) == ("Admission", "Warning")
    assert (first.regarding.api_version, first.regarding.kind, first.regarding.uid) == ("v1", "Pod", "u1")
    assert first.metadata.name.startswith("train.")
    assert first.series is None


async def test_about_a_cluster_scoped_object_is_in_default(transport: Transport) -> None:
    """Such an object has no namespace, its event needs one."""
    regarding = PriorityClass(metadata=ObjectMeta(name="urgent-events", uid="u2"))
    recorder = Recorder(transport, instance="x")
    async with writing(recorder):
        recorder.emit(regarding, type="Normal", reason="Seen", note="there")
    about = [e.regarding.uid for e in await events(transport, "default") if e.regarding.name == "urgent-events"]
    assert about == ["u2"]


class TestRepeats:
    """What happens again is one series."""

    async def test_counts_up_in_one_write(self, transport: Transport, namespace: str) -> None:
        """A hundred repeats cost one create and one patch, and the count is right."""
        recorder = Recorder(transport, instance="x", interval=0.3)
        async with writing(recorder):
            recorder.emit(pod(namespace), type="Warning", reason="Pending", note="no room")
            await until(lambda: recorder.stats.created, what="nothing is written")
            for _ in range(100):
                recorder.emit(pod(namespace), type="Warning", reason="Pending", note="no room")
            await until(lambda: recorder.stats.repeated, what="the repeats are not written")
        (event,) = await events(transport, namespace)
        assert event.series is not None
        assert event.series.count == 101
        assert (recorder.stats.created, recorder.stats.repeated) == (1, 1)

    async def test_another_text_is_another_event_at_once(self, transport: Transport, namespace: str) -> None:
        """Also while the first text is repeated: each has its own count, and none waits for the interval."""
        recorder = Recorder(transport, instance="x")
        async with writing(recorder):
            recorder.emit(pod(namespace), type="Warning", reason="Pending", note="needs 1 cpu")
            await until(lambda: recorder.stats.created == 1, what="nothing is written")
            recorder.emit(pod(namespace), type="Warning", reason="Pending", note="needs 1 cpu")
            recorder.emit(pod(namespace), type="Warning", reason="Pending", note="needs 2 cpu")
            await until(lambda: recorder.stats.created == 2, what="the other text is not written")
            assert not recorder.stats.repeated
        counts = {event.note: event.series and event.series.count for event in await events(transport, namespace)}
        assert counts == {"needs 1 cpu": 2, "needs 2 cpu": None}

    async def test_ever_new_texts_are_told_once_an_interval(self, transport: Transport, namespace: str) -> None:
        """The first ones at once; then the newest, as a new event, since an event's text cannot change."""
        recorder = Recorder(transport, instance="x", interval=0.5)
        async with writing(recorder):
            for needed in range(1, TEXTS + 1):
                recorder.emit(pod(namespace), type="Warning", reason="Pending", note=f"needs {needed} cpu")
            await until(lambda: recorder.stats.created == TEXTS, what="the first texts are not written")
            for needed in range(TEXTS + 1, 50):
                recorder.emit(pod(namespace), type="Warning", reason="Pending", note=f"needs {needed} cpu")
            await until(lambda: recorder.stats.created > TEXTS, what="the last text is not written")
        notes = {event.note for event in await events(transport, namespace)}
        assert notes == {f"needs {needed} cpu" for needed in (*range(1, TEXTS + 1), 49)}

    async def test_repeats_before_the_first_write_are_in_it(self, transport: Transport, namespace: str) -> None:
        """What repeats while it waits is written with its count."""
        recorder = Recorder(transport, instance="x")
        for _ in range(7):
            recorder.emit(pod(namespace), type="Normal", reason="Pending", note="no room")
        async with writing(recorder):
            await until(lambda: recorder.stats.created, what="nothing is written")
        (event,) = await events(transport, namespace)
        assert event.series is not None
        assert event.series.count == 7

    async def test_what_is_said_of_many_others_is_one_series(self, transport: Transport, namespace: str) -> None:
        """A preemptor with eight victims, as client-go counts: the first text, eight times."""
        recorder = Recorder(transport, instance="one", interval=0.1)
        async with writing(recorder):
            for number in range(8):
                recorder.emit(
                    pod(namespace),
                    type="Normal",
                    reason="PreemptedWorkload",
                    note=f"Preempted workload {number}",
                    one_series=True,
                )
                await asyncio.sleep(0.02)
        [event] = await events(transport, namespace)
        assert event.note == "Preempted workload 0"
        assert event.series is not None
        assert event.series.count == 8

    async def test_other_objects_and_reasons_are_other_series(self, transport: Transport, namespace: str) -> None:
        """A namesake with another uid is another object."""
        recorder = Recorder(transport, instance="x")
        async with writing(recorder):
            for uid in ("u1", "u2"):
                for reason in ("Pending", "Admitted"):
                    recorder.emit(pod(namespace, uid=uid), type="Normal", reason=reason, note="n")
        assert len(await events(transport, namespace)) == 4

    async def test_a_series_the_server_has_forgotten_is_written_anew(
        self, control_plane: ControlPlane, transport: Transport, namespace: str
    ) -> None:
        """Events live for an hour; a repeat after that makes a new one."""
        recorder = Recorder(transport, instance="x", interval=0.2)
        async with writing(recorder):
            recorder.emit(pod(namespace), type="Normal", reason="Pending", note="no room")
            await until(lambda: recorder.stats.created == 1, what="nothing is written")
            (event,) = await events(transport, namespace)
            control_plane.api.delete(Event.path(event.metadata.name, namespace))
            recorder.emit(pod(namespace), type="Normal", reason="Pending", note="no room")
            await until(lambda: recorder.stats.created == 2, what="it is not written anew")
        assert len(await events(transport, namespace)) == 1


class TestLimits:
    """Long names and texts are cut, not refused."""

    @pytest.mark.parametrize("note", ["x" * 5000, "ü" * 5000, "😀" * 700, "", "\ud800 half a character"])
    async def test_of_a_note(self, transport: Transport, namespace: str, note: str) -> None:
        """At most 1024 bytes, cut between characters, dots at the end."""
        recorder = Recorder(transport, instance="x")
        async with writing(recorder):
            recorder.emit(pod(namespace), type="Normal", reason="Long", note=note)
        (event,) = await events(transport, namespace)
        assert 1020 < len(event.note.encode()) <= 1024 if len(note) > 500 else event.note == note.replace("\ud800", "?")
        assert event.note.endswith("...") == (len(note) > 500)

    @pytest.mark.parametrize("name", ["n" * 253, ".".join(["a" * 60] * 4), "a" * 235 + "-" * 10 + "b"])
    async def test_of_a_name(self, transport: Transport, namespace: str, name: str) -> None:
        """An object may have a name as long as an event's own."""
        recorder = Recorder(transport, instance="i" * 500)
        async with writing(recorder):
            recorder.emit(pod(namespace, name), type="Normal", reason="r" * 300, note="n", action="a" * 300)
        (event,) = await events(transport, namespace)
        assert event.regarding.name == name
        assert not recorder.stats.dropped


class TestPressure:
    """Events give way to all other writes."""

    async def test_warnings_are_first(self, transport: Transport, namespace: str) -> None:
        """While a job is being started, one event is written after another second; once it is, all are."""
        recorder = Recorder(transport, instance="x")
        async with writing(recorder):
            async with transport.gate.turn(Rank.START):
                for number in range(30):
                    recorder.emit(pod(namespace, f"p{number}"), type="Normal", reason="Admitted", note="n")
                recorder.emit(pod(namespace), type="Warning", reason="Conflict", note="w")
                await until(lambda: recorder.stats.created > 0, what="no event is written")
                assert len(recorder) == 30  # before another second is over
                assert "Warning" in [event.type for event in await events(transport, namespace)]
            await until(lambda: recorder.stats.created == 31, what="the others are not written")

    async def test_another_text_of_a_warning_waits(self, transport: Transport, namespace: str) -> None:
        """That a reason came is told under load too, but not each of its texts before another Warning."""
        recorder = Recorder(transport, instance="x")
        async with writing(recorder), transport.gate.turn(Rank.START):
            for needed in range(1, 4):
                recorder.emit(pod(namespace), type="Warning", reason="Pending", note=f"needs {needed} cpu")
            recorder.emit(pod(namespace, "other"), type="Warning", reason="Conflict", note="w")
            await until(lambda: recorder.stats.created == 2, what="the first two are not written")
            assert sorted(event.reason for event in await events(transport, namespace)) == ["Conflict", "Pending"]
        assert len(await events(transport, namespace)) == 4

    async def test_when_full_the_oldest_normal_ones_go(self, transport: Transport, namespace: str) -> None:
        """Warnings stay as long as there is a Normal event to drop instead; all is counted."""
        recorder = Recorder(transport, instance="x", capacity=5)
        for number in range(5):
            recorder.emit(pod(namespace, f"n{number}"), type="Normal", reason="Admitted", note="n")
        for number in range(3):
            recorder.emit(pod(namespace, f"w{number}"), type="Warning", reason="Conflict", note="w")
        recorder.emit(pod(namespace, "n5"), type="Normal", reason="Admitted", note="n")
        assert recorder.stats.dropped == {("Normal", "full"): 4}
        async with writing(recorder):
            await until(lambda: not len(recorder), what="they are not written")
        names = sorted(event.regarding.name for event in await events(transport, namespace))
        assert names == ["n4", "n5", "w0", "w1", "w2"]

    async def test_full_of_warnings(self, transport: Transport, namespace: str) -> None:
        """A Normal event does not displace a Warning; a newer Warning displaces the oldest."""
        recorder = Recorder(transport, instance="x", capacity=2)
        for number in range(3):
            recorder.emit(pod(namespace, f"w{number}"), type="Warning", reason="Conflict", note="w")
        recorder.emit(pod(namespace, "n"), type="Normal", reason="Admitted", note="n")
        assert recorder.stats.dropped == {("Warning", "full"): 1, ("Normal", "full"): 1}
        async with writing(recorder):
            await until(lambda: not len(recorder), what="they are not written")
        assert sorted(event.regarding.name for event in await events(transport, namespace)) == ["w1", "w2"]

    async def test_a_flood_costs_microseconds_an_event(self, transport: Transport) -> None:
        """Fifty thousand events without a writer: bounded, and no caller waits."""
        recorder = Recorder(transport, instance="x", capacity=1000)
        regarding: list[Kind] = [pod("flood", f"p{number}") for number in range(5000)]
        started = time.thread_time()
        for _ in range(10):
            for one in regarding:
                recorder.emit(one, type="Normal", reason="Admitted", note="n")
        each = (time.thread_time() - started) / 50_000
        assert len(recorder) == 1000
        assert each < 100e-6


class TestFailures:
    """The writer outlives what the server does."""

    async def test_an_event_that_is_refused_is_dropped(self, transport: Transport, namespace: str) -> None:
        """One about an object in a namespace that is gone; the next one is written."""
        recorder = Recorder(transport, instance="x")
        async with writing(recorder):
            recorder.emit(pod("no-such-namespace", "gone"), type="Normal", reason="Admitted", note="n")
            recorder.emit(pod(namespace), type="Normal", reason="Admitted", note="n")
            await until(lambda: recorder.stats.created == 1, what="the second is not written")
        assert recorder.stats.dropped == {("Normal", "refused"): 1}

    async def test_a_server_that_hangs_delays_events_only(self, control_plane: ControlPlane, namespace: str) -> None:
        """Emitting goes on at once, and what was emitted arrives later, each event once."""
        async with await Transport.connect(str(control_plane.kubeconfig()), timeout=1.0) as transport:
            recorder = Recorder(transport, instance="x")
            async with writing(recorder):
                control_plane.pause("kube-apiserver")
                try:
                    for number in range(20):
                        recorder.emit(pod(namespace, f"p{number}"), type="Warning", reason="Conflict", note="w")
                    await asyncio.sleep(2.5)
                    assert recorder.stats.created == 0
                finally:
                    control_plane.resume("kube-apiserver")
                await until(lambda: recorder.stats.created == 20, seconds=15, what="they are not written")
            assert len(await events(transport, namespace)) == 20

    async def test_the_end_writes_what_waits(self, transport: Transport, namespace: str) -> None:
        """A shutdown in order loses nothing, not even the last counts."""
        recorder = Recorder(transport, instance="x")
        async with transport.gate.turn(Rank.START), writing(recorder):
            for _ in range(2):
                for number in range(10):
                    recorder.emit(pod(namespace, f"p{number}"), type="Normal", reason="Admitted", note="n")
        assert {event.series.count for event in await events(transport, namespace) if event.series} == {2}
        assert len(await events(transport, namespace)) == 10

    async def test_the_end_does_not_wait_for_a_server_that_hangs(
        self, control_plane: ControlPlane, transport: Transport, namespace: str
    ) -> None:
        """A second at most."""
        recorder = Recorder(transport, instance="x", flush=0.5)
        control_plane.pause("kube-apiserver")
        try:
            async with writing(recorder):
                recorder.emit(pod(namespace), type="Warning", reason="Conflict", note="w")
                await asyncio.sleep(0.1)
                patience = Patience(1.5)
            assert not patience.over
        finally:
            control_plane.resume("kube-apiserver")
