"""Numbers, lists and sentences of English. Must never know what they are about."""

from collections.abc import Sequence

from turnstile.engine.naming import OTHERS


def counted(count: int, one: str, many: str = "") -> str:
    """`1 Workload`, `2 Workloads`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(words: Sequence[str], *, most: int | None = None, joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; of more than `most` the first ones: `a, b and 3 more`."""
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    if not words:
        return ""
    *first, last = words
    return f"{', '.join(first)} {joint} {last}" if first else last


def several(names: Sequence[str]) -> bool:
    """Whether the verb after names is in the plural; one may count several: `2 Workloads of other namespaces`."""
    return len(names) != 1 or names[0] == OTHERS or (names[0][:1].isdigit() and not names[0].startswith("1 "))


def clause(text: str) -> str:
    """The sentence without its capital letter and full stop, to go on after a colon."""
    return text[:1].lower() + text[1:].removesuffix(".")


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop; an empty one stays empty."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
