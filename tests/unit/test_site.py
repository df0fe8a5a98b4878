"""The map of the documentation, and what the site's builder makes of pages and finds wrong in a site."""

from pathlib import Path

from tests import site
from tests.documents import ROOT, pages

ELSEWHERE = {"docs/README.md", "certs/README.md"}
"""The map itself, and a page beside the keys that it is about."""


def test_the_map_has_every_page_once() -> None:
    """Each page is in the navigation under one heading; the README comes before all others."""
    listed = [str(page.relative_to(ROOT)) for entries in site.navigation().values() for _, page in entries]
    assert sorted(listed) == sorted(
        str(page.relative_to(ROOT)) for page in pages() if str(page.relative_to(ROOT)) not in ELSEWHERE
    )


def test_items_are_indented_for_markdown() -> None:
    """A list has an empty line before it, and what belongs to an item is indented by four, also in a fence."""
    page = "Do this:\n- one\n  goes on\n- two\n\n1. first:\n\n   ```\n   a:\n     - b\n   ```\n\nAfter.\n"
    assert site.for_markdown(page) == (
        "Do this:\n\n-   one\n    goes on\n-   two\n\n1.  first:\n\n    ```\n    a:\n      - b\n    ```\n\nAfter.\n"
    )


def test_a_fence_is_left_as_it_is() -> None:
    """Lists in YAML are not lists of the page."""
    page = "```yaml\nitems:\n- a:\n    - b\n```\n"
    assert site.for_markdown(page) == page


def test_broken_links_and_foreign_sources_are_found(tmp_path: Path) -> None:
    """A missing file, a missing heading, and a script of another server."""
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="other.html#here">good</a><a href="other.html#gone">no heading</a>'
        '<a href="none.html">no file</a><a href="https://example.com">elsewhere</a>'
        '<script src="https://example.com/x.js"></script>'
    )
    (tmp_path / "other.html").write_text('<h2 id="here"></h2><a href="index.html#top">back</a>')
    assert list(site.faults(tmp_path)) == [
        "index.html: fetches https://example.com/x.js",
        "index.html: other.html#gone: no such heading",
        "index.html: none.html: no such file",
    ]
