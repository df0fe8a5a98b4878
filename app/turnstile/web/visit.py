"""One request for the page: what its sender may see."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from turnstile.web.sight import EVERYTHING, Sight

KEY: Final = "turnstile.visit"
"""Where the scope of a request has it."""


async def everything(_: Collection[str]) -> Sight:
    """The sight of a reader whose own rights the objects were read with."""
    return EVERYTHING


async def anything(_: str) -> bool:
    """The right of a reader whose own rights pods are read with."""
    return True


@dataclass(frozen=True, slots=True)
class Visit:
    """Events of a page end after `seconds`, so that its browser asks again and is authenticated again."""

    sight: Callable[[Collection[str]], Awaitable[Sight]] = field(default=everything)
    """The sight of the sender now, given words of the request that may name namespaces."""
    lists_pods: Callable[[str], Awaitable[bool]] = field(default=anything)
    """Whether the sender may list the pods of a namespace; whose own rights they are read with may ask for them."""
    user: str = ""
    """Whose it is; empty on the reader's own machine."""
    seconds: float = float("inf")

    @property
    def rights(self) -> str:
        """Whose rights the page is made with, for its foot."""
        return f"with the rights of {self.user or 'the person who started it'}"


HERE: Final = Visit()
"""The visit of a page on the reader's own machine."""
