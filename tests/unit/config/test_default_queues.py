"""What a rule of `defaultLocalQueues` must say, and what becomes of it."""

import pytest

from tests.unit.config.files import HEAD, OLD_HEAD, loaded, told
from turnstile.api.selectors import LabelSelector
from turnstile.jobs.options import DefaultQueueRule
from turnstile.process.configured import RELOADED, JobFlags

RULES = """
defaultLocalQueues:
- namespaceSelector: {matchLabels: {tier: research}}
  clusterQueue: research
- clusterQueueLabel: example.com/cluster-queue
"""


@pytest.mark.parametrize("head", [HEAD, OLD_HEAD], ids=["v1beta2", "v1beta1"])
def test_rules_keep_their_order(head: str) -> None:
    """The first with an answer counts; without a selector a rule is for all namespaces."""
    assert JobFlags().options(loaded(RULES, head=head)).default_local_queues == (
        DefaultQueueRule(namespaces=LabelSelector(match_labels={"tier": "research"}), cluster_queue="research"),
        DefaultQueueRule(namespaces=LabelSelector(), cluster_queue_label="example.com/cluster-queue"),
    )
    assert JobFlags().options(loaded(head=head)).default_local_queues == ()


def test_rules_are_read_again_when_the_file_changes() -> None:
    """They need no restart."""
    assert "defaultLocalQueues" in RELOADED


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("{}", "defaultLocalQueues[0].clusterQueue: Required value"),
        ("{clusterQueue: a, clusterQueueLabel: b}", "defaultLocalQueues[0].clusterQueueLabel: Forbidden"),
        ("{clusterQueue: A_b}", 'defaultLocalQueues[0].clusterQueue: Invalid value: "A_b"'),
        ("{clusterQueueLabel: a/b/c}", 'defaultLocalQueues[0].clusterQueueLabel: Invalid value: "a/b/c"'),
        (
            "{clusterQueue: a, namespaceSelector: {matchExpressions: [{key: k, operator: In}]}}",
            "defaultLocalQueues[0].namespaceSelector.matchExpressions[0].values: Required value",
        ),
    ],
)
def test_faults_name_the_field(rule: str, fault: str) -> None:
    """One fault each."""
    (found,) = told(f"defaultLocalQueues: [{rule}]")
    assert fault in found
