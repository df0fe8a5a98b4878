"""Dispatches admission reviews from the ASGI scope straight to the handler of their path, bypassing FastAPI.

Reviews are nearly all of the traffic, and a FastAPI route costs twice as much as the review itself. The dispatcher
looks up the path, refuses invalid reviews with a Kubernetes Status, and leaves every other path to the application
behind it. It must never trust the body: bytes are counted as they arrive, and reading has a deadline.
"""

import time
from collections.abc import Collection, Mapping

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from turnstile.http.bodies import REASONS, Refused, Turns, answer, body_of, refuse
from turnstile.http.health import Health
from turnstile.webhooks.metrics import ReviewMetrics
from turnstile.webhooks.review import Handler, Malformed, read, write

_log = structlog.get_logger(__name__)


class Dispatcher:
    """The ASGI application: reviews by path, everything else to `app`.

    `clients` are the names of the clients that may ask for a review; if it is None, everybody may.
    """

    def __init__(
        self,
        app: ASGIApp,
        handlers: Mapping[str, Handler],
        *,
        health: Health,
        metrics: ReviewMetrics,
        turns: Turns,
        clients: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._handlers = dict(handlers)
        self._health = health
        self._metrics = metrics
        self._turns = turns
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or (handler := self._handlers.get(scope["path"])) is None:
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        path = scope["path"]
        try:
            if self._clients is not None:
                _check_client(scope, self._clients)
            async with body_of(scope, receive, self._turns) as body:
                if body is None:
                    return
                operation, outcome, reply = _review(path, handler, body)
        except Refused as refused:
            operation, outcome = refused.operation, REASONS[refused.code]
            await refuse(send, refused, closing=self._health.draining)
        else:
            await answer(send, 200, reply, closing=self._health.draining)
        self._metrics.observe(path, operation, outcome, time.perf_counter() - started)


def _check_client(scope: Scope, clients: Collection[str]) -> None:
    """Raise Refused unless the client has a certificate with one of these names, any name if there are none."""
    name = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
    if name is None:
        raise Refused(401, "reviews are answered to clients with a certificate only", unread=True)
    if clients and name not in clients:
        raise Refused(403, f"the client {name!r} may not ask for reviews", unread=True)


def _review(path: str, handler: Handler, body: bytes) -> tuple[str, str, bytes]:
    """Operation, outcome and reply of a review. Raises Refused for an invalid body or a handler's bug."""
    try:
        request = read(body)
    except Malformed as error:
        raise Refused(400, str(error)) from None
    try:
        answer = handler(request)
        return request.operation, answer.outcome, write(request.uid, answer)
    except Exception:
        _log.exception("review.failed", path=path, operation=request.operation, kind=request.kind.kind, uid=request.uid)
        sentence = "the review failed; the log of the webhook has the reason"
        raise Refused(500, sentence, operation=request.operation) from None
