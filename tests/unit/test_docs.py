"""What the pages mention is there: make targets, files behind links, headings behind anchors."""

import re
import tomllib
from pathlib import Path

import pytest

from tests import modules
from tests.documents import FENCE, ROOT, SPAN, anchors, code, links, pages

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: Path) -> None:
    """`make run` and the like, also several in one command."""
    for line in code(page):
        command = re.match(r"make((?: [a-z-]+)+)(?= [A-Z]+=|\s*(?:#|$))", line)
        if command:
            assert set(command[1].split()) <= TARGETS, line


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file or folder of the repository, its anchor a heading in it."""
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_the_pages_are_looked_at() -> None:
    """The checks above see what they are for."""
    mentioned = [line for page in pages() for line in code(page)]
    assert "make test" in " ".join(mentioned)
    assert any("docs/" in link for link in links(ROOT / "README.md"))


def test_a_fragment_is_of_a_kind_that_the_changelog_knows() -> None:
    """Each is one line or a few, named as towncrier wants it; what else is in the folder would be left out."""
    types = {
        each["directory"] for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
    }
    for path in (ROOT / "changelog.d").iterdir():
        assert re.fullmatch(rf"[+\w-]+\.({'|'.join(types)})\.md", path.name), path.name
        assert path.read_text().strip(), f"{path.name} is empty"


def test_every_page_can_be_found() -> None:
    """From the README, by links, one reaches every page of docs/."""
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        todo += [page.parent / link.partition("#")[0] for link in links(page) if not re.match(r"[a-z]+:|#", link)]
    assert sorted(set((ROOT / "docs").rglob("*.md")) - seen) == []


def test_the_list_of_modules_is_fresh() -> None:
    """`python -m tests.modules` writes it."""
    assert modules.PAGE.read_text() == modules.page()


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    """A span like `kube/gate.py` is a path from the repository or from the package."""
    for name in SPAN.findall(FENCE.sub("", page.read_text())):
        if name.endswith("/flinkbatch.py"):  # the reader of docs/guides/new-kind.md writes it
            continue
        if re.fullmatch(r"[a-z_]+(/[a-z_]+)*/[a-z_]+\.py", name):
            assert any((start / name).exists() for start in (ROOT, modules.PACKAGE)), name
