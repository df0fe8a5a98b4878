"""Who sends a request, and whether that user may: delegated authentication and authorization.

The API server's aggregator calls with a client certificate of its own and names its user in headers (the front proxy).
The authorities of that certificate, the names it may have and the names of the headers are in the ConfigMap
`kube-system/extension-apiserver-authentication`, which is watched. Another client sends a bearer token. Whatever the
source, the API server decides what the user may do (`app.kube.reviews`). Headers of a client without such a certificate
are never read.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import msgspec
import structlog
from starlette.types import Scope

from app.http.bodies import Refused
from app.kube.reviews import AccessReviews, NotAnswered, User
from app.visibility.resources import Asked

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"

ALLOWED_SECONDS: Final = 10.0
"""Seconds for which an answer of the API server is used again, as in Kueue."""
REFUSED_SECONDS: Final = 10.0

ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))
_AUTHENTICATED: Final = "system:authenticated"
_MASTERS: Final = "system:masters"
ALWAYS_ALLOWED: Final = frozenset(("/healthz", "/livez", "/readyz"))

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the API server names its users. `names` are the common names that its certificate may have; any if empty."""

    authorities: bytes = b""
    names: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    uids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def knows(self, name: str | None) -> bool:
        """Whether a client is the front proxy, by the common name of its certificate, which one of `authorities`
        signed; None if it has none."""
        return name is not None and bool(self.authorities) and (not self.names or name in self.names)

    def user(self, headers: Collection[tuple[bytes, bytes]]) -> User | None:
        """The user that the headers name; None if they name none."""
        given: dict[str, list[str]] = {}
        for header, value in headers:
            given.setdefault(header.decode("latin-1").lower(), []).append(value.decode("latin-1"))

        def first(names: Collection[str]) -> str:
            return next((given[name][0] for name in names if given.get(name, [""])[0]), "")

        name = first(self.users)
        if not name:
            return None
        extra: dict[str, tuple[str, ...]] = {}
        for each, values in given.items():
            for prefix in self.extra_prefixes:
                if each.startswith(prefix):
                    key = unquote(each.removeprefix(prefix))
                    extra[key] = (*extra.get(key, ()), *values)
        groups = tuple(value for each in self.groups for value in given.get(each, ()))
        return User(name, first(self.uids), groups, extra)


def front_proxy(data: Mapping[str, str]) -> FrontProxy:
    """What the ConfigMap says. Raises msgspec.DecodeError."""

    def listed(key: str) -> tuple[str, ...]:
        return tuple(msgspec.json.decode(data.get(f"requestheader-{key}") or "[]", type=list[str]))

    def headers(key: str) -> tuple[str, ...]:
        return tuple(name.lower() for name in listed(key))

    return FrontProxy(
        authorities=data.get("requestheader-client-ca-file", "").encode(),
        names=frozenset(listed("allowed-names")),
        users=headers("username-headers"),
        uids=headers("uid-headers"),
        groups=headers("group-headers"),
        extra_prefixes=headers("extra-headers-prefix"),
    )


class Doorkeeper:
    """Admits the requests whose user may make them. `proxy` returns what is known of the front proxy now."""

    def __init__(self, reviews: AccessReviews, proxy: Callable[[], FrontProxy]) -> None:
        self._reviews = reviews
        self._proxy = proxy

    async def admit(self, scope: Scope, asked: Asked) -> None:
        """Raise Refused unless the user may make the request."""
        if asked.path in ALWAYS_ALLOWED:
            return
        try:
            user = await self._user(scope)
            if _MASTERS in user.groups or await self._reviews.allowed(user, asked.attributes):
                return
        except NotAnswered as error:
            if error.busy:
                raise Refused(429, f"{error}: try again") from None
            _log.warning("visibility.user_unknown", path=asked.path, error=str(error))
            raise Refused(503, "the API server could not be asked what the user may do") from None
        raise Refused(403, asked.refusal(user.name))

    async def _user(self, scope: Scope) -> User:
        user = self._proxied(scope) or await self._bearer(scope)
        if user.name == ANONYMOUS.name or {_AUTHENTICATED, "system:unauthenticated"} & set(user.groups):
            return user
        return User(user.name, user.uid, (*user.groups, _AUTHENTICATED), user.extra)

    def _proxied(self, scope: Scope) -> User | None:
        name = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
        proxy = self._proxy()
        return proxy.user(scope["headers"]) if proxy.knows(name) else None

    async def _bearer(self, scope: Scope) -> User:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        if not header:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        user = await self._reviews.user(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise Refused(401, "Unauthorized")
        return user
