"""Reads recorded cases: one `<suite>.jsonl` a test function, a line of description, then one case a line."""

import json
import os
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
Json = Any


class Case(NamedTuple):
    """One recorded case."""

    suite: str
    name: str
    body: dict[str, Json]

    @property
    def id(self) -> str:
        """As pytest shows it."""
        return f"{self.suite}::{self.name}"


class Exclusion(NamedTuple):
    """Cases that do not apply, and why: a pattern of suites, and optionally texts of which the case must contain one,
    and texts of which it must contain all."""

    suites: str
    reason: str
    containing: tuple[str, ...]
    all_of: tuple[str, ...]


class NotRead(Exception):
    """A case holds a table, a call or a value that no adapter knows: nobody can tell whether we decide as it says."""


def directories() -> list[Path]:
    """Where the cases are: the directory `CASES_DIR`, or all those that are kept beside the project."""
    chosen = os.environ.get("CASES_DIR")
    shared = ROOT.parent / "shared"
    found = [Path(chosen)] if chosen else sorted(shared.glob("cases*"))
    return [path.resolve() for path in found]


def suites(patterns: tuple[str, ...] = ("*",)) -> list[Path]:
    """Files of the suites that match a pattern, by name. The cases of a suite may be in several files."""
    found = (path for directory in directories() for path in directory.glob("*.jsonl"))
    return sorted(
        (path for path in found if any(fnmatchcase(path.stem, pattern) for pattern in patterns)),
        key=lambda path: (path.stem, path),
    )


def absent() -> str:
    """What to tell when there are no cases."""
    places = ", ".join(map(str, directories())) or f"{ROOT.parent / 'shared'}/cases*"
    return f"no recorded cases in {places}: set CASES_DIR to their directory"


def read(path: Path) -> Iterator[Case]:
    """The cases of a suite. Cases of the same name are numbered."""
    seen: dict[str, int] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            body = json.loads(line)
            if "_suite" in body:
                continue
            name = body.get("name") or body.get("test") or "case"
            seen[name] = seen.get(name, 0) + 1
            yield Case(path.stem, name if seen[name] == 1 else f"{name} #{seen[name]}", body)


@cache
def passed_over() -> dict[str, str]:
    """Calls that are passed over on purpose: a pattern of their names, alone or behind an adapter's; and the reason."""
    data = tomllib.loads((Path(__file__).parent / "passed_over.toml").read_text(encoding="utf-8"))
    return {pattern: item["reason"] for item in data["call"] for pattern in item["names"]}


def pass_over(call: str) -> None:
    """Go on without a call that no adapter knows. Raises NotRead if it is not known to change nothing."""
    if not any(fnmatchcase(call, pattern) for pattern in passed_over()):
        raise NotRead(f"the runner does not know the call {call}")


def exclusions() -> list[Exclusion]:
    """The data file of what does not apply."""
    data = tomllib.loads((Path(__file__).parent / "not_applicable.toml").read_text(encoding="utf-8"))
    return [
        Exclusion(suites, item["reason"], tuple(item.get("containing", ())), tuple(item.get("all_of", ())))
        for item in data["exclusion"]
        for suites in item["suites"]
    ]


def excluded(case: Case, rules: list[Exclusion]) -> str | None:
    """Why a case does not apply, if it does not."""
    text: str | None = None
    for rule in rules:
        if not fnmatchcase(case.suite, rule.suites):
            continue
        if not (rule.containing or rule.all_of):
            return rule.reason
        if text is None:
            text = json.dumps(case.body)
        if all(part in text for part in rule.all_of) and (
            not rule.containing or any(part in text for part in rule.containing)
        ):
            return rule.reason
    return None
