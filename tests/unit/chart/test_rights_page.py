"""The page that tells administrators what Turnstile may do says what its roles say."""

import pytest

from tests.unit.chart import rights
from tests.unit.chart.conftest import Render

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds


def test_the_page_lists_exactly_what_the_roles_allow(render: Render) -> None:
    """For the default values; `python -m tests.unit.chart.rights` writes it."""
    assert rights.written() == rights.table(render())
