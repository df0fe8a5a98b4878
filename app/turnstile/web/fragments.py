"""Pages as HTML, and what of a page has changed since it was last sent.

A template marks the parts that change by themselves with `live`. Two renderings of a page that differ in such parts
only are brought to match by sending these parts; else everything between `<main>` and `</main>` is sent.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from turnstile.web.static import Static

TEMPLATES: Final = Path(__file__).with_name("templates")
MAIN: Final = "main"
"""The name of the part that is everything."""
_MARK_OF: Final = "\x02{}\x03"
_LINK: Final = re.compile(r'(\b(?:href|src|action|data-follow)=")/')
_MARK: Final = re.compile("\x02([0-9]+)\x03")


@dataclass(frozen=True)
class Rendered:
    """The inside of `<main>`: its frame, in which marks stand for the parts, and the parts by id."""

    frame: str
    parts: Mapping[str, str]

    @cached_property
    def html(self) -> Markup:
        """All of it."""
        parts = [*self.parts.values()]
        return Markup(_MARK.sub(lambda found: parts[int(found[1])], self.frame))  # noqa: S704 made of escaped pieces

    @cached_property
    def digest(self) -> str:
        """Equal for equal contents."""
        return hashlib.sha256(self.html.encode()).hexdigest()[:16]

    def since(self, before: "Rendered | str") -> dict[str, str]:
        """The parts to send to a reader who has `before`, a rendering or its digest."""
        if isinstance(before, str):
            return {} if before == self.digest else {MAIN: str(self.html)}
        if self.frame != before.frame:
            return {MAIN: str(self.html)}
        return {name: html for name, html in self.parts.items() if html != before.parts[name]}


class Renderer:
    """Renders templates; whatever they are given is escaped."""

    def __init__(self, static: Static, filters: Mapping[str, Callable[..., Any]]) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals["static"] = static.path
        self._templates.filters.update(filters)

    def inside(self, template: str, content: Mapping[str, Any]) -> Rendered:
        """The inside of `<main>` of a page."""
        parts: dict[str, str] = {}

        def live(name: str, tag: str = "div", classes: str = "", *, caller: Callable[[], str]) -> Markup:
            mark = Markup(_MARK_OF.format(len(parts)))  # noqa: S704 a number
            parts[name] = str(caller()).strip()
            return Markup('<{0} id="{1}" class="{2}">{3}</{0}>').format(tag, name, classes, mark)

        frame = self._templates.get_template(template).render(**content, live=live)
        return Rendered(frame, parts)

    def page(self, inside: Rendered, content: Mapping[str, Any]) -> str:
        """The whole page around the inside of `<main>`."""
        return self._templates.get_template("base.html").render(**content, inside=inside)


def event(changes: Mapping[str, str], digest: str, path: str) -> bytes:
    """A server-sent event with changed parts of the page at a path; its id is the digest of the page after it."""
    found = {name: relative(html, path) for name, html in changes.items()}
    return b"id: %b\ndata: %b\n\n" % (digest.encode(), msgspec.json.encode(found))


def relative(html: str, path: str) -> str:
    """HTML whose links are relative to the page at `path`, so that they lead to the same place wherever a proxy puts
    all pages (the API server's aggregator would rewrite links from `/` on). Templates write them from `/` on; what they
    are given cannot look like a link, because its quotes are escaped."""
    up = "../" * (path.count("/") - 1) or "./"
    return _LINK.sub(rf"\g<1>{up}", html)
