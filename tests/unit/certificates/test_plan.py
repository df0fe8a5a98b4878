"""For any state of the Secret the plan names one step, keeps what is good, and settles."""

import datetime as dt
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from turnstile.http import certificates as certs
from turnstile.http.certificates import Plan, Step, carry_out, plan

HOSTS = ("turnstile-webhook-service.turnstile-system.svc", "127.0.0.1")
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def fresh(now: dt.datetime = NOW) -> dict[str, bytes]:
    """What a new installation gets."""
    return carry_out(Step.START_OVER, {}, now, HOSTS)


def due(data: dict[str, bytes], now: dt.datetime = NOW, *, distributed: bool = True) -> Plan:
    """The plan for our hosts."""
    return plan(data, now, HOSTS, distributed=distributed)


def settle(data: dict[str, bytes], now: dt.datetime = NOW) -> tuple[dict[str, bytes], list[Step]]:
    """Carry out steps, each bundle distributed at once, until nothing is due."""
    steps = []
    while (step := due(data, now).step) is not Step.NOTHING:
        steps.append(step)
        assert len(steps) < 6, steps
        data = carry_out(step, data, now, HOSTS)
    return data, steps


def authorities(data: dict[str, bytes]) -> list[x509.Certificate]:
    """The certificates of the bundle."""
    return x509.load_pem_x509_certificates(data["ca.crt"])


class TestNewInstallation:
    """An empty Secret gets everything in one write."""

    @pytest.mark.parametrize("data", [{}, {"ca.crt": b"", "tls.crt": b"", "tls.key": b""}, {"other": b"x"}])
    def test_starts_over(self, data: dict[str, bytes]) -> None:
        """Empty keys, as a chart leaves them, count as empty."""
        assert due(data).step is Step.START_OVER
        assert "no certificates yet" in due(data).why

    def test_then_there_is_nothing_to_do(self, trusts: Callable[..., bool]) -> None:
        """One step settles it, the leaf is trusted, and the next look is when the leaf is to be renewed."""
        data, steps = settle({})
        assert steps == [Step.START_OVER]
        assert trusts(certs.ca_bundle(data), data["tls.crt"], NOW)
        assert due(data).plan_again - NOW == pytest.approx(365 * DAY * 2 / 3, abs=DAY)

    def test_keys_of_others_stay(self) -> None:
        """What is not ours in the Secret is left as it is."""
        assert carry_out(Step.START_OVER, {"note": b"keep"}, NOW, HOSTS)["note"] == b"keep"


class TestLeaf:
    """The leaf is replaced alone while its CA is good."""

    @pytest.mark.parametrize(("days", "step"), [(0, "nothing"), (243, "nothing"), (244, "issue leaf")])
    def test_is_renewed_after_two_thirds_of_its_life(self, days: int, step: str) -> None:
        """Eight of twelve months."""
        assert due(fresh(), NOW + days * DAY).step.value == step

    def test_is_replaced_when_it_has_expired(self) -> None:
        """A controller that was off for a year."""
        data, steps = settle(fresh(), NOW + 400 * DAY)
        assert steps == [Step.ISSUE_LEAF]
        assert due(data, NOW + 400 * DAY).step is Step.NOTHING

    @pytest.mark.parametrize("hosts", [(*HOSTS, "localhost"), HOSTS[:1], ("other.svc",)])
    def test_is_replaced_when_the_hosts_change(self, hosts: tuple[str, ...]) -> None:
        """One more, one less, or others: the leaf is for exactly the hosts asked for."""
        data = fresh()
        assert plan(data, NOW, hosts, distributed=True).step is Step.ISSUE_LEAF
        data = carry_out(Step.ISSUE_LEAF, data, NOW, hosts)
        assert plan(data, NOW, hosts, distributed=True).step is Step.NOTHING

    def test_order_and_repetition_of_hosts_do_not_matter(self) -> None:
        """The same names in another order are the same leaf."""
        assert plan(fresh(), NOW, [*reversed(HOSTS), HOSTS[0].upper()], distributed=True).step is Step.NOTHING

    @pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
    @pytest.mark.parametrize("value", [None, b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
    def test_is_replaced_when_it_is_damaged(self, key: str, value: bytes | None) -> None:
        """A missing, empty, cut or foreign value of either half."""
        data = fresh()
        ca = data["ca.crt"]
        if value is None:
            del data[key]
        else:
            data[key] = value
        data, steps = settle(data)
        assert steps == [Step.ISSUE_LEAF]
        assert data["ca.crt"] == ca

    def test_is_replaced_when_key_and_certificate_are_of_different_pairs(self) -> None:
        """A restore from two backups."""
        data = fresh() | {"tls.key": fresh()["tls.key"]}
        assert due(data).step is Step.ISSUE_LEAF

    def test_is_replaced_when_another_ca_issued_it(self) -> None:
        """A working pair that no client would trust."""
        other = fresh()
        assert due(fresh() | {key: other[key] for key in ("tls.crt", "tls.key")}).step is Step.ISSUE_LEAF

    def test_from_the_future_is_replaced(self) -> None:
        """The clock of the last leader was ahead: what it made is not valid yet."""
        _, steps = settle(fresh(NOW + 10 * DAY))
        assert steps == [Step.START_OVER]


class TestAuthority:
    """A CA is replaced with overlap while its leaf still serves."""

    def test_is_rotated_after_two_thirds_of_its_life(self, trusts: Callable[..., bool]) -> None:
        """Stage, switch once distributed, drop after a day; the leaf is trusted under each bundle that can be about."""
        now = NOW + 2450 * DAY
        data = carry_out(Step.ISSUE_LEAF, fresh(), now, HOSTS)
        seen = []
        bundle = certs.ca_bundle(data)
        for _ in range(3):
            step = due(data, now).step
            seen.append(step)
            data = carry_out(step, data, now, HOSTS)
            assert trusts(bundle, data["tls.crt"], now)  # installed before the write
            bundle = certs.ca_bundle(data)
            assert trusts(bundle, data["tls.crt"], now)  # and after
            if step is Step.SWITCH_CA:
                assert due(data, now).step is Step.NOTHING
                assert due(data, now).plan_again - now == DAY
                now += DAY
        assert seen == [Step.STAGE_CA, Step.SWITCH_CA, Step.DROP_CA]
        assert len(authorities(data)) == 1
        assert due(data, now).step is Step.NOTHING

    def test_the_leaf_stays_until_the_bundle_is_everywhere(self) -> None:
        """Not distributed: nothing changes, however long it takes."""
        now = NOW + 2450 * DAY
        data = carry_out(Step.STAGE_CA, carry_out(Step.ISSUE_LEAF, fresh(), now, HOSTS), now, HOSTS)
        assert due(data, now, distributed=False).step is Step.NOTHING
        assert due(data, now + 200 * DAY, distributed=False).step is Step.NOTHING

    def test_a_leaf_due_while_the_bundle_travels_is_of_the_old_ca(self, trusts: Callable[..., bool]) -> None:
        """Only the old CA is trusted everywhere then."""
        now = NOW + 2450 * DAY
        data = carry_out(Step.ISSUE_LEAF, fresh(), now, HOSTS)
        old = certs.ca_bundle(data)
        data = carry_out(Step.STAGE_CA, data, now, HOSTS)
        later = now + 300 * DAY
        assert due(data, later, distributed=False).step is Step.ISSUE_LEAF
        data = carry_out(Step.ISSUE_LEAF, data, later, HOSTS)
        assert trusts(old, data["tls.crt"], later)
        assert due(data, later, distributed=False).step is Step.NOTHING

    @pytest.mark.parametrize("value", [None, b"", b"garbage"])
    def test_without_its_key_is_rotated_with_overlap(self, trusts: Callable[..., bool], value: bytes | None) -> None:
        """The leaf still works, so nothing is torn down: a next CA is staged."""
        data = fresh()
        installed = certs.ca_bundle(data)
        data.pop("ca.key")
        if value is not None:
            data["ca.key"] = value
        assert due(data).step is Step.STAGE_CA
        data = carry_out(Step.STAGE_CA, data, NOW, HOSTS)
        assert trusts(installed, data["tls.crt"], NOW)
        data, steps = settle(data)
        assert steps == [Step.SWITCH_CA]
        assert due(data, NOW + DAY).step is Step.DROP_CA

    def test_without_its_key_and_the_staged_one_damaged_a_new_one_is_staged(self) -> None:
        """Half of a rotation lost: it begins again."""
        data = fresh()
        del data["ca.key"]
        data = carry_out(Step.STAGE_CA, data, NOW, HOSTS) | {"ca-next.key": b"garbage"}
        assert due(data).step is Step.STAGE_CA
        data, steps = settle(data)
        assert steps == [Step.STAGE_CA, Step.SWITCH_CA]
        data, steps = settle(data, NOW + DAY)
        assert steps == [Step.DROP_CA]
        assert sorted(data) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]

    def test_a_key_and_a_leaf_lost_together_leave_the_old_bundle_trusted(self) -> None:
        """Replicas may still serve the old leaf from memory, so its CA stays for a day."""
        data = fresh()
        old = authorities(data)
        data["ca.key"] = data["tls.key"] = b"garbage"
        assert due(data).step is Step.START_OVER
        data, _ = settle(data)
        assert old[0] in authorities(data)
        data, steps = settle(data, NOW + DAY)
        assert steps == [Step.DROP_CA]
        assert old[0] not in authorities(data)

    def test_lost_leaf_and_key_while_staged_switches_at_once(self) -> None:
        """Nothing can be lost by switching before the bundle is everywhere."""
        data = carry_out(Step.STAGE_CA, fresh(), NOW, HOSTS) | {"ca.key": b"", "tls.key": b""}
        assert due(data, distributed=False).step is Step.SWITCH_CA

    @pytest.mark.parametrize("value", [None, b"", b"garbage"])
    def test_a_lost_bundle_starts_over(self, value: bytes | None) -> None:
        """Without the CA's certificate nothing can be verified."""
        data = fresh()
        data.pop("ca.crt")
        if value is not None:
            data["ca.crt"] = value
        assert due(data).step is Step.START_OVER
        assert "no CA" in due(data).why
        assert settle(data)[1] == [Step.START_OVER]

    def test_expired_starts_over_and_leaves_the_bundle(self) -> None:
        """After ten years of absence nothing of the old is kept."""
        now = NOW + 4000 * DAY
        data = fresh()
        old = authorities(data)
        data, steps = settle(data, now)
        assert steps == [Step.START_OVER]
        assert old[0] not in authorities(data)

    def test_of_another_algorithm_is_replaced_by_ours(self) -> None:
        """An RSA key somebody put there is not used."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        assert due(fresh() | {"ca.key": pem}).step is Step.STAGE_CA

    def test_a_leaf_in_the_bundle_does_not_sign(self) -> None:
        """A certificate that is no CA is never taken for one, though its key is there."""
        data = fresh()
        assert due(data | {"ca.crt": data["ca.crt"] + data["tls.crt"], "ca.key": data["tls.key"]}).step is Step.STAGE_CA


class TestBundle:
    """`caBundle` is what the Secret's bundle holds."""

    def test_is_plain_pem(self) -> None:
        """Comments and repetitions are taken out."""
        data = fresh()
        noisy = b"# our CA\n" + data["ca.crt"] + b"\n\n" + data["ca.crt"]
        assert certs.ca_bundle({"ca.crt": noisy}) == data["ca.crt"]

    @pytest.mark.parametrize("value", [{}, {"ca.crt": b""}, {"ca.crt": b"garbage"}])
    def test_of_nothing_is_empty(self, value: dict[str, bytes]) -> None:
        """There is no half of a bundle."""
        assert certs.ca_bundle(value) == b""


def test_a_step_that_does_not_fit_the_data_is_refused() -> None:
    """A plan for other data is not carried out."""
    with pytest.raises(certs.InvalidValue, match="plan again"):
        carry_out(Step.SWITCH_CA, fresh(), NOW, HOSTS)
