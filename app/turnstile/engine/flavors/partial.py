"""Partial admission: fewer pods for pod sets that allow it, as many as fit.

Cuts are spread over the pod sets in proportion to what each can spare. Source: KEP-420, Kueue's pod set reducer.
Must never know what fits: the caller says.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from turnstile.engine.pace import Sliced

T = TypeVar("T")


def search(
    counts: Sequence[int], min_counts: Sequence[int | None], fits: Callable[[list[int]], Sliced[T | None]]
) -> Sliced[T | None]:
    """The answer of `fits` for the largest counts that it accepts, None if there are none or nothing can be spared.

    The full counts are taken as refused. Assumes that fewer pods fit whenever more do; if that does not hold for what
    was probed, there is no answer.
    """
    spare = [
        0 if minimum is None else max(0, count - minimum) for count, minimum in zip(counts, min_counts, strict=True)
    ]
    total = sum(spare)
    if total == 0:
        return None
    found: tuple[int, T] | None = None
    low, high = 0, total + 1
    while low < high:
        cut = (low + high) // 2
        answer = yield from fits([count - each * cut // total for count, each in zip(counts, spare, strict=True)])
        if answer is not None:
            found = cut, answer
            high = cut
        else:
            low = cut + 1
    return found[1] if found is not None and found[0] == low else None
