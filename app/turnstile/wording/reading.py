"""Reads Kueue's sentences back into causes and data.

So a condition, a decision and a record of the past get the same words. Must never take long: others write messages
too, of 32 KiB at most.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from string import Formatter
from typing import Final, NamedTuple

from turnstile.engine.causes import Sentence
from turnstile.engine.naming import OTHER


class Words(NamedTuple):
    """The sentence of a cause, with the places of its data, and what helps."""

    says: str
    helps: str


class Given(NamedTuple):
    """A cause with its data, as a condition has it; `pod_set` is empty where it is about the whole Workload."""

    cause: Sentence
    pod_set: str
    data: Mapping[str, str]


def read(kind: type[Sentence], message: str) -> Iterator[Given]:
    """The causes of one kind in Kueue's sentences, in their order."""
    pod_set = ""
    for found in _reader(kind).finditer(message):
        if found["of"]:
            pod_set = found["of"]
            continue
        data = {
            name.partition("__")[2]: value
            for name, value in found.groupdict().items()
            if value is not None and "__" in name
        }
        yield Given(kind[str(found.lastgroup)], data.get("pod_set", pod_set), data)


_LAYER: Final = r"\d+/\d+ slice\(s\) fit on level [^\s;]+?"
_NAMES: Final = r"[^\s,]+(?:,[^\s,]+)*"
_PLACES: Final = {
    "added": r"[^}]{,99}",
    "answers": r".+",
    "cohorts": r"[^\s,]+(?: -> [^\s,]+)*",
    "count": r"\d+",
    "effect": r"[^\s}]*",
    "error": r".+?(?=; couldn't assign flavors|; failed to assign flavors|$)",
    "excluded": r"[^:;]+: \d+(?:, [^:;]+?: \d+)*",
    "flavors": r"[^\s,]+(?:, [^\s,]+)*",
    "gates": r".+",
    "hosts": r"[^\s,]+(?:, ?[^\s,]+)*",
    "kind": r"LocalQueue|ClusterQueue",
    "layers": rf"{_LAYER}(?:; {_LAYER})*(?=\. Total nodes|[,.;]? |$)",
    "missing": _NAMES,
    "more": r"[^\s,]+",
    "named": _NAMES,
    "others": _NAMES,
    "ours": r"\S*",
    "pods": r"\d+",
    "theirs": r"[^\s,;]*",
    "value": r"\S*",
    "victim": rf"Workload [^\s;]+|(?i:{OTHER})",
    "violations": r".+",
    "why": r"[^;]{,99}",
}
"""How data looks in a sentence; all other data is a name. Each ends soon where a sentence turns out to be none."""
_NAME: Final = r"""[^\s,;"()]+"""


@cache
def _reader(kind: type[Sentence]) -> re.Pattern[str]:
    """Any of the sentences, each of which begins with a word: no other place is tried, for there are dozens of them."""
    sentences = "|".join((r"couldn't assign flavors to pod set (?P<of>[^\s:]+):", *map(_pattern, kind)))
    return re.compile(rf"(?<!\w)(?=\w)(?:{sentences})", re.DOTALL)


def _pattern(cause: Sentence) -> str:
    """A regular expression of Kueue's sentence, with a group for each datum, all in a group of the cause's name."""
    known: set[str] = set()
    parts: list[str] = []
    for literal, name, _, _ in Formatter().parse(cause.value):
        parts.append(re.escape(literal))
        if name is None:
            continue
        group = f"{cause.name}__{name}"
        parts.append(f"(?P={group})" if name in known else f"(?P<{group}>{_PLACES.get(name, _NAME)})")
        known.add(name)
    return f"(?P<{cause.name}>{''.join(parts)})"
