"""Who may read a page that `turnstile web` serves: the browser of the user who started it, and no other site in it.

Other users of the machine reach the port too, and so do pages of other sites in the same browser. So a reader needs the
token that `turnstile web` printed, once, and has a cookie from then on; a request must name this host (otherwise a name
of another site could be made to lead here: DNS rebinding); and what other sites make a browser ask for is refused. No
request changes anything, so there is nothing to forge; readings are protected all the same.
"""

import hmac
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnstile.web.refusals import refusal

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every answer: nothing inline runs or comes from elsewhere, no other site may frame or read a page."""
TOKEN: Final = "token"  # noqa: S105 its name
"""The parameter that brings the token."""
_SIGN_IN: Final = (
    f'<form><label>Token<input type="password" name="{TOKEN}" required autocomplete="off"></label>'
    "<button>Open the page</button></form>"
)
_WRONG: Final = '<p class="bad" role="alert">This token is not the one that was printed.</p>'
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """Lets requests pass that have the token, and adds `HEADERS` to all answers. Without a token all have it."""

    def __init__(self, app: ASGIApp, *, token: str = "", hosts: tuple[str, ...] = _LOCAL) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        if scope["type"] != "http":
            return
        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, port = _split(headers.get("host", ""))
        if host.lower() not in self._hosts:
            where = f"It was asked for as {host or 'a host without a name'}."
            return refusal(scope, 421, "This page is not at this address", where, "Open it as localhost.")
        if (refused := foreign(scope)) is not None:
            return refused
        return self._entrance(scope, headers, f"turnstile-{port}") if self._token else None

    def _entrance(self, scope: Scope, headers: Mapping[str, str], cookie: str) -> Response | None:
        """Exchanges the token for a cookie; refuses a request that has neither."""
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(name == TOKEN and self._right(value) for name, value in asked):
            rest = urlencode([item for item in asked if item[0] != TOKEN])
            answer = RedirectResponse(f"{scope['path']}?{rest}" if rest else scope["path"], 303)
            answer.set_cookie(cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        given = SimpleCookie()
        try:
            given.load(headers.get("cookie", ""))
        except CookieError:
            given.clear()
        if cookie in given and self._right(given[cookie].value):
            return None
        return refusal(
            scope,
            401,
            "Sign in",
            "Open the address that `turnstile web` printed: it has the token. Or paste the token here.",
            form=_SIGN_IN if TOKEN not in dict(asked) else _WRONG + _SIGN_IN,
        )

    def _right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())


def with_headers(send: Send) -> Send:
    """`send` that adds `HEADERS` to the answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)  # a refusal has a policy of its own, which allows less
        await send(message)

    return sending


def foreign(scope: Scope) -> Response | None:
    """The refusal of a request for a page that would write, or that another site makes a browser send."""
    if scope["method"] not in ("GET", "HEAD"):
        return refusal(scope, 405, "This page can only be read", headers={"allow": "GET, HEAD"})
    headers = dict(scope["headers"])
    if headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-mode") != b"navigate":
        return refusal(scope, 403, "Other sites may not read this page")
    return None


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def _split(host: str) -> tuple[str, str]:
    """Name and port of a Host header."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and port.isdigit() else (host, "")
