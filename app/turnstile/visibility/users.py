"""Whether the user who sends a request may make it: delegated authorization.

`turnstile.kube.frontproxy` finds out who sends it; the API server decides what the user may do
(`turnstile.kube.reviews`).
"""

from typing import Final

import structlog
from starlette.types import Scope

from turnstile.http.bodies import Refused
from turnstile.kube.frontproxy import MASTERS, Callers
from turnstile.kube.reviews import AccessReviews, NotAnswered, User
from turnstile.visibility.resources import Asked

ALLOWED_SECONDS: Final = 10.0
"""Seconds for which an answer of the API server is used again, as in Kueue."""
REFUSED_SECONDS: Final = 10.0

ALWAYS_ALLOWED: Final = frozenset(("/healthz", "/livez", "/readyz"))

_log = structlog.get_logger(__name__)


class Doorkeeper:
    """Admits the requests whose user may make them."""

    def __init__(self, reviews: AccessReviews, callers: Callers) -> None:
        self._reviews = reviews
        self._callers = callers

    async def admit(self, scope: Scope, asked: Asked) -> None:
        """Raise Refused unless the user may make the request."""
        if asked.path in ALWAYS_ALLOWED:
            return
        try:
            user = await self._user(scope)
            if MASTERS in user.groups or await self._reviews.allowed(user, asked.attributes):
                return
        except NotAnswered as error:
            if error.busy:
                raise Refused(429, f"{error}: try again") from None
            _log.warning("visibility.user_unknown", path=asked.path, error=str(error))
            raise Refused(503, "the API server could not be asked what the user may do") from None
        raise Refused(403, asked.refusal(user.name))

    async def _user(self, scope: Scope) -> User:
        user = await self._callers.user(scope)
        if user is None:
            raise Refused(401, "Unauthorized")
        return user
