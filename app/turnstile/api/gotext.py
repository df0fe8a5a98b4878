"""Numbers and booleans in labels and annotations, read as Kueue reads them, with its words for what is none.

Python's own parsers take more (`1_000`, ` 7 `, digits of other scripts); what Kueue refuses has to be refused here.
"""

from typing import Final

from turnstile.api.numbers import is_integer, parse_int64
from turnstile.api.validation.errors import quote

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse_int(text: str) -> int | str:
    """The 64-bit integer a text stands for, or the sentence that explains why it is none."""
    if not is_integer(text):
        return f"strconv.Atoi: parsing {quote(text)}: invalid syntax"
    number = parse_int64(text)
    return number if number is not None else f"strconv.Atoi: parsing {quote(text)}: value out of range"


def parse_bool(text: str) -> bool | str:
    """The boolean a text stands for, or the sentence that explains why it is none."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return f"strconv.ParseBool: parsing {quote(text)}: invalid syntax"
