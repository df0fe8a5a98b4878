"""The nearest of some known names to one that is not among them, for errors about a typing error."""

import difflib
from collections.abc import Iterable
from typing import Final

_ALIKE: Final = 0.7
"""Names that are less alike than this are not proposed."""
_LISTED: Final = 10
"""Known names that are listed where none is near."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like `name`, however it is capitalized; empty if none is near."""
    folded = {each.casefold(): each for each in known}
    found = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_ALIKE)
    return folded[found[0]] if found else ""


def proposed(name: str, known: Iterable[str]) -> str:
    """A cure for a name that does not exist: the nearest one, or else those that there are."""
    there = sorted(set(known))
    if near := nearest(name, there):
        return f"did you mean {near}?"
    if not there:
        return "there is none"
    return f"there are: {', '.join(there[:_LISTED])}{', ...' if len(there) > _LISTED else ''}"
