"""The pages that tell what tests do say what the tests do."""

from tests.attacks import page
from tests.operators import page as table_page


def test_the_page_lists_every_attack() -> None:
    """`python -m tests.attacks.page` writes it."""
    text = page.PAGE.read_text()
    assert text == page.renewed(text)


def test_the_table_of_kinds_is_as_its_rows_say() -> None:
    """`python -m tests.operators.page` writes it into docs/testing.md."""
    text = table_page.PAGE.read_text()
    assert text == table_page.renewed(text)
