"""What the sections `notifications` and `traces` must say, and what becomes of them."""

import pytest

from tests.unit.config.files import HEAD, OLD_HEAD, loaded, told
from turnstile.process.configured import NotificationOptions, TraceOptions, notifications, traces


@pytest.mark.parametrize("head", [HEAD, OLD_HEAD], ids=["v1beta2", "v1beta1"])
def test_a_webhook_is_told_of_everything_by_default(head: str) -> None:
    """And of nothing without the section."""
    file = loaded("notifications: {url: 'https://hooks.example.com/queue'}", head=head)
    everything = frozenset({"started", "preempted", "cannotstart"})
    assert notifications(file, source="/own") == NotificationOptions(
        "https://hooks.example.com/queue", everything, "/own"
    )
    assert notifications(loaded(head=head), source="/own") is None


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("{}", "notifications.url: Required value"),
        ("{url: 'ftp://hooks.example.com'}", "must be http(s)://HOST[:PORT]/PATH"),
        ("{url: 'https://me:secret@hooks.example.com'}", "without a user or password"),
        ("{url: 'http://hooks.example.com', tokenFile: /etc/token}", "a token is sent by https only"),
        ("{url: 'https://hooks.example.com', events: [ended]}", 'notifications.events[0]: Unsupported value: "ended"'),
    ],
)
def test_faults_name_the_field(section: str, fault: str) -> None:
    """One fault each."""
    (found,) = told(f"notifications: {section}")
    assert fault in found


@pytest.mark.parametrize("head", [HEAD, OLD_HEAD], ids=["v1beta2", "v1beta1"])
def test_a_collector_gets_traces(head: str) -> None:
    """And nothing is sent without the section."""
    text = "traces: {endpoint: 'https://otel.example.com/v1/traces', resourceAttributes: {k8s.cluster.name: one}}"
    assert traces(loaded(text, head=head)) == TraceOptions(
        "https://otel.example.com/v1/traces", {"k8s.cluster.name": "one"}
    )
    assert traces(loaded(head=head)) is None


def test_the_token_of_a_collector_needs_encryption() -> None:
    """As that of a webhook."""
    (found,) = told("traces: {endpoint: 'http://otel.example.com/v1/traces', tokenFile: /etc/token}")
    assert "traces.tokenFile: Forbidden: a token is sent by https only" in found
