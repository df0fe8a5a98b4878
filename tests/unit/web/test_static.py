"""Files that pages need are fetched once."""

import re

from turnstile.web.static import Static


def test_a_stylesheet_names_files_as_pages_do() -> None:
    """A browser that has the font from a page's link finds it under the same address in the stylesheet."""
    static = Static()
    style = bytes(static.answer("page.css", "").body).decode()
    named = re.findall(r'url\("([^"]+)"\)', style)
    assert [f"/static/{each}" for each in named] == [static.path("fonts/inter-latin.woff2")]
