"""Writes the reference of reasons: `python -m turnstile.wording.reference FILE`.

Must never be imported by what runs: it is a tool of the build.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Final

from turnstile.engine.causes import Sentence
from turnstile.wording import causes, evictions, inactivity
from turnstile.wording.reading import Words

_HEADER: Final = """# Why a Workload waits

<!-- Generated from app/turnstile/wording by `make generate`; do not edit. -->

The conditions of a Workload and of a ClusterQueue have Kueue's sentences, to the letter. `turnstile explain`, the
[page](../tasks/page.md), [timelines](../tasks/timeline.md), `turnstile lint` and [warnings](../tasks/warnings.md) at
submission say the same in the words of the second column, with amounts and names where they are known.
[Find out why a Job waits](../tasks/why-a-job-waits.md) says how to ask.

"""
_TABLE: Final = "| Kueue's sentence | means | do |\n|---|---|---|"
_PARTS: Final[tuple[tuple[str, Mapping[Sentence, Words]], ...]] = (
    ("The condition `QuotaReserved` of a Workload that waits:", causes.WORDS),
    ("## Why a Workload loses its quota\n\nIts condition `Evicted`, and `QuotaReserved` until it is tried again:",
     evictions.WORDS),
    ("## Why a ClusterQueue admits nothing\n\nIts condition `Active`, which may have several of these:",
     inactivity.WORDS),
)  # fmt: skip


def page() -> str:
    """The page."""
    return _HEADER + "\n".join(f"{title}\n\n{_table(words)}" for title, words in _PARTS)


def _table(words: Mapping[Sentence, Words]) -> str:
    rows = (f"| `{_with(each.value, '<{}>')}` | {_with(says, '*{}*')} | {helps} |"
            for each, (says, helps) in words.items())  # fmt: skip
    return "\n".join((_TABLE, *rows, ""))


def _with(template: str, place: str) -> str:
    """The sentence with each place for data written like `place`."""
    parts = Formatter().parse(template)
    return "".join(literal + (_place(name, place) if name else "") for literal, name, _, _ in parts)


def _place(name: str, place: str) -> str:
    return f"{place.format('flavor')} nodes" if name == "nodes" else place.format(name.replace("_", " "))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
