"""Reads recorded cases: one `<suite>.jsonl` a test function, a line of description, then one case a line."""

import json
import os
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
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
    """Cases that do not apply, and why: a pattern of suites, and optionally a text that the case must contain."""

    suites: str
    reason: str
    containing: tuple[str, ...]


def directory() -> Path:
    """Where the cases are."""
    return Path(os.environ.get("CASES_DIR") or ROOT.parent / "shared" / "cases").resolve()


def suites(patterns: tuple[str, ...] = ("*",)) -> list[Path]:
    """Files of the suites that match a pattern, by name."""
    return sorted(
        path for path in directory().glob("*.jsonl") if any(fnmatchcase(path.stem, pattern) for pattern in patterns)
    )


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


def exclusions() -> list[Exclusion]:
    """The data file of what does not apply."""
    data = tomllib.loads((Path(__file__).parent / "not_applicable.toml").read_text(encoding="utf-8"))
    return [
        Exclusion(suites, item["reason"], tuple(item.get("containing", ())))
        for item in data["exclusion"]
        for suites in item["suites"]
    ]


def excluded(case: Case, rules: list[Exclusion]) -> str | None:
    """Why a case does not apply, if it does not."""
    text: str | None = None
    for rule in rules:
        if not fnmatchcase(case.suite, rule.suites):
            continue
        if not rule.containing:
            return rule.reason
        if text is None:
            text = json.dumps(case.body)
        if any(part in text for part in rule.containing):
            return rule.reason
    return None
