"""Asks the API server whether the bearer of a token may get a path, as Kueue asks who reads its metrics.

A TokenReview tells who the bearer is, a SubjectAccessReview what that user may do. Answers are kept for a short time,
so that a scraper costs two requests a minute. Anybody can send tokens, so the number of questions under way and of
answers kept is limited, and tokens are kept as hashes.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from app.api.errors import TurnstileError
from app.kube.transport import Transport

ALLOWED_SECONDS: Final = 60.0
"""Seconds for which a bearer that was allowed is not asked about again; so long may a token be used after its end."""
REFUSED_SECONDS: Final = 10.0
KEPT: Final = 256
"""Answers that are kept at most."""
ASKED: Final = 8
"""Tokens about which the API server is asked at a time; more are refused with 429."""
TOKEN_LIMIT: Final = 16 * 1024
_TIMEOUT: Final = 5.0

_log = structlog.get_logger(__name__)


class PathReaders:
    """Decides who may `get` a path of this server that is no resource."""

    def __init__(self, transport: Transport, path: str, *, clock: Callable[[], float] | None = None) -> None:
        self._transport = transport
        self._path = path
        self._clock = clock if clock is not None else lambda: asyncio.get_running_loop().time()
        self._known: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self._asked = 0

    async def __call__(self, token: str) -> int:
        """200, 401 without a valid token, 403 without the right, 429 or 503 if that cannot be found out now."""
        if not token or len(token) > TOKEN_LIMIT:
            return 401
        key = hashlib.sha256(token.encode()).digest()
        code, until = self._known.get(key, (0, 0.0))
        if self._clock() < until:
            return code
        if self._asked >= ASKED:
            return 429
        self._asked += 1
        try:
            async with asyncio.timeout(_TIMEOUT):
                code = await self._ask(token)
        except (TurnstileError, OSError, msgspec.MsgspecError) as error:  # OSError also for TimeoutError
            _log.warning("readers.unknown", path=self._path, error=str(error))
            return 503
        finally:
            self._asked -= 1
        self._known[key] = (code, self._clock() + (ALLOWED_SECONDS if code == 200 else REFUSED_SECONDS))
        self._known.move_to_end(key)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return code

    async def _ask(self, token: str) -> int:
        status = await self._review("authentication.k8s.io/v1", "TokenReview", "tokenreviews", {"token": token})
        if not status.get("authenticated"):
            return 401
        user = status.get("user", {})
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        status = await self._review("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", spec)
        return 200 if status.get("allowed") else 403

    async def _review(self, version: str, kind: str, plural: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        answer = await self._transport.request("POST", f"/apis/{version}/{plural}", body=body)
        status: dict[str, Any] = msgspec.json.decode(answer, type=dict[str, Any]).get("status", {})
        return status
