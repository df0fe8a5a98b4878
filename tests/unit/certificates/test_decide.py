"""The leader puts bundles right, writes only what is ours, and never hurries a rotation."""

import base64
import datetime as dt
import json
from typing import Any

import pytest

from turnstile.api.admissionregistration import (
    ManagedMeta,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    Webhook,
    WebhookClientConfig,
    WebhookConfiguration,
)
from turnstile.api.apiregistration import APIService, APIServiceSpec
from turnstile.api.core import Secret
from turnstile.api.meta import ObjectMeta
from turnstile.controllers.installation.certificates import (
    SETTLED_AFTER,
    Seen,
    decide,
    decide_api_service,
    decide_configuration,
)
from turnstile.controllers.runtime.actions import Create, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.http.certificates import Step, ca_bundle, carry_out, plan

HOSTS = ("turnstile-webhook-service.turnstile-system.svc",)
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def secret(data: dict[str, bytes]) -> Secret:
    """Our Secret with this data."""
    return Secret(metadata=ObjectMeta(name="cert", namespace="turnstile-system", resource_version="7"), data=data)


def configurations(*bundles: bytes) -> list[WebhookConfiguration]:
    """Both configurations, each with an entry for every bundle given."""
    entries = [
        Webhook(name=f"w{number}.kb.io", client_config=WebhookClientConfig(ca_bundle=bundle))
        for number, bundle in enumerate(bundles)
    ]
    meta = ManagedMeta(name="c", resource_version="9")
    return [
        kind(metadata=meta, webhooks=entries) for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)
    ]


def decided(seen: Seen) -> ReconcileResult:
    """The decision for our Secret."""
    return decide(seen, namespace="turnstile-system", name="cert", hosts=HOSTS)


def patches(decision: ReconcileResult) -> list[tuple[str, str, Any]]:
    """The writes: kind, type of patch, body."""
    return [(a.kind.KIND, a.type, json.loads(a.body)) for a in decision.actions if isinstance(a, Patch)]


def fresh() -> dict[str, bytes]:
    """Data of a new installation."""
    return carry_out(Step.START_OVER, {}, NOW, HOSTS)


def test_a_missing_secret_is_created() -> None:
    """With everything in it, in one write."""
    (create,) = decided(Seen(None, NOW)).actions
    assert isinstance(create, Create)
    assert sorted(json.loads(create.body)["data"]) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]


def test_the_empty_secret_of_the_chart_is_filled() -> None:
    """By a patch of this very version; told as an event about it."""
    decision = decided(Seen(secret({}), NOW))
    ((kind, how, body),) = patches(decision)
    assert (kind, how, body["metadata"]) == ("Secret", "merge", {"resourceVersion": "7"})
    assert [(a.type, a.reason) for a in decision.actions if isinstance(a, Emit)] == [("Normal", "CertificatesCreated")]


def test_when_all_is_well_it_only_looks_again() -> None:
    """No write; at least once an hour, for clocks that jump."""
    data = fresh()
    assert decided(Seen(secret(data), NOW, settled_for=100)).actions == [RequeueAfter(3600)]
    for configuration in configurations(ca_bundle(data)):
        assert decide_configuration(configuration, secret(data)).actions == []


@pytest.mark.parametrize("bundle", [b"", b"somebody else's"])
def test_a_wrong_bundle_is_put_right(bundle: bytes) -> None:
    """In all entries, and nothing but the bundle, of this very version."""
    data = fresh()
    expected = base64.b64encode(ca_bundle(data)).decode()
    for configuration in configurations(ca_bundle(data), bundle):
        ((kind, how, body),) = patches(decide_configuration(configuration, secret(data)))
        assert how == "apply"
        assert body == {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "c", "resourceVersion": "9"},
            "webhooks": [{"name": f"w{n}.kb.io", "clientConfig": {"caBundle": expected}} for n in range(2)],
        }


@pytest.mark.parametrize("lost", [None, secret({}), secret({"ca.crt": b"garbage"})])
def test_without_a_bundle_configurations_are_left_alone(lost: Secret | None) -> None:
    """Nothing is emptied because the Secret is damaged: what is installed may still be right."""
    for configuration in configurations(b"installed"):
        assert decide_configuration(configuration, lost).actions == []


def test_damage_is_told_as_a_warning() -> None:
    """Unlike the empty Secret of a new installation."""
    decision = decided(Seen(secret({"ca.crt": b"garbage"}), NOW))
    assert [(a.type, a.reason) for a in decision.actions if isinstance(a, Emit)] == [("Warning", "CertificatesCreated")]


def test_a_leaf_is_renewed_wherever_bundles_are() -> None:
    """Its CA is in them already."""
    assert (
        decided(Seen(secret(fresh()), NOW + 300 * DAY)).why
        == "two thirds of the lifetime of the serving certificate have passed"
    )


def test_a_leaf_changes_its_ca_only_after_the_bundles_have_settled() -> None:
    """Right everywhere for a while, as each API server takes a moment to notice."""
    later = NOW + 2450 * DAY
    data = carry_out(Step.STAGE_CA, carry_out(Step.ISSUE_LEAF, fresh(), later, HOSTS), later, HOSTS)
    for settled_for, switches in ((0.0, False), (SETTLED_AFTER / 2, False), (SETTLED_AFTER, True)):
        decision = decided(Seen(secret(data), later, settled_for))
        reasons = [action.reason for action in decision.actions if isinstance(action, Emit)]
        assert ("AuthoritySwitched" in reasons) == switches
        assert any(isinstance(action, RequeueAfter) for action in decision.actions) != switches


def test_keys_that_are_done_with_are_removed_and_others_kept() -> None:
    """After a switch the staged key is gone from the Secret; what is not ours stays."""
    later = NOW + 2450 * DAY
    data = carry_out(Step.STAGE_CA, carry_out(Step.ISSUE_LEAF, fresh(), later, HOSTS), later, HOSTS)
    data["note"] = b"keep"
    decision = decided(Seen(secret(data), later, SETTLED_AFTER))
    ((_, _, body),) = patches(decision)
    removed = sorted(key for key, value in body["data"].items() if value is None)
    assert removed == ["ca-next.crt", "ca-next.key"]
    assert "note" not in body["data"]
    assert "ca.crt" not in body["data"]  # as it was


def test_a_whole_rotation_by_its_own_writes() -> None:
    """Each decision, written and seen again, leads to the next, until nothing is due; one write at a time."""
    now = NOW + 2450 * DAY
    data = carry_out(Step.ISSUE_LEAF, fresh(), now, HOSTS)
    reasons: list[str] = []
    while len(reasons) < 10:
        decision = decided(Seen(secret(data), now, settled_for=SETTLED_AFTER))
        reasons += [action.reason for action in decision.actions if isinstance(action, Emit)]
        for _, _, body in patches(decision):
            for key, value in body["data"].items():
                data.pop(key, None)
                if value is not None:
                    data[key] = base64.b64decode(value)
        if not patches(decision):
            if plan(data, now + DAY, HOSTS, distributed=True).step is Step.NOTHING:
                break
            now += DAY
    assert reasons == ["AuthorityStaged", "AuthoritySwitched", "AuthorityDropped"]


@pytest.mark.parametrize("bundle", [b"", b"another"])
def test_an_api_service_gets_the_bundle(bundle: bytes) -> None:
    """Only that field is written, and only if nobody has changed the APIService since."""
    data = fresh()
    service = APIService(
        metadata=ObjectMeta(name="v1beta2.visibility.kueue.x-k8s.io", resource_version="9"),
        spec=APIServiceSpec(ca_bundle=bundle),
    )
    ((kind, _, body),) = patches(decide_api_service(service, secret(data)))
    assert kind == "APIService"
    encoded = base64.b64encode(ca_bundle(data)).decode()
    assert body == {"spec": {"caBundle": encoded}, "metadata": {"resourceVersion": "9"}}


def test_an_api_service_that_has_the_bundle_stays() -> None:
    """And one stays as it is while there is no bundle."""
    data = fresh()
    service = APIService(spec=APIServiceSpec(ca_bundle=ca_bundle(data)))
    assert patches(decide_api_service(service, secret(data))) == []
    assert patches(decide_api_service(service, secret({}))) == []
