"""The page in the cluster: who sends a request, what that user may see, and what the path means.

Behind the API server's aggregator the page is below `ROOT`, and questions are below `NAMESPACES`. A client that calls
the Service itself, with a bearer token, finds the page at `/` as well. Requests without an authenticated user get 401.
"""

from collections.abc import Collection
from typing import Any, Final

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from turnstile.api.core import Pod
from turnstile.api.names import INSIGHT_GROUP, INSIGHT_VERSION
from turnstile.http.bodies import Refused, refusal_headers, refuse
from turnstile.http.health import Health
from turnstile.kube.frontproxy import ANONYMOUS, Callers
from turnstile.kube.reviews import NotAnswered, User
from turnstile.web.guard import foreign, with_headers
from turnstile.web.questions import Questions
from turnstile.web.refusals import for_people, refusal
from turnstile.web.rights import Rights
from turnstile.web.sight import Sight
from turnstile.web.visit import KEY, Visit

GROUP: Final = f"/apis/{INSIGHT_GROUP}"
API: Final = f"{GROUP}/{INSIGHT_VERSION}"
ROOT: Final = f"{API}/pages/turnstile/proxy"
"""The API server reads it as the subresource `proxy` of an object: it is called by one right, and gets no deadline."""
NAMESPACES: Final = f"{API}/namespaces/"
FOLLOWED_SECONDS: Final = 300.0
"""Seconds after which the events of a page end: its browser asks for them again, and is authenticated again."""

_VERSION: Final = {"groupVersion": f"{INSIGHT_GROUP}/{INSIGHT_VERSION}", "version": INSIGHT_VERSION}
_GROUP: Final = {"name": INSIGHT_GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}
_DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]},
    GROUP: {"kind": "APIGroup", "apiVersion": "v1", **_GROUP},
    API: {  # nothing that kubectl could list
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": _VERSION["groupVersion"],
        "resources": [],
    },
}
"""Requests of the aggregator, to tell clients which groups there are."""

_log = structlog.get_logger(__name__)


class ClusterApp:
    """Passes requests on to the page (`app`) and to `questions`, each with what its sender may see."""

    def __init__(self, app: ASGIApp, questions: Questions, callers: Callers, rights: Rights, *, health: Health) -> None:
        self._app = app
        self._questions = questions
        self._callers = callers
        self._rights = rights
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http"
        send = with_headers(send)
        try:
            await self._answer(scope, receive, send)
        except ClientDisconnect:
            return
        except Refused as refused:
            if for_people(scope) and not scope["path"].startswith(GROUP):
                await _as_page(refused, scope)(scope, receive, send)
            else:
                await refuse(send, refused, closing=self._health.draining)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path == "/healthz":  # of this process, to know that its certificate is good
            await JSONResponse({"status": "ok"})(scope, receive, send)
            return
        user = await self._user(scope)
        if (document := _DOCUMENTS.get(path.rstrip("/"))) is not None:
            await JSONResponse(document)(scope, receive, send)
        elif path.startswith(NAMESPACES):
            await self._question(user, path.removeprefix(NAMESPACES), scope, receive, send)
        elif path == ROOT:
            await RedirectResponse("proxy/", 307)(scope, receive, send)
        elif path.startswith(f"{ROOT}/"):
            await self._page(user, path.removeprefix(ROOT), scope, receive, send)
        elif path.startswith(("/apis", "/openapi")):
            raise Refused(404, "the server could not find the requested resource")
        else:
            await self._page(user, path, scope, receive, send)

    async def _user(self, scope: Scope) -> User:
        try:
            user = await self._callers.user(scope)
        except NotAnswered as error:
            _log.warning("page.user_unknown", path=scope["path"], error=str(error))
            raise Refused(429 if error.busy else 503, "the API server could not be asked who you are") from None
        if user is None or user.name == ANONYMOUS.name:
            raise Refused(401, "Unauthorized: come through the API server (kubectl proxy), or send a bearer token")
        return user

    async def _page(self, user: User, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        async def sight(named: Collection[str]) -> Sight:
            return await self._rights.sight(user, named)

        async def lists_pods(namespace: str) -> bool:
            return await self._rights.may(user, "list", Pod, namespace)

        visit = Visit(sight=sight, lists_pods=lists_pods, user=user.name, seconds=FOLLOWED_SECONDS)
        scope = {**scope, "path": path, "raw_path": path.encode(), KEY: visit}
        await (foreign(scope) or self._app)(scope, receive, send)

    async def _question(self, user: User, rest: str, scope: Scope, receive: Receive, send: Send) -> None:
        namespace, _, what = rest.partition("/")
        try:
            sight = await self._rights.sight(user, (namespace,))
            answer = await self._questions.answer(Request(scope, receive), user, sight, namespace, what)
        except (Refused, ClientDisconnect):
            raise
        except Exception:
            _log.exception("question.failed", what=what, namespace=namespace)
            raise Refused(500, "the question failed; the log of the page's process has the reason") from None
        await answer(scope, receive, send)


def _as_page(refused: Refused, scope: Scope) -> Response:
    """The refusal for a browser that calls the Service itself. Behind the aggregator the API server refuses first."""
    headers = refusal_headers(refused.code)
    if refused.code == 401:
        through = f"`kubectl proxy --port 8001`, then open `http://localhost:8001{ROOT}/`"
        ways = ("This page does not know who you are.", f"Come through the API server: {through}.")
        login = "Or open it behind an ingress that logs you in and passes your token on."
        return refusal(scope, 401, "Sign in", *ways, login, headers=headers)
    title = "Too many requests" if refused.code == 429 else "This cannot be answered now"
    return refusal(scope, refused.code, title, f"{refused.message}.", "Reload the page in a moment.", headers=headers)
