"""The page that tells what tenants have tried says what the tests of attacks do."""

from tests.attacks import page


def test_the_page_lists_every_attack() -> None:
    """`python -m tests.attacks.page` writes it."""
    text = page.PAGE.read_text()
    assert text == page.renewed(text)
