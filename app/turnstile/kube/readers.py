"""Decides who may get a path of one of Turnstile's servers, as Kueue asks who reads its metrics.

The bearer of a token is authenticated and authorized by the API server (`turnstile.kube.reviews`). The answers are
kept, so that a scraper costs two requests a minute.
"""

from collections.abc import Callable
from typing import Final

import structlog

from turnstile.kube.reviews import AccessReviews, NotAnswered
from turnstile.kube.transport import Transport

ALLOWED_SECONDS: Final = 60.0
"""Seconds for which a bearer that was allowed is not asked about again; so long may a token be used after its end."""
REFUSED_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)


class PathReaders:
    """Decides who may `get` a path of this server that is no resource."""

    def __init__(self, transport: Transport, path: str, *, clock: Callable[[], float] | None = None) -> None:
        self._path = path
        self._reviews = AccessReviews(
            transport, allowed_seconds=ALLOWED_SECONDS, refused_seconds=REFUSED_SECONDS, clock=clock
        )

    async def __call__(self, token: str) -> int:
        """200, 401 without a valid token, 403 without the right, 429 or 503 if that cannot be found out now."""
        try:
            user = await self._reviews.user(token)
            if user is None:
                return 401
            attributes = {"nonResourceAttributes": {"path": self._path, "verb": "get"}}
            return 200 if await self._reviews.allowed(user, attributes) else 403
        except NotAnswered as error:
            if error.busy:
                return 429
            _log.warning("readers.unknown", path=self._path, error=str(error))
            return 503
