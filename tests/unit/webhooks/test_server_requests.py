"""The server answers reviews, and tells every other request what is wrong with it."""

import asyncio
import base64
import json

import pytest

from tests.unit.webhooks.conftest import PATH, Server
from tests.unit.webhooks.reviews import job
from turnstile.http import connections
from turnstile.http.bodies import BODY_LIMIT
from turnstile.http.connections import State

pytestmark = pytest.mark.asyncio


def review(**request: object) -> bytes:
    """The bytes of a review of a new Job."""
    body = {
        "uid": "u-1",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "operation": "CREATE",
        "namespace": "team-a",
        "object": job(),
        **request,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}).encode()


async def test_a_review_is_answered_with_its_uid_and_a_patch(server: Server) -> None:
    """The reply is an AdmissionReview v1 with a base64 JSON Patch."""
    reply = await (await server.connect()).ask("POST", f"{PATH}?timeout=5s", review())
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert (reply.json["apiVersion"], reply.json["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = reply.json["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    assert [each["path"] for each in json.loads(base64.b64decode(response["patch"]))] == [
        "/metadata/labels",
        "/spec/suspend",
    ]


async def test_a_refused_object_gets_a_forbidden_status(server: Server) -> None:
    """Denial is part of a successful answer: HTTP 200, status 403, and the reason as its message."""
    invalid = job(labels={"kueue.x-k8s.io/queue-name": "Not_A_Name"})
    reply = await (await server.connect()).ask("POST", "/validate-batch-v1-job", review(object=invalid))
    assert reply.status == 200
    assert reply.json["response"]["allowed"] is False
    assert reply.json["response"]["status"]["code"] == 403
    assert reply.json["response"]["status"]["reason"] == "Forbidden"
    assert "metadata.labels[kueue.x-k8s.io/queue-name]" in reply.json["response"]["status"]["message"]


async def test_a_dry_run_is_answered_like_any_other(server: Server) -> None:
    """No handler has a side effect, so nothing is different."""
    client = await server.connect()
    assert (await client.ask("POST", PATH, review(dryRun=True))).body == (await client.ask("POST", PATH, review())).body


async def test_many_requests_share_a_connection(server: Server) -> None:
    """Keep-alive holds over successes and failures alike."""
    client = await server.connect()
    for _ in range(3):
        assert (await client.ask("POST", PATH, review())).status == 200
        assert (await client.ask("POST", PATH, b"{")).status == 400
        assert (await client.ask("GET", "/nothing-here")).status == 404
        assert (await client.ask("POST", PATH, review(), content_type="text/plain")).status == 415


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"nonsense", "malformed"),
        (b"{}", "request"),
        (b"[" * 100_000, "AdmissionReview"),
        (b"\xff\xfe", "malformed"),
        (json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}).encode(), "uid"),
        (review(uid=""), "request.uid is empty"),
        (review().replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), "v1beta1"),
    ],
)
async def test_what_is_no_review_gets_400_and_a_reason(server: Server, body: bytes, reason: str) -> None:
    """The answer is a Kubernetes Status whose message names what is wrong."""
    reply = await (await server.connect()).ask("POST", PATH, body)
    assert reply.status == 400
    assert (reply.json["kind"], reply.json["reason"], reply.json["code"]) == ("Status", "BadRequest", 400)
    assert reason in reply.json["message"]


async def test_another_method_gets_405(server: Server) -> None:
    """The allowed method is named."""
    client = await server.connect()
    for method in ("GET", "PUT", "DELETE"):
        reply = await client.ask(method, PATH)
        assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert (await client.ask("POST", "/healthz")).status == 405


async def test_an_unknown_path_gets_404(server: Server) -> None:
    """As a Status too."""
    reply = await (await server.connect()).ask("POST", "/mutate-apps-v1-nothing", review())
    assert (reply.status, reply.json["reason"]) == (404, "NotFound")


@pytest.mark.parametrize("content_type", ["text/plain", "application/jsonx", ""])
async def test_another_content_type_gets_415(server: Server, content_type: str) -> None:
    """Only JSON is read."""
    reply = await (await server.connect()).ask("POST", PATH, review(), content_type=content_type)
    assert (reply.status, reply.json["reason"]) == (415, "UnsupportedMediaType")


async def test_parameters_of_the_content_type_do_not_matter(server: Server) -> None:
    """`application/json; charset=utf-8` is JSON."""
    reply = await (await server.connect()).ask("POST", PATH, review(), content_type="Application/JSON; charset=utf-8")
    assert reply.status == 200


class TestSize:
    """Three MiB are read and not a byte more."""

    async def test_the_limit_itself_is_fine(self, server: Server) -> None:
        """A body of exactly the limit is read."""
        body = review()
        reply = await (await server.connect()).ask("POST", PATH, body + b" " * (BODY_LIMIT - len(body)))
        assert reply.status == 200

    async def test_a_declared_length_over_the_limit_is_refused_unread(self, server: Server) -> None:
        """The answer comes before the body."""
        client = await server.connect()
        await client.send("POST", PATH, content_length=str(BODY_LIMIT + 1))
        reply = await client.reply()
        assert (reply.status, reply.json["reason"]) == (413, "RequestEntityTooLarge")
        assert reply.headers["connection"] == "close"

    async def test_a_long_body_is_refused_and_its_sender_still_hears_why(self, server: Server) -> None:
        """The body is not read, and the connection not closed before the sender has read the answer."""
        client = await server.connect()
        body = b" " * (BODY_LIMIT + 1_000_000)
        client.writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\n" % PATH.encode())
        client.writer.write(b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert (await client.reply()).status == 413
        assert await client.closed()

    async def test_a_body_of_chunks_is_refused(self, server: Server) -> None:
        """API servers declare the length; what surrounds chunks has none that could be limited."""
        client = await server.connect()
        await client.send("POST", PATH, content_length="", transfer_encoding="chunked")
        body = review()
        client.writer.write(b"%x\r\n%s\r\n" % (len(body), body))
        assert (await client.reply()).status == 411
        assert await client.closed()

    async def test_a_length_that_is_too_small_cuts_the_review_short(self, server: Server) -> None:
        """The rest is no request; both get 400 and the connection ends."""
        client = await server.connect()
        await client.send("POST", PATH, review(), content_length="20")
        assert (await client.reply()).status == 400

    async def test_a_length_that_is_too_large_ends_the_connection(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server waits for the rest until the deadline of a body."""
        monkeypatch.setitem(connections.DEADLINES, State.BODY, 0.1)
        client = await server.connect()
        await client.send("POST", PATH, review(), content_length="100000")
        assert await client.closed()

    async def test_a_client_that_goes_away_leaves_nothing_behind(self, server: Server) -> None:
        """Half a body and a reset are forgotten; the next client is served."""
        client = await server.connect()
        await client.send("POST", PATH, review(), content_length="100000")
        client.close()
        assert (await (await server.connect()).ask("POST", PATH, review())).status == 200


async def test_a_bug_gets_500_without_its_traceback(server: Server) -> None:
    """The API server applies its failure policy; the details stay in the log."""
    reply = await (await server.connect()).ask("POST", "/crash", review())
    assert (reply.status, reply.json["reason"]) == (500, "InternalError")
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body


async def test_two_hundred_connections_are_served(server: Server) -> None:
    """All of them, twice each, at the same time."""
    clients = await asyncio.gather(*(server.connect() for _ in range(200)))
    for _ in range(2):
        replies = await asyncio.gather(*(client.ask("POST", PATH, review()) for client in clients))
        assert {reply.status for reply in replies} == {200}


async def test_requests_are_counted_by_path_operation_and_outcome(server: Server) -> None:
    """`/metrics` shows reviews and how long they took; no label is made of what a client sent."""
    client = await server.connect()
    await client.ask("POST", PATH, review())
    await client.ask("POST", PATH, review(operation="DROP TABLE"))
    await client.ask("POST", PATH, b"{}")
    text = (await client.ask("GET", "/metrics")).body.decode()
    count = "turnstile_webhook_reviews_total"
    assert f'{count}{{operation="CREATE",outcome="mutated",path="{PATH}"}} 1.0' in text
    assert f'{count}{{operation="other",outcome="allowed",path="{PATH}"}} 1.0' in text
    assert f'{count}{{operation="other",outcome="BadRequest",path="{PATH}"}} 1.0' in text
    assert f'turnstile_webhook_review_duration_seconds_count{{path="{PATH}"}} 3.0' in text


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
async def test_the_server_does_not_describe_itself(server: Server, path: str) -> None:
    """Nobody needs it, and it costs more than a review."""
    assert (await (await server.connect()).ask("GET", path)).status == 404
