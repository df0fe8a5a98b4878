"""`python -m tests.site FOLDER` (`make docs`): a site with search of all pages that people read.

The map in docs/README.md is the navigation. Pages and the files that they link to are copied as they lie in the
repository, so relative links stay true. Afterwards every link of the site must lead to a file or heading of it, and no
page may fetch anything from elsewhere.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

from tests.documents import ROOT, links, pages

MAP = ROOT / "docs" / "README.md"
CONFIG = ROOT / "docs" / "zensical.toml"
ITEM = re.compile(r"( *)(?:[-*]|\d+\.) +")
_REMOTE = re.compile(r"(https?:)?//")


def navigation() -> dict[str, list[tuple[str, Path]]]:
    """Titles and pages below each heading of the map, in its order."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for part in re.split(r"^## ", MAP.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if entries := re.findall(r"^- \[([^\]]+)\]\(([^)#]+)\)", text, re.MULTILINE):
            found[heading] = [(title, (MAP.parent / name).resolve()) for title, name in entries]
    return found


def stage(folder: Path) -> None:
    """Copy the pages, the files that they link to, and the configuration with the navigation."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "pages"
    for page in pages():
        copy = source / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(for_markdown(page.read_text()))
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.is_file() and target.suffix != ".md":
                other = source / target.relative_to(ROOT)
                other.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target, other)
    lines = ['  {"Turnstile" = "README.md"},', '  {"Map and glossary" = "docs/README.md"},']
    for heading, entries in navigation().items():
        listed = ", ".join(f'{{"{title}" = "{page.relative_to(ROOT)}"}}' for title, page in entries)
        lines.append(f'  {{"{heading}" = [{listed}]}},')
    nav = "\n".join(["nav = [", *lines, "]"])
    (folder / "zensical.toml").write_text(CONFIG.read_text().replace("nav = []", nav))


def for_markdown(text: str) -> str:
    """A page as Python-Markdown reads it: items of a list have an empty line before them, and what belongs to an item
    is indented by four."""
    lines: list[str] = []
    widths: list[tuple[int, int]] = []
    """The indentation of the text of each item that is open, before and after."""
    fenced = ""
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        begun = bool(widths)
        while line.strip() and widths and indent < widths[-1][0]:
            widths.pop()
        before, after = widths[-1] if widths else (0, 0)
        moved = " " * (indent - before + after) + line.lstrip() if line.strip() else ""
        if fence := re.match(r" *(```+)", line):
            fenced = "" if fenced else fence[1]
        elif not fenced and (item := ITEM.match(line)):
            if not begun and lines and lines[-1]:
                lines.append("")
            widths.append((item.end(), len(moved) - len(moved.lstrip()) + 4))
            head, rest = line[len(item[1]) : item.end()].strip(), line[item.end() :]
            moved = f"{moved[: len(moved) - len(moved.lstrip())]}{head:<3} {rest}"
        lines.append(moved)
    return "\n".join(lines) + "\n"


class _Page(HTMLParser):
    """Targets of links, sources that a browser fetches, and ids of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag names."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and given.get("href"):
            self.targets.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.fetched.append(given.get("href", ""))
        elif tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.fetched.append(given["src"])


def faults(site: Path) -> Iterator[str]:
    """Links that lead nowhere, and what is fetched from elsewhere."""
    found = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in found.items():
        where = path.relative_to(site)
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for source in page.fetched:
            if _REMOTE.match(source):
                yield f"{where}: fetches {source}"
        for link in (*page.targets, *page.fetched):
            if re.match(r"[a-z]+:|//", link):
                continue
            name, anchor = urldefrag(link)
            target = (path.parent / unquote(name).partition("?")[0]).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{where}: {link}: no such file"
            elif anchor and target in found and unquote(anchor) not in found[target].ids:
                yield f"{where}: {link}: no such heading"


def main(folder: Path) -> int:
    """Build the site in `folder/site`. The exit code is 1 if a link of it leads nowhere."""
    stage(folder)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--config-file", str(folder / "zensical.toml")]
    subprocess.run(command, check=True)
    found = sorted(set(faults(folder / "site")))
    for each in found:
        print(each, file=sys.stderr)
    print(f"{folder / 'site' / 'index.html'}: {len(list((folder / 'site').rglob('*.html')))} pages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
