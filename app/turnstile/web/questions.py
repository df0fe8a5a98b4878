"""Questions over REST: why a Workload waits, when it starts, and what a change would do, for the sender's rights.

    GET  .../namespaces/NAMESPACE/explain?of=KIND/NAME
    GET  .../namespaces/NAMESPACE/when?of=KIND/NAME        or all=true; label=, courses=, seed=
    POST .../namespaces/NAMESPACE/what-if                  manifests; of=, set=, queue=, priorityClass=, drop=, drain=
    GET  .../namespaces/NAMESPACE/timeline?of=KIND/NAME    where the page reads a recorder
    GET  .../namespaces/NAMESPACE/usage?since=&until=      by=, userLabel=, resource=; the same

The answers are the JSON of the commands of the same name. They are worked out beside the event loop, few at
a time, and none is waited for longer than the API server waits for an answer. Must never write.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnstile.api.core import Namespace
from turnstile.api.errors import InvalidValue, TurnstileError, Unanswered
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.http.bodies import Refused
from turnstile.insight import explain, forecast
from turnstile.insight.documents import Documents, parse
from turnstile.insight.drain import drained, plain, selector
from turnstile.insight.manifests import Composer
from turnstile.insight.proposals import Otherwise, Setting, what_if
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.targets import dropped, target_of, workload_of
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube.reviews import User
from turnstile.recorder.location import Location
from turnstile.recorder.reading import Reader, reading
from turnstile.recorder.reports import fields, reports
from turnstile.recorder.scope import Scope
from turnstile.recorder.timelines import timelines
from turnstile.web.explanations import Beside
from turnstile.web.history import said
from turnstile.web.sight import TREE, Sight
from turnstile.web.world import World
from turnstile.wording.absence import unknown

SECONDS: Final = 50.0
"""A question that takes longer is given up: the API server gives its own requests up after 60 s."""
ASKED: Final = 16
"""Questions that are waited for at a time."""
OF_ONE: Final = 4
"""The part of these by one user."""
BODY_LIMIT: Final = 1024 * 1024
"""Bytes of manifests."""
COURSES: Final = range(20, 1001)
MEDIA_TYPES: Final = ("application/json", "application/yaml", "application/x-yaml", "text/yaml")
"""A browser asks the server first before it sends one of these for another site."""

_OF: Final = "give KIND/NAME, as job/train or workload/job-train-4f2a1"
QUESTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "explain": ("of",),
    "when": ("of", "all", "label", "courses", "seed"),
    "what-if": ("of", "set", "queue", "priorityClass", "drop", "drain"),
    "timeline": ("of",),
    "usage": ("by", "since", "until", "userLabel", "resource"),
}
"""The questions that are answered, and their parameters."""
_NAMED_HERE: Final = {
    "TARGET": "of", "--set": "set", "--priority-class": "priorityClass", "--set, --queue, --priority-class": "set",
    "--drain": "drain", "--by": "by",
}  # fmt: skip
"""The names of commands' fields here."""

_OF_RECORDS: Final = ("timeline", "usage")

Answered = tuple[int, bytes]
"""Status and body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with all that its answer depends on."""

    what: str
    namespace: str
    parameters: Mapping[str, list[str]]
    body: bytes
    sight: Sight
    now: datetime
    scope: Scope
    """The part of the records that the sender is shown."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    """Taken in the process that answers: the event loop would have to wait for it."""

    def one(self, name: str, otherwise: str = "") -> str:
        """A parameter that is given once. Raises InvalidValue."""
        given = self.parameters.get(name, [])
        if len(given) > 1:
            raise InvalidValue(name, ", ".join(given), "give it once")
        return given[0] if given else otherwise

    def number(self, name: str, otherwise: int, within: range | None = None) -> int:
        """A whole number. Raises InvalidValue."""
        given = self.one(name, str(otherwise))
        cure = f"give a whole number from {within[0]} to {within[-1]}" if within else "give a whole number"
        try:
            found = int(given)
        except ValueError:
            raise InvalidValue(name, given, cure) from None
        if within is not None and found not in within:
            raise InvalidValue(name, given, cure)
        return found

    def time(self, name: str) -> datetime:
        """A point in time of RFC 3339. Raises InvalidValue."""
        given = self.one(name)
        try:
            found = datetime.fromisoformat(given)
        except ValueError:
            raise InvalidValue(name, given, "give a time of RFC 3339") from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def key(self, of: str) -> str:
        """The key of the Workload that `KIND/NAME` means. Pods are not read: a pod means the Workload that it owns."""
        return workload_of(
            self.snapshot, target_of(of), self.namespace, lambda _: None, lambda _, name: unknown(name, self.namespace)
        )


class Questions:
    """Answers them from one world."""

    def __init__(
        self,
        world: World,
        beside: Beside,
        registry: Registry,
        options: Callable[[], JobOptions],
        recorder: Location | None = None,
    ) -> None:
        self._world = world
        self._recorder = recorder
        self._beside = beside
        self._registry = registry
        self._options = options
        self._asked: Counter[str] = Counter()

    async def answer(self, request: Request, user: User, sight: Sight, namespace: str, what: str) -> Response:
        """The answer to a request. Raises Refused."""
        asked = await self._read(request, user, sight, namespace, what)
        async with self._turn(user.name):
            code, body = await self._answer(asked)
        if code != 200:
            raise Refused(code, body.decode())
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

    async def _read(self, request: Request, user: User, sight: Sight, namespace: str, what: str) -> Asked:
        if what not in QUESTIONS:
            raise Refused(404, f"there is no {what}: ask for {', '.join(QUESTIONS)}")
        method = "POST" if what == "what-if" else "GET"
        if request.method != method:
            raise Refused(405, f"{what} is asked by {method}", allow=method)
        if request.headers.get("sec-fetch-site") == "cross-site":
            raise Refused(403, "other sites may not ask")
        if not sight.sees(namespace):
            raise Refused(403, _may_not(user, Workload, f'in the namespace "{namespace}"'))
        if request.query_params.get("drain") and not sight.tree:
            raise Refused(403, _may_not(user, next(iter(_hidden_kinds(sight))), "at the cluster scope"))
        parameters = {name: request.query_params.getlist(name) for name in request.query_params}
        if unknown := parameters.keys() - QUESTIONS[what]:
            known = ", ".join(QUESTIONS[what])
            raise Refused(400, f"{min(unknown)}: there is no such parameter of {what}: give {known}")
        if what in _OF_RECORDS and self._recorder is None:
            raise Refused(404, f"there is no {what}: the page is served without a recorder in PostgreSQL")
        if missing := self._world.source.missing():
            raise Refused(503, f"the cluster is still being read: {', '.join(missing)}: ask again")
        return Asked(
            what=what,
            namespace=namespace,
            parameters=parameters,
            body=await _body(request) if method == "POST" else b"",
            sight=sight,
            now=self._world.now,
            scope=sight.past(self._created),
        )

    @asynccontextmanager
    async def _turn(self, user: str) -> AsyncIterator[None]:
        if self._asked.total() >= ASKED or self._asked[user] >= OF_ONE:
            raise Refused(429, f"{ASKED} questions are being answered, or {OF_ONE} of yours: ask again later")
        self._asked[user] += 1
        try:
            yield
        finally:
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user]

    async def _answer(self, asked: Asked) -> Answered:
        def work() -> Iterator[Answered]:
            yield _ANSWERS[asked.what](self, dataclasses.replace(asked, snapshot=self._world.snapshot()))

        why = "the process that was to answer ended"
        try:
            async with asyncio.timeout(SECONDS), aclosing(self._beside.answers(work)) as answers:
                async for replied in answers:
                    return replied
        except InvalidValue as error:
            field = _NAMED_HERE.get(error.field, error.field)
            raise Refused(400, f"{field} {error.value}: {error.cure}") from None
        except Unanswered as error:
            why = str(error)
        except TimeoutError:
            why = f"it took longer than {SECONDS:g} s: ask about less, or later"
        except TurnstileError as error:
            raise Refused(400, str(error)) from None
        raise Refused(503, f"the question was not answered: {why}")

    def _created(self, namespace: str) -> Instant | None:
        found = self._world.of(Namespace).get(namespace)
        return None if found is None else instant_or_zero(found.metadata.creation_timestamp)

    # In a process of their own

    def _timeline(self, asked: Asked) -> Answered:
        kind, name = target_of(asked.one("of"))
        with self._reading(asked) as reader:
            return 200, msgspec.json.encode(timelines(reader, kind, name, asked.namespace, asked.scope))

    def _usage(self, asked: Asked) -> Answered:
        label = asked.one("userLabel")
        by = fields(asked.one("by", "queue"), label)
        edges = [asked.time("since").timestamp(), asked.time("until").timestamp()]
        scope, resource = asked.scope.within(asked.namespace), asked.one("resource")
        with self._reading(asked) as reader:
            (replied,) = reports(reader, by, edges, user_label=label, scope=scope, resource=resource)
            return 200, msgspec.json.encode(replied)

    @contextmanager
    def _reading(self, asked: Asked) -> Iterator[Reader]:
        assert self._recorder is not None
        try:
            with reading(self._recorder) as reader:
                yield reader
        except InvalidValue as error:
            if error.field != "--recorder":
                raise
            raise Unanswered(f"the flight recorder cannot be read: {said(error, asked.scope)}") from None

    def _explain(self, asked: Asked) -> Answered:
        key, now = asked.key(asked.one("of")), asked.now.timestamp()
        sight = asked.sight
        replied = explain.explain(asked.snapshot, self._world.options, now, key, sees=sight.sees, queues=sight.tree)
        return 200, msgspec.json.encode(explain.plain(replied))

    def _when(self, asked: Asked) -> Answered:
        of, every = asked.one("of"), asked.one("all") == "true"
        if bool(of) == every:
            raise InvalidValue("of", of, f"{_OF}, or all=true")
        keys = forecast.pending(asked.snapshot, asked.namespace, asked.key(of) if of else "")
        replied = forecast.forecasts(
            asked.snapshot,
            self._world.options,
            asked.now.timestamp(),
            keys,
            label=asked.one("label"),
            courses=asked.number("courses", forecast.COURSES, COURSES),
            seed=asked.number("seed", 0),
            sees=asked.sight.sees,
        )
        return 200, msgspec.json.encode(forecast.plain(replied, _unread(asked.snapshot), asked.now))

    def _what_if(self, asked: Asked) -> Answered:
        given = _manifests(asked)
        targets, drops = asked.parameters.get("of", []), asked.parameters.get("drop", [])
        settings = [Setting.parse(each) for each in asked.parameters.get("set", [])]
        otherwise = Otherwise(settings=settings, queue=asked.one("queue"), priority_class=asked.one("priorityClass"))
        drain = asked.one("drain")
        if not (asked.body.strip() or targets or drops or drain):
            raise InvalidValue("body", "nothing", "say what would change: send manifests, or give of=, drop= or drain=")
        if otherwise and not (asked.body.strip() or targets):
            raise InvalidValue("set, queue, priorityClass", "no job", "send its manifest, or give of=KIND/NAME")
        drop = [dropped(each, asked.namespace, asked.key) for each in drops]
        changed = {type(each) for each in given.snapshot.all()} | {kind for kind, _ in drop}
        if unlisted := [kind for kind in _hidden_kinds(asked.sight) if kind in changed]:
            return 403, f"{unlisted[0].KIND}: you may not list {unlisted[0].PLURAL}".encode()
        if hidden := next(_hidden(given, asked.sight), ""):
            return 403, hidden.encode()
        now = asked.now.timestamp()
        pool = None
        if drain:
            pool = drained(asked.snapshot, selector(drain), self._world.options, now, sees=asked.sight.sees)
        replied = what_if(
            Composer(asked.snapshot, self._registry, self._options(), now),
            self._world.options,
            given,
            source="body",
            targets=[asked.key(each) for each in targets],
            drop=drop,
            otherwise=otherwise,
            quotas=pool.quotas.put if pool is not None else (),
            sees=asked.sight.sees,
        )
        return 200, msgspec.json.encode(plain(replied, pool))


_ANSWERS: Final[Mapping[str, Callable[[Questions, Asked], Answered]]] = {
    "explain": Questions._explain,
    "when": Questions._when,
    "what-if": Questions._what_if,
    "timeline": Questions._timeline,
    "usage": Questions._usage,
}


def _unread(snapshot: Snapshot) -> list[str]:
    return [f"{kind.KIND}: {why}" for kind, why in snapshot.unread.items()]


def _manifests(asked: Asked) -> Documents:
    try:
        text = asked.body.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue("body", f"byte {error.start}", "send UTF-8") from None
    return parse(text, "body", namespace=asked.namespace)


def _hidden(given: Documents, sight: Sight) -> Iterator[str]:
    """Complaints of objects in namespaces that the sender may not see."""
    places: list[tuple[str, str, str]] = [
        (type(each).KIND, each.metadata.name, each.metadata.namespace) for each in given.snapshot.all()
    ]
    places += [
        (str(each["kind"]), str(each["metadata"]["name"]), str(each["metadata"].get("namespace", "")))
        for each in given.others
    ]
    for kind, name, namespace in places:
        if namespace and not sight.sees(namespace):
            yield f"{kind} {name}: you may not list Workloads and LocalQueues in namespace {namespace}"


def _hidden_kinds(sight: Sight) -> list[type[Kind]]:
    """Kinds of quota that the sender may not see, and so may not suppose to be otherwise."""
    return [] if sight.tree else [*(each for each in TREE if each in sight.unlisted), ResourceFlavor]


def _may_not(user: User, kind: type[Kind], where: str) -> str:
    """The answer that the API server would give."""
    return (
        f'{kind.PLURAL}.{kind.GROUP} is forbidden: User "{user.name}" cannot list resource "{kind.PLURAL}" in API group'
        f' "{kind.GROUP}" {where}'
    )


async def _body(request: Request) -> bytes:
    """The body, counted while it arrives. Raises Refused."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and media_type not in MEDIA_TYPES:  # kubectl create --raw sends none
        raise Refused(415, f"send the manifests as one of {', '.join(MEDIA_TYPES)} (header content-type)")
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > BODY_LIMIT:
            raise Refused(413, f"the manifests have more than {BODY_LIMIT >> 20} MiB: ask about fewer", unread=True)
    return bytes(found)
