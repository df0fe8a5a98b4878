"""Who sends a request to a server behind the API server's aggregator: delegated authentication.

The aggregator calls with a client certificate of its own and names its user in headers (the front proxy). The
authorities of that certificate, the names it may have and the names of the headers are in the ConfigMap
`kube-system/extension-apiserver-authentication`, which is watched. Another client sends a bearer token, which a
TokenReview tells the user of. Headers of a client without such a certificate are never read.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import structlog

from turnstile.api.core import ConfigMap
from turnstile.api.errors import InvalidValue
from turnstile.kube.caches import Caches
from turnstile.kube.reviews import AccessReviews, User

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "extension-apiserver-authentication"

ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))
MASTERS: Final = "system:masters"
"""The group whose users may do everything."""
_AUTHENTICATED: Final = "system:authenticated"

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
    """The content of the ConfigMap. Raises msgspec.DecodeError."""

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


class Callers:
    """Finds out who sends a request. To be made before the caches start, because it adds a kind to them.

    `trust` makes the server's TLS ask clients for certificates of these authorities (PEM).
    """

    def __init__(self, reviews: AccessReviews, caches: Caches, trust: Callable[[bytes], object]) -> None:
        self._reviews = reviews
        self._trust = trust
        self._proxy = FrontProxy()
        # Without the right to read it the front proxy is not known, and only bearers of tokens are answered.
        found = caches.of(
            ConfigMap, namespace=NAMESPACE, params={"fieldSelector": f"metadata.name={CONFIG_MAP}"}, optional=True
        )
        found.subscribe(lambda key, old, new: self._take(new))

    async def user(self, scope: Mapping[str, Any]) -> User | None:
        """The user who sends an ASGI request, `ANONYMOUS` without a token; None for a token that is not valid. Raises
        NotAnswered."""
        user = self._proxied(scope) or await self._bearer(scope)
        if user is None or user.name == ANONYMOUS.name:
            return user
        if {_AUTHENTICATED, "system:unauthenticated"} & set(user.groups):
            return user
        return User(user.name, user.uid, (*user.groups, _AUTHENTICATED), user.extra)

    def _proxied(self, scope: Mapping[str, Any]) -> User | None:
        name = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
        return self._proxy.user(scope["headers"]) if self._proxy.knows(name) else None

    async def _bearer(self, scope: Mapping[str, Any]) -> User | None:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        if not header:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        return await self._reviews.user(token.strip()) if scheme.lower() == "bearer" else None

    def _take(self, found: ConfigMap | None) -> None:
        if found is None or found.metadata.key != f"{NAMESPACE}/{CONFIG_MAP}":
            return
        try:
            proxy = front_proxy(found.data)
            self._trust(proxy.authorities)
        except (InvalidValue, msgspec.MsgspecError) as error:
            _log.warning("front_proxy.unusable", config_map=f"{NAMESPACE}/{CONFIG_MAP}", error=str(error))
            return
        self._proxy = proxy
        _log.info("front_proxy.known", names=sorted(proxy.names), users=proxy.users)
