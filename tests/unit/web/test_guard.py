"""Which requests are answered, and what every answer forbids a browser."""

import pytest
from starlette.responses import PlainTextResponse

from tests.unit.web.asking import ask
from turnstile.web.guard import Guard

pytestmark = pytest.mark.asyncio

GUARD = Guard(PlainTextResponse("inside"), token="secret")
COOKIE = {"cookie": "turnstile-8765=secret"}


async def test_the_token_is_exchanged_for_a_cookie() -> None:
    """The address that was printed leads to the same page without the token, and sets a cookie for that port."""
    answer = await ask(GUARD, "/workloads?q=a&token=secret")
    assert (answer.status, answer.headers["location"]) == (303, "/workloads?q=a")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("turnstile-8765=secret;")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert (await ask(GUARD, "/", **COOKIE)).text == "inside"


@pytest.mark.parametrize("cookie", ["", "turnstile-8765=other", "turnstile-1=secret", "turnstile-8765", "\x01=,;"])
async def test_without_the_token(cookie: str) -> None:
    """Another user of the machine reads no page."""
    answer = await ask(GUARD, "/?token=guess", cookie=cookie)
    assert answer.status == 401
    assert "Open the address that `turnstile web` printed" in answer.text


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:8765", "", "127.0.0.1.attacker.example"])
async def test_names_of_other_sites(host: str) -> None:
    """A name that was made to lead here is refused, also with the cookie."""
    assert (await ask(GUARD, "/", host=host, **COOKIE)).status == 421


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST:8765"])
async def test_names_of_this_machine(host: str) -> None:
    """All that a browser may call it."""
    assert (await ask(GUARD, "/", host=host, **COOKIE)).text == "inside"


async def test_nothing_can_be_written() -> None:
    """Every method but GET and HEAD is refused."""
    assert (await ask(GUARD, "/", method="POST", **COOKIE)).status == 405


async def test_what_another_site_makes_a_browser_ask() -> None:
    """Its scripts and images get nothing; a link to a page is a navigation."""
    crossing = {"sec_fetch_site": "cross-site", **COOKIE}
    assert (await ask(GUARD, "/", sec_fetch_mode="no-cors", **crossing)).status == 403
    assert (await ask(GUARD, "/", sec_fetch_mode="navigate", **crossing)).status == 200


async def test_every_answer_forbids_what_is_inline_or_foreign() -> None:
    """Also a refusal."""
    for answer in (await ask(GUARD, "/", **COOKIE), await ask(GUARD, "/")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
