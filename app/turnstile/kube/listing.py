"""One full read of a kind page by page, kept over failures until it is complete."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from turnstile.api.meta import Kind
from turnstile.kube.initial import Initial
from turnstile.kube.intake import Intake
from turnstile.kube.pages import Pages
from turnstile.kube.slices import in_slices

T = TypeVar("T", bound=Kind)


class Listing(Generic[T]):
    """Collects the objects of `pages`. `heard` is called after each page."""

    def __init__(self, pages: Pages, intake: Intake[T], heard: Callable[[], None]) -> None:
        self._pages = pages
        self._intake = intake
        self._heard = heard
        self._initial: Initial[T] = Initial()

    async def finish(self) -> Initial[T]:
        """Read all pages that are still to be read; return all objects.

        Raises WireError and ApiError. Call it again to go on at the page that failed.
        """
        while (found := await self._pages.next()) is not None:
            first, page = found
            if first:
                self._initial = Initial()
            self._heard()
            await asyncio.sleep(0)  # parsing the page took a slice of its own
            await in_slices(self._intake.take_page(self._initial, page))
            await asyncio.sleep(0)  # freeing the page takes another slice
            del found, page  # free the page before the next one arrives
        self._initial.version = self._pages.version
        return self._initial
