"""How many objects a page of a list has."""

from hypothesis import given
from hypothesis import strategies as st

from turnstile.kube.pages import FIRST_PAGE, PAGE_BYTES, PAGE_GROWTH, PAGE_SIZE, next_page

KB = 1000


def sizes(each: int) -> list[int]:
    """The pages of a long list of objects of that many bytes, until they stay the same."""
    asked = [FIRST_PAGE]
    while len(asked) < 3 or asked[-1] != asked[-2]:
        asked.append(next_page(asked[-1], asked[-1], asked[-1] * each))
    return asked


def test_small_objects_come_in_full_pages_soon() -> None:
    """The first page is small, for nothing is known yet."""
    assert sizes(5 * KB) == [10, 50, 250, 250]


def test_large_objects_come_in_pages_of_so_many_bytes() -> None:
    """However large one is, at least one is asked for."""
    assert sizes(100 * KB)[-1] * 100 * KB <= PAGE_BYTES
    assert sizes(1000 * KB)[-1] == 4
    assert sizes(10_000 * KB)[-1] == 1


@given(st.integers(1, PAGE_SIZE), st.integers(0, PAGE_SIZE), st.integers(0, 2**30), st.integers(1, 500))
def test_a_page_is_never_empty_never_too_long_and_grows_slowly(asked: int, got: int, size: int, limit: int) -> None:
    """Whatever the server answered."""
    assert 1 <= next_page(asked, got, size, limit=limit) <= max(1, min(limit, asked * PAGE_GROWTH))
