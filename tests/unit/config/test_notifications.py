"""What the section `notifications` must say, and what becomes of it."""

import pytest

from tests.unit.config.files import HEAD, OLD_HEAD, loaded, told
from turnstile.process.configured import NotificationOptions, notifications


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
