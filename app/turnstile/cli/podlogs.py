"""Prints the logs of pods as their containers write them, and follows pods that start later.

A log may be larger than memory, and one of its lines too: bytes are passed on as they come, whole lines together so
that lines of two containers do not mix. At a terminal, control characters of a log are spelled out as those of all
other texts of a cluster: its author need not be its reader. A file or a program gets the bytes as they are.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from turnstile.api.errors import ApiError, Forbidden, InvalidValue, TurnstileError, WireError
from turnstile.cli.elsewhere import Place
from turnstile.cli.say import escaped, say
from turnstile.client.logs import read_log
from turnstile.client.standing import ENDS, State

Plain = dict[str, Any]

DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
LONGEST: Final = 2**16
"""Bytes of a line that are kept until its end comes; the rest of a longer one is passed on in pieces."""
_QUIET_SECONDS: Final = 10
"""Seconds after which pods are listed again at the latest while some run."""
_ENDING_SECONDS: Final = 2
"""The same while none runs: the job may have ended."""
_PAUSE: Final = 1.0
"""Between two lists of pods, however often they change."""
_KINDS: Final = (
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The logs that are asked for, as kubectl's options of the same names."""

    container: str = ""
    all_containers: bool = False
    prefix: bool = False
    follow: bool = False
    tail: int = -1
    since_seconds: int = 0
    at_once: int = 50
    """Logs that are followed at once at most."""

    def params(self, log: "Log", *, first: bool) -> dict[str, str | int]:
        """Parameters of the request. A log that began after the command did is printed from its beginning."""
        params: dict[str, str | int] = {"container": log.container}
        if first and self.tail >= 0:
            params["tailLines"] = self.tail
        if first and self.since_seconds:
            params["sinceSeconds"] = self.since_seconds
        return params


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one run of a container."""

    pod: str
    uid: str
    container: str
    run: int
    """How often the container was started again before."""

    @property
    def prefix(self) -> bytes:
        """The words before each line with `--prefix`."""
        return f"[pod/{self.pod}/{self.container}] ".encode()


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers of a pod whose logs are asked for."""

    logs: Sequence[Log] = ()
    waiting: Sequence[tuple[str, str]] = ()
    """Containers that have not started, each with the reason."""


def containers_of(pod: Plain, wanted: Wanted) -> Containers:
    """The containers of a pod that are asked for: of one that names none, its default one, else its first."""
    spec, status, meta = pod["spec"], pod.get("status") or {}, pod["metadata"]
    known = [each["name"] for part, _ in _KINDS for each in spec.get(part) or ()]
    own = [each["name"] for each in spec.get("containers") or ()]
    if wanted.all_containers:
        chosen = known
    elif wanted.container:
        chosen = [wanted.container] if wanted.container in known else []
    else:
        default = (meta.get("annotations") or {}).get(DEFAULT_CONTAINER)
        chosen = [default] if default in own else own[:1]
    found = {each["name"]: each for _, part in _KINDS for each in status.get(part) or ()}
    logs, waiting = [], []
    for name in chosen:
        of = found.get(name) or {}
        state = of.get("state") or {}
        if "running" in state or "terminated" in state or "terminated" in (of.get("lastState") or {}):
            logs.append(Log(meta["name"], meta["uid"], name, of.get("restartCount", 0)))
        else:
            waiting.append((name, (state.get("waiting") or {}).get("reason") or _why(status)))
    return Containers(logs, waiting)


def _why(status: Plain) -> str:
    """Why no container of a pod is known yet."""
    found = (each for each in status.get("conditions") or () if each["type"] == "PodScheduled")
    bound: Plain = next(found, {})
    return str(status.get("reason") or bound.get("reason") or status.get("phase") or "Pending")


def is_live(pod: Plain) -> bool:
    """Whether containers of a pod run, or may still start."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def require_container(pods: Sequence[Plain], wanted: Wanted) -> None:
    """Raise InvalidValue if no pod has the container that was named."""
    known = {each["name"] for pod in pods for part, _ in _KINDS for each in pod["spec"].get(part) or ()}
    if wanted.container and pods and wanted.container not in known:
        raise InvalidValue("--container", wanted.container, f"no pod has it; there are: {', '.join(sorted(known))}")


@dataclass(slots=True)
class Printer:
    """Writes the bytes of logs, each line of one container alone; text that a terminal would obey spelled out."""

    prefix: bool = False
    terminal: bool = False
    write: Callable[[bytes], object] = field(default=lambda text: sys.stdout.buffer.write(text))
    flush: Callable[[], None] = field(default=lambda: sys.stdout.buffer.flush())
    printed: int = field(default=0, init=False)
    """Logs that were begun."""
    failed: set[Log] = field(default_factory=set, init=False)
    """Logs that could not be read to their end."""
    _open: Log | None = field(default=None, init=False)
    """The log whose last line is not ended."""

    def print(self, log: Log, block: bytes) -> None:
        """Write lines of a log; the last one may go on with the next call."""
        parts = []
        if self._open is not None and self._open != log:
            parts.append(b"\n")
            self._open = None
        ended = block.endswith(b"\n")
        if self.terminal:
            block = escaped(block.decode(errors="replace").replace("\r\n", "\n")).encode()
        if self.prefix:
            before = log.prefix
            lines = block.removesuffix(b"\n").replace(b"\n", b"\n" + before)
            block = (b"" if self._open == log else before) + lines + (b"\n" if ended else b"")
        self._open = None if ended else log
        self.write(b"".join((*parts, block)))
        self.flush()

    def fails(self, log: Log, error: TurnstileError) -> None:
        """Report, once, that a log could not be read to its end."""
        if log not in self.failed:
            self.failed.add(log)
            say(f"warning: pod/{log.pod}: the log of container {log.container} ended: {error}", err=True)


async def print_log(
    place: Place,
    log: Log,
    wanted: Wanted,
    printer: Printer,
    *,
    first: bool,
    over: Callable[[], Awaitable[bool]] | None = None,
) -> bool:
    """Print one log; with `over` (see `read_log`) until the container ends. Whether anything was read: a node may say a
    moment after the start of a container that it has no log. Raises Forbidden if the user may not read logs."""
    printer.printed += 1
    read = False
    path, params = f"{place.path}/{log.pod}/log", wanted.params(log, first=first)
    pieces = read_log(place.at.transport, path, params=params, over=over)
    rest = b""
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                read = True
                rest += piece
                end = len(rest) if len(rest) > LONGEST else rest.rfind(b"\n") + 1
                if end:
                    printer.print(log, rest[:end])
                    rest = rest[end:]
    except Forbidden:
        raise
    except (ApiError, WireError) as error:
        printer.fails(log, error)
    else:
        read = True
        printer.failed.discard(log)
    if rest:
        printer.print(log, rest)
    return read


async def print_logs(places: Sequence[Place], wanted: Wanted, printer: Printer) -> list[str]:
    """Print the logs that there are, container after container; what is left out, in sentences."""
    left: list[str] = []
    found = [(place, (await place.pods())[0]) for place in places]
    require_container([pod for _, pods in found for pod in pods], wanted)
    for place, pods in found:
        for pod in pods:
            containers = containers_of(pod, wanted)
            for log in containers.logs:
                await print_log(place, log, wanted, printer, first=True)
            left += _sentences(pod, containers)
    return left


def _sentences(pod: Plain, containers: Containers) -> Iterator[str]:
    for name, why in containers.waiting:
        yield f"pod/{pod['metadata']['name']}: container {name} has not started: {why}"


async def follow_logs(
    places: Sequence[Place], wanted: Wanted, printer: Printer, state: Callable[[], Awaitable[State]]
) -> None:
    """Print what containers write from now on, those of pods that start later too, until no pod is left and the job, by
    its `state`, starts no other. A pod of a job that has ended counts as ended too: that of a lost node never does."""
    limit = asyncio.Semaphore(wanted.at_once)
    try:
        async with asyncio.TaskGroup() as tasks:
            for place in places:
                tasks.create_task(_follow(place, wanted, printer, state, limit))
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def _follow(
    place: Place, wanted: Wanted, printer: Printer, state: Callable[[], Awaitable[State]], limit: asyncio.Semaphore
) -> None:
    """Follow the pods of one place."""
    running: set[asyncio.Task[None]] = set()
    known: set[Log] = set()
    live: set[str] = set()
    said: set[str] = set()
    first = True

    async def one(log: Log, *, first: bool) -> None:
        async def over() -> bool:
            return log.uid not in live

        async with limit:
            if not await print_log(place, log, wanted, printer, first=first, over=over):
                known.discard(log)

    def say_once(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text, err=True)

    async with asyncio.TaskGroup() as group:
        while True:
            now = await state()
            pods, version = await place.pods()
            require_container(pods, wanted)
            live = {pod["metadata"]["uid"] for pod in pods if now not in ENDS and is_live(pod)}
            for pod in pods:
                containers = containers_of(pod, wanted)
                for log in containers.logs:
                    if log not in known:
                        known.add(log)
                        running.add(task := group.create_task(one(log, first=first)))
                        task.add_done_callback(running.discard)
                if first:
                    for sentence in _sentences(pod, containers):
                        say_once(sentence)
            first = False
            if len(running) > wanted.at_once:
                say_once(f"{wanted.at_once} logs are followed at once, others when these end (--max-log-requests)")
            if not live and not running and now is not State.ADMITTED:
                return
            await _change(place, version, _QUIET_SECONDS if live else _ENDING_SECONDS)


async def _change(place: Place, version: str, seconds: int) -> None:
    """Wait for a change of the pods, or for so long; and a moment more, in which others may change."""
    params: dict[str, str | int] = {**place.params, "watch": "1", "resourceVersion": version, "timeoutSeconds": seconds}
    try:
        changes = place.at.transport.watch(place.path, params=params, idle_timeout=2.0 * seconds)
        async with aclosing(changes):
            async for _ in changes:
                break
    except (ApiError, WireError):  # who may not watch lists; the next list says what is wrong, if it lasts
        pass
    await asyncio.sleep(_PAUSE)
