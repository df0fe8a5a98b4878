"""When a node counts as failed, as the configuration file says."""

import pytest

from tests.unit.config.files import loaded
from turnstile.api.errors import InvalidConfiguration
from turnstile.jobs.options import NodeFailureOptions
from turnstile.process.configured import JobFlags


def test_the_options_of_a_file() -> None:
    """Conditions are named, gates are Kueue's."""
    text = "nodeFailureConditions: [example.com/GPUUnhealthy]\nfeatureGates: {TASReplaceNodeOnNodeTaints: false}\n"
    options = JobFlags().options(loaded(text)).node_failures
    assert options == NodeFailureOptions(on_taints=False, conditions=frozenset(["example.com/GPUUnhealthy"]))
    assert JobFlags().options(loaded("")).node_failures == NodeFailureOptions()


@pytest.mark.parametrize("named", ["[Ready]", "[A, A]", '["a b"]'])
def test_names_that_make_no_sense(named: str) -> None:
    """Ready says that a node works."""
    with pytest.raises(InvalidConfiguration, match=r"nodeFailureConditions\[\d\]"):
        loaded(f"nodeFailureConditions: {named}\n")
