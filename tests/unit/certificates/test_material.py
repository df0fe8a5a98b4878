"""A CA and a leaf that strict TLS clients accept for the names they are made for, and for no others."""

import datetime as dt
import ssl
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from turnstile.api.errors import InvalidValue
from turnstile.http.certificates import KeyPair, make_ca, make_leaf, service_hosts


def served(leaf: KeyPair) -> dict[str, bytes]:
    """The leaf as Secret data."""
    return {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}


@pytest.fixture
def today() -> dt.datetime:
    """The real time: OpenSSL validates by it."""
    return dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    "host",
    [
        "turnstile-webhook-service.turnstile-system.svc",
        "turnstile-webhook-service.turnstile-system.svc.cluster.local",
        "127.0.0.1",
        "::1",
        "localhost",
    ],
)
def test_a_client_that_trusts_the_ca_accepts_the_leaf(
    handshake: Callable[..., None], today: dt.datetime, host: str
) -> None:
    """A real handshake under strict X.509 rules works for each Service name and each extra host or address."""
    ca = make_ca(today)
    hosts = (*service_hosts("turnstile-webhook-service", "turnstile-system"), "127.0.0.1", "::1", "localhost")
    handshake(served(make_leaf(ca, today, hosts)), ca.certificate_pem, host)


def test_another_name_is_refused(handshake: Callable[..., None], today: dt.datetime) -> None:
    """The leaf is for its names only."""
    ca = make_ca(today)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(served(make_leaf(ca, today, ["a.b.svc"])), ca.certificate_pem, "a.c.svc")


def test_another_ca_is_not_taken_for_ours(handshake: Callable[..., None], today: dt.datetime) -> None:
    """A leaf of one CA is refused by who trusts another, though both are called alike."""
    leaf = make_leaf(make_ca(today), today, ["a.b.svc"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(served(leaf), make_ca(today).certificate_pem, "a.b.svc")


def test_two_authorities_side_by_side_both_count(handshake: Callable[..., None], today: dt.datetime) -> None:
    """A bundle of old and new CA accepts leafs of either, in either order."""
    old, new = make_ca(today), make_ca(today)
    for bundle in (old.certificate_pem + new.certificate_pem, new.certificate_pem + old.certificate_pem):
        for ca in (old, new):
            handshake(served(make_leaf(ca, today, ["a.b.svc"])), bundle, "a.b.svc")


def test_a_client_whose_clock_is_behind_accepts_a_new_leaf(now: dt.datetime) -> None:
    """Certificates begin five minutes before they are made."""
    ca = make_ca(now)
    leaf = make_leaf(ca, now, ["a.b.svc"])
    for pair in (ca, leaf):
        assert pair.certificate.not_valid_before_utc == now - dt.timedelta(minutes=5)


def test_lives(now: dt.datetime) -> None:
    """The CA lives ten years, the leaf one, both on P-256."""
    ca = make_ca(now)
    leaf = make_leaf(ca, now, ["a.b.svc"])
    assert ca.certificate.not_valid_after_utc == now + dt.timedelta(days=3650)
    assert leaf.certificate.not_valid_after_utc == now + dt.timedelta(days=365)
    assert isinstance(leaf.key.curve, ec.SECP256R1)
    assert isinstance(ca.key.curve, ec.SECP256R1)


def test_a_leaf_never_outlives_its_ca(now: dt.datetime) -> None:
    """Near the end of a CA its leafs are short."""
    ca = make_ca(now, life=dt.timedelta(days=30))
    leaf = make_leaf(ca, now, ["a.b.svc"])
    assert leaf.certificate.not_valid_after_utc == ca.certificate.not_valid_after_utc


def test_a_ca_signs_leafs_only(now: dt.datetime) -> None:
    """Neither may the leaf sign, nor the CA have authorities under it."""
    ca = make_ca(now)
    leaf = make_leaf(ca, now, ["a.b.svc"])
    constraints = ca.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert not leaf.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    "host", ["", "https://x", "a b", "x:443", "-a.b", "a..b", "a." + "b" * 64, "é.example", "x/y", "10.0.0.0/8"]
)
def test_a_host_that_is_none_is_refused(now: dt.datetime, host: str) -> None:
    """The error names the host and what to write instead."""
    with pytest.raises(InvalidValue, match="DNS name or an IP address"):
        make_leaf(make_ca(now), now, ["good.svc", host])


def test_no_host_at_all_is_refused(now: dt.datetime) -> None:
    """A leaf for nobody is an error, not a certificate."""
    with pytest.raises(InvalidValue, match="at least one"):
        make_leaf(make_ca(now), now, [])
