"""Which page an address means, and what it shows. Must never read the network."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from app.api.clusterqueue import ClusterQueue
from app.api.errors import InvalidValue, Unanswered
from app.web import queues, supposing, workloads
from app.web.explanations import Beside, Explanations, Kept
from app.web.health import Observer
from app.web.overview import overview
from app.web.sight import EVERYTHING, Sight
from app.web.world import World

SOON_SECONDS: Final = 0.4
"""Seconds that a page waits for an explanation; what comes later arrives as an event."""

Params = Mapping[str, str]


class Shown(NamedTuple):
    """What a page shows: the template of the inside of `<main>`, and what the template is given."""

    template: str
    title: str
    content: dict[str, Any]
    status: int = 200
    follows: bool | None = None
    """Whether it is kept up to date; None if that is so while the objects can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What pages are made of."""

    world: World
    explanations: Explanations
    observer: Observer
    beside: Beside
    where: str
    """The cluster or dump that is shown."""
    alive: bool = True
    """Whether it can change; a dump cannot."""
    sight: Sight = EVERYTHING
    """What the reader of this page may see."""


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
    return int(given) if given.isascii() and given.isdigit() and len(given) < 9 else 1


async def _overview(site: Site, _: Params, params: Params) -> Shown:
    wanted = params.get("q", "").strip()
    found = overview(site.world, page=_number(params, "page"), wanted=wanted, sight=site.sight)
    return Shown("overview.html", "Quota", {"shown": found, "wanted": wanted, **_reading(site)})


async def _queue(site: Site, names: Params, params: Params) -> Shown | None:
    page, held = _number(params, "page"), _number(params, "held")
    found = queues.queue(site.world, names["name"], page=page, held=held, sight=site.sight)
    if found is None:
        return None
    return Shown(
        "queue.html", f"ClusterQueue {names['name']}", {"shown": found, "path": f"/clusterqueues/{names['name']}"}
    )


async def _workload(site: Site, names: Params, params: Params) -> Shown | None:
    key = f"{names['namespace']}/{names['name']}"
    sight = site.sight
    if key not in site.world.state.workloads or not sight.shows(key):
        return None
    now = params.get("events") == ""
    kept: Kept = site.explanations.get(key, sight) if now else await site.explanations.soon(key, SOON_SECONDS, sight)
    found = workloads.workload(site.world, key, kept, sight)
    if found is None:
        return None
    follows = True if kept.asking else None
    return Shown("workload.html", f"Workload {names['name']}", {"shown": found}, follows=follows)


async def _search(site: Site, _: Params, params: Params) -> Shown:
    wanted, state = params.get("q", "").strip(), params.get("state", "")
    found = workloads.search(site.world, wanted, state, site.sight)
    return Shown("search.html", "Workloads", {"shown": found, "wanted": wanted, "state": state, **_reading(site)})


async def _what_if(site: Site, _: Params, params: Params) -> Shown:
    form = {name: params.get(name, "") for name in supposing.FIELDS}
    answer, error = None, None
    try:
        answer = await supposing.answer(site.world, site.beside, form, site.sight)
    except InvalidValue as refused:
        error = (refused.field, f"{refused.value!s}: {refused.cure}" if str(refused.value) else refused.cure)
    except Unanswered as late:
        error = ("", str(late))
    state = site.world.state
    choices = {
        "queues": sorted(
            key for key, each in state.local_queues.items() if each.api is not None and site.sight.shows(key)
        )[:500],
        "cluster_queues": sorted(state.cluster_queues)[:500] if site.sight.tree else [],
    }
    content = {"form": form, "answer": answer, "error": error, **choices}
    return Shown("whatif.html", "What if", content, 400 if error else 200, follows=False)


async def _health(site: Site, _: Params, __: Params) -> Shown:
    return Shown("health.html", "Health", {"shown": site.observer.health(site.sight), **_reading(site)})


def _reading(site: Site) -> dict[str, Any]:
    blind = not site.sight.tree or ClusterQueue in site.world.source.unread()
    return {"reading": site.world.source.missing(), "unread": _unread(site), "blind": blind}


def _unread(site: Site) -> dict[str, list[str]]:
    """Kinds that cannot be read, by the reason."""
    found: dict[str, list[str]] = {}
    for kind, why in (site.sight.unread() | site.world.source.unread()).items():
        found.setdefault(why, []).append(kind.KIND)
    return found


_Page = Callable[[Site, Params, Params], Awaitable[Shown | None]]
_NAME: Final = "[^/]+"
_PAGES: Final[tuple[tuple[str, _Page], ...]] = (
    ("/", _overview),
    (f"/clusterqueues/(?P<name>{_NAME})", _queue),
    ("/workloads", _search),
    (f"/workloads/(?P<namespace>{_NAME})/(?P<name>{_NAME})", _workload),
    ("/what-if", _what_if),
    ("/health", _health),
)
_BY_SIGHT: Final = frozenset((_overview, _queue, _search, _workload, _what_if))
"""Pages that leave out what their reader may not see. Others are for readers who see everything."""
