"""Which page an address means, and what it shows. Must never read the network."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace
from turnstile.api.errors import InvalidValue, Unanswered
from turnstile.api.meta import Kind
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.recorder.scope import Scope
from turnstile.web import forecasts, jobs, queues, supposing, usage, workloads
from turnstile.web.explanations import Beside, Explanations
from turnstile.web.forecasts import Forecasts
from turnstile.web.health import Observer
from turnstile.web.history import History, Lives
from turnstile.web.nodes import FIELDS as NODE_FIELDS
from turnstile.web.nodes import Pictures
from turnstile.web.overview import FOLDED, overview
from turnstile.web.pods import Pods, RunningPods
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.visit import anything
from turnstile.web.world import World

SOON_SECONDS: Final = 0.4
"""Seconds that a page waits for an explanation; what comes later arrives as an event."""

Params = Mapping[str, str]


class Shown(NamedTuple):
    """The content of a page: the template of the inside of `<main>`, and what the template is given."""

    template: str
    title: str
    content: dict[str, Any]
    status: int = 200
    follows: bool | None = None
    """Whether it is kept up to date; None if that is so while the objects can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The sources of pages."""

    world: World
    explanations: Explanations
    forecasts: Forecasts
    observer: Observer
    pictures: Pictures
    beside: Beside
    """Works out what What if asks."""
    history: History | None = None
    """The recorder's records; None if it is not read."""
    adding: Beside
    """Adds up usage: a database that is slow holds up no other answer."""
    where: str
    """The cluster or dump that is shown."""
    alive: bool = True
    """Whether it can change; a dump cannot."""
    sight: Sight = EVERYTHING
    """The sight of the reader of this page."""
    pods: RunningPods | None = None
    """Reads the pods of a Workload; None for a dump, which has none."""
    lists_pods: Callable[[str], Awaitable[bool]] = anything
    """Whether that reader may list the pods of a namespace."""
    shared: bool = False
    """Whether it is served in the cluster, to readers with rights of their own."""

    @property
    def has_nodes(self) -> bool:
        """Whether there is a page of nodes for the reader."""
        return self.sight.nodes and bool(self.world.state.surroundings.nodes.trees)

    @property
    def scope(self) -> Scope:
        """The part of the records that the reader is shown."""
        return self.sight.past(self._created)

    def _created(self, namespace: str) -> Instant | None:
        found = self.world.of(Namespace).get(namespace)
        return None if found is None else instant_or_zero(found.metadata.creation_timestamp)


async def show(site: Site, path: str, params: Params) -> Shown:
    """The page at a path."""
    for pattern, page in _PAGES:
        found = re.fullmatch(pattern, path)
        if found is not None:
            if not (site.sight.whole or page in _BY_SIGHT):
                return Shown("forbidden.html", "Not for you", {}, 403)
            shown = await page(site, found.groupdict(), params)
            if shown is not None:
                return shown
            break
    return Shown("absent.html", "Not found", {"path": path, "reading": site.world.source.missing()}, 404)


def _number(params: Params, name: str) -> int:
    given = params.get(name, "")
    return max(1, int(given)) if given.isascii() and given.isdigit() and len(given) < 9 else 1


async def _overview(site: Site, _: Params, params: Params) -> Shown:
    wanted = params.get("q", "").strip()
    found = overview(site.world, page=_number(params, "page"), wanted=wanted, sight=site.sight)
    content = {"shown": found, "wanted": wanted, "folded": FOLDED, **_reading(site)}
    return Shown("overview.html", "Quotas", content)


async def _queue(site: Site, names: Params, params: Params) -> Shown | None:
    page, held = _number(params, "page"), _number(params, "held")
    found = queues.queue(site.world, names["name"], page=page, held=held, sight=site.sight)
    if found is None:
        return None
    waiting = [each.key for each in found.waiting.entries if each.state == "pending"]
    starts = site.forecasts.get(waiting, site.sight)
    content = {
        "shown": found,
        "path": f"/clusterqueues/{names['name']}",
        "starts": starts,
        "reasons": forecasts.reasons(starts.values()),
    }
    follows = True if any(kept.asking for kept in starts.values()) else None
    return Shown("queue.html", f"ClusterQueue {names['name']}", content, follows=follows)


async def _workload(site: Site, names: Params, params: Params) -> Shown | None:
    key = f"{names['namespace']}/{names['name']}"
    sight = site.sight
    if key not in site.world.state.workloads or not sight.shows(key):
        return await _recorded(site, names, params)
    now = params.get("events") == ""
    explained = site.explanations
    kept = explained.get(key, sight) if now else await explained.soon(key, SOON_SECONDS, sight)
    found = workloads.workload(site.world, key, kept, sight)
    if found is None:
        return None
    start = site.forecasts.get([key], sight)[key] if found.entry.state == "pending" else None
    follows = True if kept.asking or (start is not None and start.asking) else None
    history = await _lives(site, names)
    if history is not None and history.late:
        follows = True
    runs = await _pods(site, key) if found.run is not None and not found.run.until else None
    content = {
        "shown": found,
        "start": start,
        "history": history,
        "shared": site.shared,
        "nodes": site.has_nodes,
        "running": runs,
    }
    return Shown("workload.html", f"{found.entry.kind} {found.entry.job}", content, follows=follows)


async def _pods(site: Site, key: str) -> Pods | None:
    """The pods of a Workload that runs; None if they are not read, or not for this reader."""
    info, namespace = site.world.state.workloads.get(key), key.partition("/")[0]
    if site.pods is None or info is None or not await site.lists_pods(namespace):
        return None
    return await site.pods.of(info.workload)


async def _recorded(site: Site, names: Params, _: Params) -> Shown | None:
    """A Workload that is recorded: the one with the uid of the address, or else the newest one of that name."""
    history = await _lives(site, names)
    uid = names.get("uid", "")
    if history is None or not (history.lives or history.error or history.late):
        return None
    life = history.of(uid) if uid else next(iter(history.lives), None)
    if life is None and history.lives:
        return None
    info = site.world.state.workloads.get(f"{names['namespace']}/{names['name']}")
    there = info is not None and life is not None and info.workload.metadata.uid == life.workload.uid
    content = {"names": names, "life": life, "history": history, "there": there}
    status = 200 if life is not None or history.late else 404
    return Shown(
        "recorded.html",
        f"{life.kind} {life.job}" if life is not None else f"Workload {names['name']}",
        {**content, "reading": site.world.source.missing()},
        status,
        follows=True if history.late else None,
    )


async def _lives(site: Site, names: Params) -> Lives | None:
    """The records of a name; None for who is not shown its namespace."""
    scope, namespace = site.scope, names["namespace"]
    if site.history is None or not scope.includes(namespace):
        return None
    return await site.history.of(namespace, names["name"], scope)


async def _jobs(site: Site, _: Params, params: Params) -> Shown:
    form = _form(("q", "state", "namespace"), params)
    wanted, state = form["q"], form["state"]
    found = jobs.jobs(
        site.world,
        wanted=wanted,
        state=state,
        namespace=form["namespace"],
        page=_number(params, "page"),
        sight=site.sight,
    )
    starts = site.forecasts.get([each.key for each in found.entries if each.state == "pending"], site.sight)
    history, gone = site.history, None
    if history is not None and (state == "gone" or (wanted and not state)):
        scope = site.scope.within(form["namespace"]) if form["namespace"] else site.scope
        gone = await history.search(wanted, scope)
    content = {
        "shown": found,
        "form": form,
        "states": jobs.STATES,
        "starts": starts,
        "reasons": forecasts.reasons(starts.values()),
        "gone": gone,
        "recorded": history is not None,
    }
    coming = (gone is not None and gone.late) or any(kept.asking for kept in starts.values())
    return Shown("jobs.html", "My jobs", {**content, **_reading(site)}, follows=True if coming else None)


async def _what_if(site: Site, _: Params, params: Params) -> Shown:
    form = _form(supposing.FIELDS, params)
    if len(chosen := params.get("quota", "").split()) == 3:
        form |= dict(zip(("clusterqueue", "flavor", "resource"), chosen, strict=True))
    question = params.get("ask", "")
    if question not in supposing.QUESTIONS:
        question = supposing.question_of(form)
    answer, error, status = None, dict[str, str](), 200
    try:
        answer = await supposing.answer(site.world, site.beside, form, site.sight)
    except InvalidValue as refused:
        shown = form["queue"] if site.sight.shows(form["queue"]) else ""
        error, status = supposing.faults(site.world, form | {"queue": shown}) | _refusal(refused), 400
    except Unanswered as late:
        error, status = {"": str(late)}, 503
    content = {
        "form": form,
        "question": question,
        "questions": supposing.QUESTIONS,
        "choices": supposing.choices(site.world, site.sight),
        "tree": site.sight.tree,
        "answer": answer,
        "error": error,
    }
    return Shown("whatif.html", "What if", content, status, follows=False)


async def _usage(site: Site, _: Params, params: Params) -> Shown:
    form, error, found, status = _form(usage.FIELDS, params), dict[str, str](), None, 200
    if site.history is not None:
        try:
            given = usage.asked(form, site.world.now)
            found = await usage.answer(site.history.place, site.adding, given, site.scope)
        except InvalidValue as refused:
            error, status = _refusal(refused), 400
        except Unanswered as late:
            error, status = {"": str(late)}, 503
    content: dict[str, Any] = {"form": form, "shown": found, "error": error, "recorded": site.history is not None}
    content |= {"shared": site.shared, "tree": site.sight.tree, "unlisted": _by_reason(site.sight.unread())}
    known = (found.resources if found is not None else ()) or (form["resource"],)
    content["resources"] = {each: each or "not known yet" for each in known}
    choices = {"spans": usage.SPANS, "groupings": usage.GROUPINGS, "height": usage.HEIGHT}
    return Shown("usage.html", "Usage", {**content, **choices}, status, follows=False)


async def _nodes(site: Site, _: Params, params: Params) -> Shown:
    form = _form(NODE_FIELDS, params)
    found = site.pictures.of(form, site.sight) if site.sight.nodes else None
    content = {"shown": found, "form": form, "may": site.sight.nodes, **_reading(site)}
    return Shown("nodes.html", f"Nodes of {found.flavor}" if found is not None else "Nodes", content)


async def usage_table(site: Site, params: Params) -> str | None:
    """The table of usage as CSV; None if no recorder is read. Raises InvalidValue and Unanswered."""
    if site.history is None:
        return None
    given = usage.asked(_form(usage.FIELDS, params), site.world.now)
    return await usage.table(site.history.place, site.adding, given, site.scope)


def _form(fields: Iterable[str], params: Params) -> dict[str, str]:
    return {name: params.get(name, "").strip() for name in fields}


def _refusal(refused: InvalidValue) -> dict[str, str]:
    """The fault of a field."""
    return {refused.field: f"{refused.value!s}: {refused.cure}" if str(refused.value) else refused.cure}


async def _health(site: Site, _: Params, __: Params) -> Shown:
    records = await site.history.records() if site.history is not None else None
    follows = True if records is not None and records.late else None
    content = {"shown": site.observer.health(site.sight), "records": records, **_reading(site)}
    return Shown("health.html", "Health", content, follows=follows)


def _reading(site: Site) -> dict[str, Any]:
    blind = not site.sight.tree or ClusterQueue in site.world.source.unread()
    return {"reading": site.world.source.missing(), "unread": _unread(site), "blind": blind}


def _unread(site: Site) -> dict[str, list[str]]:
    """Kinds that cannot be read, by the reason."""
    return _by_reason(site.sight.unread() | site.world.source.unread())


def _by_reason(unread: Mapping[type[Kind], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, why in unread.items():
        found.setdefault(why, []).append(kind.KIND)
    return found


_Page = Callable[[Site, Params, Params], Awaitable[Shown | None]]
_NAME: Final = "[^/]+"
_PAGES: Final[tuple[tuple[str, _Page], ...]] = (
    ("/", _overview),
    (f"/clusterqueues/(?P<name>{_NAME})", _queue),
    ("/workloads", _jobs),
    (f"/workloads/(?P<namespace>{_NAME})/(?P<name>{_NAME})", _workload),
    (f"/workloads/(?P<namespace>{_NAME})/(?P<name>{_NAME})/(?P<uid>{_NAME})", _recorded),
    ("/nodes", _nodes),
    ("/what-if", _what_if),
    ("/usage", _usage),
    ("/health", _health),
)
_BY_SIGHT: Final = frozenset((_overview, _queue, _jobs, _workload, _recorded, _nodes, _what_if, _usage))
"""Pages that leave out what their reader may not see. Others are for readers who see everything."""
