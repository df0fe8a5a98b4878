"""How many examples a test draws."""

import os
from typing import Final

_TIMES: Final = float(os.environ.get("EXAMPLES", "1"))


def examples(number: int) -> int:
    """So many, times EXAMPLES. The number is for every change; each night there are ten times as many."""
    return max(1, round(number * _TIMES))
