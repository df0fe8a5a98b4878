"""Which context of the kubeconfig a worker is reached by, which containers are read, and how their logs are printed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnstile.api.errors import ConnectionLost, InvalidValue, TurnstileError
from turnstile.cli import podlogs
from turnstile.cli.connection import Where
from turnstile.cli.elsewhere import Job, Place, context_for, given_contexts, is_copy, selectors, there
from turnstile.cli.logs import _without_pods
from turnstile.cli.podlogs import (
    LONGEST,
    Log,
    Printer,
    Wanted,
    containers_of,
    follow_logs,
    print_log,
    require_container,
)
from turnstile.client import logs
from turnstile.client.standing import ENDS, State

Json = dict[str, Any]
ORIGIN, ORIGIN_UID = "kueue.x-k8s.io/multikueue-origin", "kueue.x-k8s.io/multikueue-origin-uid"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"

KEPT = "multiKueue.keepFinished of the manager keeps the pods of finished jobs for a while"


def workload(name: str = "job-train-1", *, cluster: str = "", **conditions: str) -> Json:
    """A Workload on a cluster, with the status of some conditions."""
    found = [{"type": name, "status": status, "message": f"{name} it is"} for name, status in conditions.items()]
    return {"metadata": {"name": name}, "spec": {}, "status": {"clusterName": cluster or None, "conditions": found}}


def job(*workloads: Json) -> Job:
    """A Job with these Workloads."""
    metadata = {"name": "train", "uid": "u-1"}
    return Job({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": True}}, workloads)


class TestTheContext:
    def test_has_the_name_of_the_cluster(self) -> None:
        """Unless an option names another."""
        assert context_for("east", "job/train", {}, ["east", "here"]) == "east"
        assert context_for("east", "job/train", {"east": "aws"}, ["east", "here"]) == "aws"

    def test_is_asked_for_where_there_is_none(self) -> None:
        """The error names the cluster, the contexts that there are, and what to do."""
        with pytest.raises(TurnstileError) as error:
            context_for("east", "job/train", {"west": "w"}, ["here", "aws"])
        assert str(error.value) == (
            "job/train runs on the worker cluster east, where its logs are read with your own rights, and the"
            " kubeconfig has no context of that name (there are: aws, here):"
            " name yours by --worker-context east=CONTEXT,"
            " or add one (kubectl config set-context east --cluster=... --user=...)"
        )

    def test_is_given_by_cluster(self) -> None:
        """Also a context whose name has a sign of equality."""
        assert given_contexts(["east=a", "west=b=c"]) == {"east": "a", "west": "b=c"}
        for wrong in ("east", "=a", "east="):
            with pytest.raises(InvalidValue, match="--worker-context"):
                given_contexts([wrong])

    def test_brings_its_own_credentials(self) -> None:
        """What was given for the manager is not sent to the worker; whom the user acts as counts there too."""
        where = Where(
            kubeconfig="file", context="here", server="https://here", token="secret", cluster="c", user="u",
            certificate_authority="ca", insecure_skip_tls_verify=True, act_as="alice", as_group=["g"], namespace="n",
        )  # fmt: skip
        expected = Where(kubeconfig="file", context="east", act_as="alice", as_group=["g"], namespace="team-a")
        assert there(where, "east", "team-a") == expected


class TestTheJob:
    def test_runs_where_its_workload_says(self) -> None:
        """Workloads that have finished do not count beside one that has not."""
        assert job().clusters == []
        assert job(workload(cluster="west", Finished="True"), workload(cluster="east")).clusters == ["east"]
        assert job(workload(cluster="west", Finished="True")).clusters == ["west"]

    def test_stands_as_a_part_of_it(self) -> None:
        """It is admitted if one of its Workloads is."""
        assert job(workload(Admitted="True"), workload()).standing.state is State.ADMITTED
        assert job(workload(QuotaReserved="False")).standing.state is State.WAITING

    @pytest.mark.parametrize(
        ("labels", "annotations", "expected"),
        [
            ({}, {ORIGIN_UID: "u-1"}, False),
            ({ORIGIN: "m"}, {ORIGIN_UID: "u-1"}, True),
            ({ORIGIN: "m"}, {ORIGIN_UID: "u-2", PREBUILT: "job-train-1"}, False),
            ({ORIGIN: "m"}, {PREBUILT: "job-train-1"}, True),
            ({ORIGIN: "m", PREBUILT: "job-train-1"}, {}, True),
            ({ORIGIN: "m", PREBUILT: "job-train-2"}, {}, False),
        ],
    )
    def test_is_known_by_its_copy(self, labels: dict[str, str], annotations: dict[str, str], *, expected: bool) -> None:
        """A job of the same name, of the worker or of another manager, is none."""
        copy = {"kind": "Job", "metadata": {"name": "train", "labels": labels, "annotations": annotations}}
        assert is_copy(copy, job(workload())) is expected

    @pytest.mark.parametrize(
        ("of", "expected"),
        [
            (job(), "job/train has no pods, because it waits: `explain` says why"),
            (job(workload(QuotaReserved="True")), "job/train has no pods, because it waits: `explain` says why"),
            (job(workload(Admitted="True")), "job/train has no pods yet"),
            (job(workload(Admitted="True", cluster="east")), "job/train has no pods yet on cluster east"),
            (job(workload(Finished="True")), "job/train has ended, and its pods are gone with their logs"),
            (
                job(workload(Finished="True", cluster="east")),
                f"job/train has ended on cluster east, and its pods are gone with their logs; {KEPT}",
            ),
        ],
    )
    def test_without_pods_says_why(self, of: Job, expected: str) -> None:
        """In a sentence."""
        assert _without_pods(of, "`explain`") == expected

    def test_that_is_a_pod_is_read_alone(self) -> None:
        """Also one of a group; the pods of other jobs have their labels."""
        labels = {"kueue.x-k8s.io/pod-group-name": "gang"}
        assert selectors({"kind": "Pod", "metadata": {"name": "a", "labels": labels}}) == {
            "fieldSelector": "metadata.name=a"
        }
        assert selectors(job().obj) == {"labelSelector": "batch.kubernetes.io/job-name=train"}


RUNNING: Json = {"running": {}}


def pod(**states: Json) -> Json:
    """A pod with an init container `copy`, containers with these states, and a default one where it is `main`."""
    statuses = [{"name": name, "restartCount": 1, **state} for name, state in states.items()]
    metadata: Json = {"name": "train-x", "uid": "p-1"}
    if "main" in states:
        metadata["annotations"] = {"kubectl.kubernetes.io/default-container": "main"}
    containers = [{"name": name} for name in states]
    return {
        "metadata": metadata,
        "spec": {"initContainers": [{"name": "copy"}], "containers": containers},
        "status": {"phase": "Pending", "containerStatuses": statuses},
    }


def read(found: Json, **wanted: Any) -> list[str]:
    """The containers whose logs are read."""
    return [each.container for each in containers_of(found, Wanted(**wanted)).logs]


class TestTheContainers:
    def test_are_the_default_one_or_the_first(self) -> None:
        """Unless one is named, or all are asked for."""
        two = pod(side={"state": RUNNING}, main={"state": {"terminated": {}}})
        assert read(two) == ["main"]
        assert read(pod(side={"state": RUNNING}, other={"state": RUNNING})) == ["side"]
        assert read(two, container="side") == ["side"]
        assert read(two, container="copy") == []
        assert read(two, all_containers=True) == ["side", "main"]

    def test_that_wait_say_why(self) -> None:
        """A container that was started before has a log."""
        waits = pod(main={"state": {"waiting": {"reason": "ImagePullBackOff"}}})
        assert containers_of(waits, Wanted()).waiting == [("main", "ImagePullBackOff")]
        again = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {}}}
        assert containers_of(pod(main=again), Wanted()).logs == [Log("train-x", "p-1", "main", 1)]
        unbound = pod(main={})
        unbound["status"] = {"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}
        assert containers_of(unbound, Wanted()).waiting == [("main", "SchedulingGated")]

    def test_that_no_pod_has_are_an_error(self) -> None:
        """Which names those that there are."""
        require_container([pod(main={})], Wanted(container="copy"))
        with pytest.raises(InvalidValue, match="there are: copy, main"):
            require_container([pod(main={})], Wanted(container="other"))


def test_what_began_before_is_cut_off() -> None:
    """A log that begins while the command runs is printed whole."""
    wanted, log = Wanted(follow=True, tail=0, since_seconds=60), Log("a", "1", "main", 0)
    whole = {"container": "main"}
    assert wanted.params(log, first=True) == {**whole, "tailLines": 0, "sinceSeconds": 60}
    assert wanted.params(log, first=False) == whole
    assert Wanted().params(log, first=True) == whole


ONE, OTHER = Log("a", "1", "main", 0), Log("b", "2", "main", 0)


def printed(*blocks: tuple[Log, bytes], prefix: bool = False, terminal: bool = False) -> bytes:
    """The output of some blocks."""
    found: list[bytes] = []
    printer = Printer(prefix=prefix, terminal=terminal, write=found.append, flush=lambda: None)
    for log, block in blocks:
        printer.print(log, block)
    return b"".join(found)


class TestThePrinter:
    def test_writes_the_bytes_of_a_log(self) -> None:
        """Whatever they are: a file gets what the container wrote."""
        log = b"\x1b[31mred\x1b[0m\r10%\r20%\xff\n\nno end"
        assert printed((ONE, log)) == log

    def test_spells_out_what_a_terminal_obeys(self) -> None:
        """A line that ends with a carriage return is a line."""
        log = "\x1b]0;title\x07 größer\u202e\r\n10%\r20%\n".encode() + b"\xff\n"
        shown = "\\u001b]0;title\\u0007 größer\\u202e\n10%\\u000d20%\n\ufffd\n"
        assert printed((ONE, log), terminal=True).decode() == shown

    def test_names_the_container_of_each_line(self) -> None:
        """Once, also of a line that comes in pieces."""
        assert printed((ONE, b"1\n\n2"), (ONE, b"3\n"), (OTHER, b"4\n"), prefix=True) == (
            b"[pod/a/main] 1\n[pod/a/main] \n[pod/a/main] 23\n[pod/b/main] 4\n"
        )

    def test_does_not_mix_lines(self) -> None:
        """A line that is not ended ends where another container writes."""
        assert printed((ONE, b"1"), (OTHER, b"2\n"), (ONE, b"3\n")) == b"1\n2\n3\n"


class Server:
    """An API server that streams a log, and breaks at its end if it is to; without `ends`, as the node of the pod is
    lost, its log never ends."""

    def __init__(self, *pieces: bytes, breaks: bool = False, ends: bool = True) -> None:
        self._pieces = pieces
        self._breaks = breaks
        self._ends = ends

    async def pieces(self, path: str, **_: object) -> AsyncGenerator[bytes, None]:
        """The pieces."""
        assert path == "/api/v1/namespaces/team-a/pods/a/log"
        for each in self._pieces:
            yield each
        if self._breaks:
            raise ConnectionLost("cut")
        if not self._ends:
            await asyncio.Event().wait()

    async def watch(self, path: str, **_: object) -> AsyncGenerator[bytes, None]:
        """Nothing changes."""
        assert path == "/api/v1/namespaces/team-a/pods"
        return
        yield


def streamed(*pieces: bytes, breaks: bool = False) -> tuple[list[bytes], Printer]:
    """What is written of a log that comes in pieces, write by write."""
    found: list[bytes] = []
    printer = Printer(write=found.append, flush=lambda: None)
    at = SimpleNamespace(transport=Server(*pieces, breaks=breaks), namespace="team-a")
    place = Place(at=cast(Any, at), params={})
    asyncio.run(print_log(place, ONE, Wanted(), printer, first=True))
    return found, printer


def test_a_log_is_passed_on_line_by_line() -> None:
    """The begin of a line is kept until its end comes."""
    found, _ = streamed(b"1\n2", b"2", b"\n3")
    assert found == [b"1\n", b"22\n", b"3"]


def test_a_line_without_an_end_is_not_kept() -> None:
    """A progress bar of 64 MiB passes through in pieces."""
    pieces = [b"10%\r" * 2**14] * 1024
    found, _ = streamed(*pieces)
    assert b"".join(found) == b"".join(pieces)
    assert max(map(len, found)) <= LONGEST + len(pieces[0])


def test_a_log_that_breaks_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """What came before is printed, and the others go on."""
    found, printer = streamed(b"1\n2", breaks=True)
    assert (found, printer.failed) == ([b"1\n", b"2"], {ONE})
    assert capsys.readouterr().err == "warning: pod/a: the log of container main ended: cut\n"


class TestALogWithoutAnEnd:
    """The node of the pod was lost: nothing closes the stream, and the pod stays Running."""

    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Silence is short."""
        monkeypatch.setattr(logs, "_QUIET_SECONDS", 0.01)
        monkeypatch.setattr(podlogs, "_PAUSE", 0.01)

    async def follow(self, phase: str, state: Callable[[], Awaitable[State]]) -> list[bytes]:
        """Follow the log of such a pod of a job; the output."""
        found: list[bytes] = []
        printer = Printer(write=found.append, flush=lambda: None)
        server = Server(b"1\n2", ends=False)
        running = pod(main={"state": RUNNING})
        running["metadata"]["name"], running["status"]["phase"] = "a", phase

        async def list_all(*_: object) -> tuple[list[Json], str]:
            return [running], "1"

        at = SimpleNamespace(transport=server, namespace="team-a", list_all=list_all)
        async with asyncio.timeout(5):
            await follow_logs([Place(at=cast(Any, at), params={})], Wanted(follow=True), printer, state)
        return found

    @pytest.mark.parametrize("end", sorted(ENDS))
    def test_ends_with_its_job(self, end: State) -> None:
        """However the job has ended; the begin of its last line is printed."""

        async def state() -> State:
            return end

        assert asyncio.run(self.follow("Running", state)) == [b"1\n", b"2"]

    def test_goes_on_while_its_job_does(self) -> None:
        """However long it is silent; a job that waits and has not ended may be writing its checkpoint."""
        states = iter([*[State.ADMITTED] * 5, *[State.WAITING] * 5, *[State.SUCCEEDED] * 50])
        left = 0

        async def state() -> State:
            nonlocal left
            left += 1
            return next(states)

        assert asyncio.run(self.follow("Running", state)) == [b"1\n", b"2"]
        assert left > 10

    def test_ends_with_its_pod(self) -> None:
        """Also if the job starts others, and ends later."""
        states = iter([*[State.ADMITTED] * 5, *[State.WAITING] * 50])

        async def state() -> State:
            return next(states)

        assert asyncio.run(self.follow("Failed", state)) == [b"1\n", b"2"]
