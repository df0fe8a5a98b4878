"""The page that tells administrators what Turnstile may do says what its roles say."""

import pytest

from tests.unit.chart import rights
from tests.unit.chart.conftest import Render
from turnstile.jobs.generate import all_rights
from turnstile.jobs.registry import ALL

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds


def test_the_page_lists_exactly_what_the_roles_allow(render: Render) -> None:
    """For the default values; `python -m tests.unit.chart.rights` writes it."""
    assert rights.written() == rights.table(render())


def test_the_table_of_kinds_lists_exactly_what_the_accounts_may_do_with_jobs(render: Render) -> None:
    """The webhook's lists and watches them. Pods are on the page itself, with what else is done with them."""
    declared = {
        (right.group, right.resource, verb)
        for each in ALL
        for right in all_rights(each)
        for verb in right.verbs
        if right.group
    }
    manifests = render()
    assert rights.of_kinds(manifests, "turnstile-controller") == declared
    assert {verb for *_, verb in rights.of_kinds(manifests, "turnstile-webhook")} == {"list", "watch"}
