"""Answers ConversionReview v1: converts objects between versions of Turnstile's API for the API server.

The API server sends a review whenever a client reads or writes an older version of a kind whose versions differ; reads
and writes of the stored version cause no review. Objects are converted one at a time, so that a long list neither
delays admission reviews nor needs more memory than its bytes. An object that cannot be converted fails the review with
a message, never with a 5xx.
"""

import asyncio
import time
from typing import Final

import msgspec
import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Receive, Scope, Send

from turnstile.api import names
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Object
from turnstile.api.v1beta1.conversion import convert
from turnstile.http.bodies import Refused, Turns, answer, body_of, refuse
from turnstile.http.health import Health
from turnstile.webhooks.review import Malformed, read_review

PATH: Final = "/convert"
TURNS: Final = 3
"""Large conversions at a time. One holds four times its bytes: the review, the converted objects, twice the answer."""
API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "ConversionReview"
_SLICE: Final = 0.001
_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)

_log = structlog.get_logger(__name__)


class _Request(Object):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: list[msgspec.Raw]


class _Review(Object):
    request: _Request
    api_version: str = ""
    kind: str = ""


_reviews: Final = msgspec.json.Decoder(_Review)


class Conversions:
    """The ASGI application that answers `/convert` and leaves every other path to `app`.

    Everybody may ask: no API server presents a certificate when it calls a conversion webhook. So large conversions
    have turns of their own.
    """

    def __init__(self, app: ASGIApp, *, health: Health, registry: CollectorRegistry, turns: Turns) -> None:
        self._app = app
        self._turns = turns
        self._health = health
        self._objects = Counter(
            "turnstile_webhook_conversions_total",
            "Objects to be converted between versions, by outcome.",
            ("outcome",),
            registry=registry,
        )
        self._seconds = Histogram(
            "turnstile_webhook_conversion_duration_seconds",
            "Time from the head of a conversion review to its answer.",
            buckets=_BUCKETS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        try:
            async with body_of(scope, receive, self._turns) as body:
                if body is None:
                    return
                try:
                    request = read(body)
                except Malformed as error:
                    raise Refused(400, str(error)) from None
                del body
                reply, converted = await review(request)
                self._objects.labels("converted" if converted else "failed").inc(len(request.objects))
                del request
                await answer(send, 200, reply, closing=self._health.draining)
        except Refused as refused:
            await refuse(send, refused, closing=self._health.draining)
        self._seconds.observe(time.perf_counter() - started)


def read(body: bytes) -> _Request:
    """The request of a conversion review. Raises Malformed with a sentence that names the field."""
    return read_review(body, _reviews, api_version=API_VERSION, kind=KIND).request


async def review(request: _Request) -> tuple[bytes, bool]:
    """The ConversionReview that answers a request, and whether the conversion succeeded."""
    converted = []
    pause = time.perf_counter() + _SLICE
    for index, raw in enumerate(request.objects):
        try:
            converted.append(_convert(raw, request.desired_api_version))
        except InvalidValue as error:
            return _failure(request.uid, f"{_title(index, raw)}: {error}"), False
        except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError) as error:
            return _failure(request.uid, f"{_title(index, raw)}: no JSON that can be read: {error}"), False
        except Exception:
            _log.exception("conversion.failed", uid=request.uid, index=index, desired=request.desired_api_version)
            message = f"{_title(index, raw)}: the conversion failed; the log of the webhook has the reason"
            return _failure(request.uid, message), False
        if time.perf_counter() > pause:
            await asyncio.sleep(0)
            pause = time.perf_counter() + _SLICE
    head = {"uid": request.uid, "result": {"status": "Success"}}
    return _reply(orjson.dumps(head)[:-1] + b',"convertedObjects":[' + b",".join(converted) + b"]}"), True


def _convert(raw: msgspec.Raw, desired: str) -> bytes:
    group, _, version = desired.partition("/")
    if group != names.GROUP:
        raise InvalidValue("desiredAPIVersion", desired, f"this converts within {names.GROUP}")
    return orjson.dumps(convert(orjson.loads(memoryview(raw)), version))


def _failure(uid: str, message: str) -> bytes:
    return _reply(msgspec.json.encode({"uid": uid, "result": {"status": "Failure", "message": message}}))


def _reply(response: bytes) -> bytes:
    return b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":' + response + b"}"


class _Metadata(Object):
    name: str = ""
    namespace: str = ""


class _Named(Object):
    kind: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _title(index: int, raw: msgspec.Raw) -> str:
    """Kind and name of the object for messages, or its index in the request if it does not decode."""
    try:
        named = msgspec.json.decode(raw, type=_Named)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"objects[{index}]"
    meta = named.metadata
    return f"{named.kind} {meta.namespace}/{meta.name}" if meta.namespace else f"{named.kind} {meta.name}"
