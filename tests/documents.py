"""The pages people read: README, docs, examples. Finds what is in them; judges nothing."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    """Every page written for people, in order."""
    found = [
        *ROOT.glob("*.md"),
        *(path for folder in ("docs", "examples", "certs") for path in (ROOT / folder).rglob("*.md")),
    ]
    return sorted(found)


def steps(page: Path, *, section: str = "") -> list[tuple[str, str]]:
    """Language ("" for commands) and text of all fenced blocks, without the indentation of the item they stand in; with
    `section` of the section under that heading only."""
    whole = page.read_text()
    if section:
        _, found, whole = whole.partition(f"\n## {section}\n")
        assert found, f"{page.name} has no section {section!r}"
        whole = whole.partition("\n## ")[0]
    return [
        (kind, "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True)))
        for indent, kind, text in FENCE.findall(whole)
    ]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [text for kind, text in steps(page) if kind == language]


def code(page: Path) -> list[str]:
    """Everything in a page that is set as code: lines of command blocks, and words in backticks."""
    lines = [line for block in blocks(page, "") for line in block.splitlines()]
    return [*lines, *SPAN.findall(FENCE.sub("", page.read_text()))]


def with_tables(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with what stands between `<!-- NAME -->` and `<!-- end of NAME -->` made anew."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        assert found, f"the page has no {begin}"
        assert ended, f"the page has no {end}"
        text = before + begin + table() + end + after
    return text


def links(page: Path) -> list[str]:
    """Targets of the links outside of code."""
    return LINK.findall(SPAN.sub("", FENCE.sub("", page.read_text())))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes object in the pages' YAML blocks and in the example files, with where it stands. Configuration
    files, which have a kind but no metadata, are none."""
    texts = [(path, block) for path in pages() for block in blocks(path, "yaml")]
    texts += [(path, path.read_text()) for path in sorted((ROOT / "examples").rglob("*.yaml"))]
    for path, text in texts:
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and {"kind", "metadata"} <= document.keys():
                yield f"{path.relative_to(ROOT)}:{document['kind']}/{document['metadata']['name']}", document
