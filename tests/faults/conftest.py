"""The order of the tests of faults where several processes do a file each."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The soak first: it is one test of minutes, and the other files are done beside it."""
    items.sort(key=lambda item: item.path.name != "test_soak.py")
