"""Refusals as a person with a browser sees them, and as a program does."""

import asyncio
import base64
import hashlib
import re

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

from tests.unit.web.asking import ask
from tests.unit.web.test_pages import words
from turnstile.http.bodies import Refused
from turnstile.web.application import create
from turnstile.web.cluster import _as_page
from turnstile.web.guard import Guard

pytestmark = pytest.mark.asyncio

GUARD = Guard(PlainTextResponse("inside"), token="secret")
BROWSER = {"accept": "text/html,application/xhtml+xml"}


async def test_a_browser_without_the_token_may_sign_in() -> None:
    """The page says where the token is, and takes it; its policy allows its own style and nothing else."""
    answer = await ask(GUARD, "/workloads", **BROWSER)
    assert answer.status == 401
    assert "Sign in Open the address that turnstile web printed" in words(answer.text)
    assert '<input type="password" name="token"' in answer.text
    assert "alert" not in answer.text
    style = re.search("<style>(.*)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"


async def test_a_wrong_token_is_said_to_be_wrong() -> None:
    """Otherwise the form would come back without a word."""
    assert "This token is not the one that was printed." in (await ask(GUARD, "/?token=guess", **BROWSER)).text


async def test_a_host_that_is_markup_is_escaped() -> None:
    """A refusal repeats the host of the request."""
    answer = await ask(GUARD, "/", host="<script>alert(1)</script>", accept="text/html")
    assert answer.status == 421
    assert "<script>" not in answer.text


async def test_a_program_gets_a_line_of_text() -> None:
    """As before there were pages for it."""
    answer = await ask(GUARD, "/", method="POST", cookie="turnstile-8765=secret")
    assert (answer.status, answer.text) == (405, "This page can only be read.\n")
    assert answer.headers["allow"] == "GET, HEAD"


async def test_a_page_that_fails_says_so() -> None:
    """A fault of the page is a page, and the fault goes on to the log."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"accept", b"text/html")]}
    with pytest.raises(AttributeError):
        await create(None, asyncio.Event())(scope, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 500
    assert "Something went wrong" in sent[1]["body"].decode()


@pytest.mark.parametrize(
    ("code", "says"), [(401, "kubectl proxy --port 8001"), (429, "Too many requests"), (503, "Reload the page")]
)
async def test_refusals_in_the_cluster(code: int, says: str) -> None:
    """For a browser that calls the Service itself."""
    scope = {"type": "http", "headers": [(b"accept", b"text/html")]}
    page = _as_page(Refused(code, "the reason"), scope)
    assert page.status_code == code
    assert says in words(bytes(page.body).decode())
