"""Whole numbers in texts that others write: labels, annotations, fields of specs. The only parser of them.

Python reads more than Go (`1_000`, ` 7 `, digits of other scripts), and fails at more than 4,300 digits. Must never
fail and never grow. Kueue's words for a text that is no number are in `turnstile.api.gotext`.
"""

import re
from typing import Final

INT64: Final = 1 << 63
INT32: Final = 1 << 31
_is_integer = re.compile(r"[+-]?[0-9]+").fullmatch
_DIGITS: Final = 20
"""Digits of the largest number of 64 bits, and one more."""


def is_integer(text: str) -> bool:
    """Whether a text is a whole number, however large."""
    return _is_integer(text) is not None


def clamped(text: str) -> int | None:
    """The number that a text of digits stands for, at most the largest of 64 bits; None if it is none. For numbers
    that are compared, of which one that is too large means the same as the largest."""
    if not (text.isascii() and text.isdecimal()):
        return None
    return min(int(text.lstrip("0")[:_DIGITS] or "0"), INT64 - 1)


def parse_int64(text: str) -> int | None:
    """The 64-bit integer a text stands for; None if it is none, or out of range."""
    if not is_integer(text):
        return None
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits[:_DIGITS] or "0") * (-1 if text[0] == "-" else 1)
    return number if -INT64 <= number < INT64 else None


def parse_int32(text: str) -> int | None:
    """The 32-bit integer a text stands for; None if it is none, or out of range."""
    number = parse_int64(text)
    return number if number is not None and -INT32 <= number < INT32 else None
