"""Refusals as pages: to sign in, or because a request was not for this page. Other clients get a line of text.

Each page needs no other file, because its reader may not get any: its style is in it, and its policy allows this style
alone.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Final

from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Scope

_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{font:15px/22px system-ui,sans-serif;margin:0;padding:12vh 24px 24px;background:light-dark(#f6f7f9,#12151a);"
    "color:light-dark(#171b21,#e7eaef)}"
    "main{max-width:560px;margin:0 auto;padding:24px 32px;border:1px solid light-dark(#dfe3e8,#2b313c);"
    "border-radius:8px;background:light-dark(#fff,#191d24)}"
    "h1{font-size:20px;line-height:28px;margin:0 0 8px}p{margin:8px 0;overflow-wrap:anywhere}"
    ".of{color:light-dark(#545e6c,#a3adbb);margin:0 0 16px;font-weight:600}"
    "code{font:13px/20px ui-monospace,Menlo,Consolas,monospace;background:light-dark(#eef0f3,#222732);padding:2px 4px;"
    "border-radius:4px}"
    "form{display:flex;gap:8px;flex-wrap:wrap;align-items:end;margin:16px 0 8px}label{display:grid;gap:4px;flex:1}"
    "input,button{font:inherit;height:36px;padding:0 12px;border:1px solid light-dark(#8a94a3,#66707f);"
    "border-radius:6px;background:light-dark(#fff,#191d24);color:inherit;min-width:0}"
    "button{background:light-dark(#1550b8,#8bb4ff);border-color:transparent;color:light-dark(#fff,#12151a);"
    "font-weight:600;cursor:pointer}"
    ":focus-visible{outline:2px solid light-dark(#1550b8,#8bb4ff);outline-offset:2px}"
    ".bad{color:light-dark(#b3261e,#ff9d94);font-weight:600}"
)
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE: Final = Markup(
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title} &middot; Turnstile</title>'
    "<style>{style}</style></head>"
    '<body><main><p class="of">Turnstile</p><h1>{title}</h1>{inside}</main></body></html>'
)


def refusal(
    scope: Scope, status: int, title: str, *paragraphs: str, form: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """The refusal of a request. Paragraphs are escaped; `form` is markup that follows them."""
    given = {"cache-control": "no-store", **(headers or {})}
    if not for_people(scope):
        return PlainTextResponse(" ".join((f"{title}.", *paragraphs)) + "\n", status, headers=given)
    inside = Markup("").join(Markup("<p>{}</p>").format(_with_code(each)) for each in paragraphs)
    page = _PAGE.format(title=title, style=Markup(_STYLE), inside=inside + Markup(form))  # noqa: S704 ours
    return HTMLResponse(page, status, headers={**given, "content-security-policy": POLICY})


def for_people(scope: Scope) -> bool:
    """Whether a browser asks for a page, to be shown to a person."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _with_code(text: str) -> Markup:
    """A paragraph in which words between backticks are code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )
