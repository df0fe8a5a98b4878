"""Writes the reference of reasons: `python -m turnstile.wording.reference FILE`.

Must never be imported by what runs: it is a tool of the build.
"""

import sys
from pathlib import Path
from string import Formatter
from typing import Final

from turnstile.engine.causes import Cause
from turnstile.wording.causes import WORDS

_HEADER: Final = """# Why a Workload waits

<!-- Generated from app/turnstile/wording by `make generate`; do not edit. -->

The condition `QuotaReserved` of a Workload that waits has Kueue's sentence, to the letter. `turnstile explain`, the
[page](../tasks/page.md) and [timelines](../tasks/timeline.md) say the same in the words of the second column, with
amounts and names where they are known. [Find out why a Job waits](../tasks/why-a-job-waits.md) says how to ask.

| Kueue's sentence | means | do |
|---|---|---|"""


def page() -> str:
    """The page."""
    rows = (
        f"| `{_with(each.value, '<{}>')}` | {_with(WORDS[each].says, '*{}*')} | {WORDS[each].helps} |" for each in Cause
    )
    return "\n".join((_HEADER, *rows, ""))


def _with(template: str, place: str) -> str:
    """The sentence with each place for data written like `place`."""
    parts = Formatter().parse(template)
    return "".join(literal + (_place(name, place) if name else "") for literal, name, _, _ in parts)


def _place(name: str, place: str) -> str:
    return f"{place.format('flavor')} nodes" if name == "nodes" else place.format(name.replace("_", " "))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
