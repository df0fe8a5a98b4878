"""Numbers and booleans in labels and annotations, read as Kueue reads them, with its words for what is none.

Python's own parsers take more (`1_000`, ` 7 `, digits of other scripts); what Kueue refuses has to be refused here.
"""

import re
from typing import Final

from app.api.validation.errors import quote

_is_integer = re.compile(r"[+-]?[0-9]+").fullmatch
_INT64: Final = 1 << 63
_INT32: Final = 1 << 31
_LONGEST: Final = 400
"""Characters that are converted at all; a longer number is out of range unless it is mostly zeros, and refused."""
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse_int(text: str) -> int | str:
    """The 64-bit integer a text stands for, or the sentence that explains why it is none."""
    if not _is_integer(text):
        return f"strconv.Atoi: parsing {quote(text)}: invalid syntax"
    number = int(text) if len(text) <= _LONGEST else _INT64
    if not -_INT64 <= number < _INT64:
        return f"strconv.Atoi: parsing {quote(text)}: value out of range"
    return number


def parse_int32(text: str) -> int | None:
    """The 32-bit integer a text stands for, or None."""
    number = parse_int(text)
    return number if isinstance(number, int) and -_INT32 <= number < _INT32 else None


def parse_bool(text: str) -> bool | str:
    """The boolean a text stands for, or the sentence that explains why it is none."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return f"strconv.ParseBool: parsing {quote(text)}: invalid syntax"
