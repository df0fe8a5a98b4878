"""Asks the API server who sends a request to one of Turnstile's servers, and what that user may do.

A TokenReview answers whom a bearer token belongs to, a SubjectAccessReview whether a user may do something. Answers are
kept for a short time, in which a token or a right may outlive its end. Everybody who reaches a port can send tokens, so
the number of questions under way and of answers kept is limited, and tokens are kept as hashes only.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from turnstile.api.errors import TurnstileError, Unreadable
from turnstile.kube.transport import Transport

TOKEN_LIMIT: Final = 16 * 1024
"""Bytes of a token; a longer one is nobody's."""
_TIMEOUT: Final = 5.0

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class User:
    """authentication.k8s.io/v1 UserInfo."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class NotAnswered(TurnstileError):
    """It is not known who the user is or what the user may do; `busy` if too many such questions are under way."""

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class _Answers(Generic[A]):
    """The answers to one kind of question, each kept for its time."""

    def __init__(self, kept: int, clock: Callable[[], float]) -> None:
        self._kept = kept
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[A, float]] = OrderedDict()

    def get(self, key: bytes) -> tuple[A] | None:
        """The answer to a question, if it was asked not long ago."""
        known = self._known.get(key)
        return (known[0],) if known is not None and self._clock() < known[1] else None

    def keep(self, key: bytes, answer: A, seconds: float) -> A:
        """Remember an answer, and forget the oldest of too many."""
        self._known[key] = (answer, self._clock() + seconds)
        self._known.move_to_end(key)
        while len(self._known) > self._kept:
            self._known.popitem(last=False)
        return answer


class AccessReviews:
    """Authentication of bearer tokens and authorization of users by the API server.

    A positive answer is kept for `allowed_seconds`, a negative one for `refused_seconds`. At most `asked` questions are
    under way, and of each kind `kept` answers are remembered.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        allowed_seconds: float,
        refused_seconds: float,
        asked: int = 8,
        kept: int = 256,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._transport = transport
        self._allowed_seconds = allowed_seconds
        self._refused_seconds = refused_seconds
        self._limit = asked
        self._asked = 0
        read = clock if clock is not None else lambda: asyncio.get_running_loop().time()
        self._users: _Answers[User | None] = _Answers(kept, read)
        self._rights: _Answers[bool] = _Answers(kept, read)

    async def user(self, token: str) -> User | None:
        """Whom a token belongs to; None for a token that is not valid. Raises NotAnswered."""
        if not token or len(token) > TOKEN_LIMIT:
            return None
        key = hashlib.sha256(token.encode()).digest()
        if (known := self._users.get(key)) is not None:
            return known[0]
        found = await self._limited(self._token_review(token))
        return self._users.keep(key, found, self._seconds(positive=found is not None))

    async def allowed(self, user: User, attributes: Mapping[str, Any]) -> bool:
        """Whether a user may do what the attributes of a SubjectAccessReview say (`resourceAttributes` or
        `nonResourceAttributes`). Raises NotAnswered."""
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
            **attributes,
        }
        key = hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).digest()
        if (known := self._rights.get(key)) is not None:
            return known[0]
        found = await self._limited(self._access_review(spec))
        return self._rights.keep(key, found, self._seconds(positive=found))

    def _seconds(self, *, positive: bool) -> float:
        return self._allowed_seconds if positive else self._refused_seconds

    async def _limited(self, question: Awaitable[A]) -> A:
        if self._asked >= self._limit:
            question.close()  # type: ignore[attr-defined]
            raise NotAnswered("too many users are unknown at a time", busy=True)
        self._asked += 1
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await question
        except (TurnstileError, OSError, msgspec.MsgspecError) as error:  # OSError also for TimeoutError
            raise NotAnswered(str(error)) from error
        finally:
            self._asked -= 1

    async def _token_review(self, token: str) -> User | None:
        status = await self._review("authentication.k8s.io/v1", "TokenReview", "tokenreviews", {"token": token})
        if not status.get("authenticated"):
            return None
        user = status.get("user", {})
        extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
        return User(user.get("username", ""), user.get("uid", ""), tuple(user.get("groups") or ()), extra)

    async def _access_review(self, spec: dict[str, Any]) -> bool:
        plural = "subjectaccessreviews"
        status = await self._review("authorization.k8s.io/v1", "SubjectAccessReview", plural, spec)
        return bool(status.get("allowed"))

    async def _review(self, version: str, kind: str, plural: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        answer = await self._transport.request("POST", f"/apis/{version}/{plural}", body=body)
        status = msgspec.json.decode(answer, type=dict[str, Any]).get("status")
        if not isinstance(status, dict):  # the answer of something else: it says nothing about the user
            raise Unreadable(f"{kind}: answered without a status")
        return status
