"""Reads a collection page by page, and goes on after a failure at the page that failed.

All pages are of one snapshot. When the server has forgotten the snapshot (410), it offers a token for the rest of the
collection as it is now: the rest is read, and then the part before it once more, from its beginning to the place where
the snapshot was lost. The pages before that place are void, as half of an old and half of a new list would hide
changes. Every page that counts is then at least as new as the first of them, whose version is that of the whole read.
Where no token is offered, the whole collection is read again as one page.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from turnstile.api.errors import Expired, Unreadable
from turnstile.kube import answers

PAGE_SIZE: Final = 250
"""Maximum objects per page of a list. Parsing a page of so many average objects blocks the event loop for 0.5 ms."""
FIRST_PAGE: Final = 10
"""Objects of the first page: their size is still unknown, and each may have 1.5 MiB."""
PAGE_GROWTH: Final = 5
"""Maximum factor by which a page may have more objects than the previous page, as the next objects may be larger."""
PAGE_BYTES: Final = 4 * 2**20
"""Target size of a page in bytes."""

Query = Mapping[str, str | int]


def next_page(last: int, got: int, size: int, *, limit: int = PAGE_SIZE) -> int:
    """How many objects to request after a page for which `last` were requested and `got` arrived in `size` bytes."""
    fitting = PAGE_BYTES * got // size if size else limit
    return max(1, min(limit, last * PAGE_GROWTH, fitting))


class Pages:
    """One read of a collection. `fetch` sends the request for one page and returns the body of its answer."""

    def __init__(
        self,
        fetch: Callable[[Query], Awaitable[bytes]],
        *,
        query: Query,
        page_size: int = PAGE_SIZE,
        first: int = FIRST_PAGE,
    ) -> None:
        self._fetch = fetch
        self._page_size = page_size
        self._asked = min(page_size, first)
        self._given = dict(query)
        self._query: dict[str, str | int] = {**self._given, "limit": self._asked}
        self._last = ""
        self._until = ""
        self._gap = ""
        self._first = True
        self._done = False
        self.read = 0
        """Pages read so far, also those that are void now."""
        self.version = ""
        """The resourceVersion of the read: its pages are of that version, or newer."""

    async def next(self) -> tuple[bool, answers.Page] | None:
        """The next page, with whether all pages before it are void; None after the last page.

        Raises WireError and ApiError. Call it again to go on at the page that failed.
        """
        while not self._done:
            try:
                body = await self._fetch(self._query)
                page = answers.decode_page(body)
                last = answers.decode_header(page.items[-1]).key if page.items else self._last
            except Expired as error:
                if "continue" not in self._query:
                    raise
                self._lost(error)
                continue
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise Unreadable(f"the answer is no list: {error}") from error
            if page.items is None and not page.metadata.resource_version:
                raise Unreadable("the answer is no list: it has neither items nor a resourceVersion")
            first, self._first = self._first, False
            if first:
                self.version = page.metadata.resource_version
            self.read += 1
            self._last = last
            self._turn(page, len(body))
            return first, page
        return None

    def _lost(self, error: Expired) -> None:
        """Go on after the server has forgotten the snapshot."""
        self._first = True
        if error.rest and self._last:
            self._query["continue"] = error.rest
            self._until, self._gap = "", self._last
        else:
            self._until = self._gap = self._last = ""
            del self._query["continue"], self._query["limit"]

    def _turn(self, page: answers.Page, size: int) -> None:
        """Prepare the request for the page after this one."""
        items = page.items or ()
        if page.metadata.continue_ and not (self._until and self._last >= self._until):
            self._query["continue"] = page.metadata.continue_
        elif self._gap:
            self._until, self._gap = self._gap, ""
            self._query.pop("continue", None)
        else:
            self._done = True
        if "limit" in self._query:
            self._asked = next_page(self._asked, len(items), size, limit=self._page_size)
            self._query["limit"] = self._asked
