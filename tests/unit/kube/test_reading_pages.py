"""A collection is read page by page, whatever happens between two pages."""

import json
from collections import deque

import pytest

from turnstile.api.errors import ConnectionLost, Expired, NotServed, TooManyRequests
from turnstile.kube.pages import Pages, Query

pytestmark = pytest.mark.asyncio


class Server:
    """Objects by name, of which each page has two, and what happens to the next requests."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.version = 10
        self.troubles: deque[Exception | None] = deque()
        self.asked: list[str] = []

    async def page(self, query: Query) -> bytes:
        """Answer the request for a page: tokens are names, the last one that was read."""
        token = str(query.get("continue", ""))
        self.asked.append(token)
        trouble = self.troubles.popleft() if self.troubles else None
        if trouble is not None:
            raise trouble
        left = sorted(name for name in self.names if name > token)
        size = 2 if "limit" in query else len(left)
        metadata = {"resourceVersion": str(self.version), "continue": left[size - 1] if left[size:] else ""}
        return json.dumps({"metadata": metadata, "items": [{"metadata": {"name": n}} for n in left[:size]]}).encode()


async def read(server: Server) -> tuple[list[str], str]:
    """All names, however often a page has to be requested, and the version."""
    pages, found = Pages(server.page, query={}), list[str]()
    while True:
        try:
            got = await pages.next()
        except (ConnectionLost, TooManyRequests):
            continue
        if got is None:
            return found, pages.version
        first, page = got
        found = [*([] if first else found), *(json.loads(bytes(each))["metadata"]["name"] for each in page.items or ())]


def expired(rest: str = "") -> Expired:
    """The answer that a page token is too old."""
    error = Expired(410, "Expired", "the token is too old")
    error.rest = rest
    return error


async def test_a_page_that_fails_is_read_again_by_itself() -> None:
    """The pages before it are not."""
    server = Server(*"abcdef")
    server.troubles.extend([None, ConnectionLost("cut"), TooManyRequests(429, "TooManyRequests", "busy"), None])
    assert await read(server) == (list("abcdef"), "10")
    assert server.asked == ["", "b", "b", "b", "d"]


async def test_the_rest_of_a_list_that_expired_is_read_first_and_then_its_beginning() -> None:
    """So that everything is as new as the first page that counts, and nothing is asked for that is known."""
    server = Server(*"abcdef")
    pages = Pages(server.page, query={})
    server.troubles.extend([None, None])
    for _ in range(2):
        assert await pages.next() is not None
    server.troubles.append(expired(rest="d"))
    server.version, server.names = 20, list("acdefg")
    found: list[tuple[bool, int]] = []
    while (got := await pages.next()) is not None:
        found.append((got[0], len(got[1].items or ())))
    assert found == [(True, 2), (False, 1), (False, 2), (False, 2)]
    assert server.asked == ["", "b", "d", "d", "f", "", "c"]
    assert pages.version == "20"


async def test_a_list_that_expired_without_a_token_is_read_in_one_piece() -> None:
    """Half of an old list is no use."""
    server = Server(*"abcdef")
    server.troubles.extend([None, expired()])
    assert await read(server) == (list("abcdef"), "10")
    assert server.asked == ["", "b", ""]


async def test_a_kind_that_is_gone_ends_the_read() -> None:
    """What follows is for the caller to decide."""
    server = Server(*"abcd")
    server.troubles.extend([None, NotServed(404, "NotFound", "no such kind")])
    with pytest.raises(NotServed):
        await read(server)
