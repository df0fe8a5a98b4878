"""Over years of any length of absence, damage and slow distribution, what is served and what is trusted match."""

import datetime as dt
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.http.certificates import KEYS, Step, ca_bundle, carry_out, plan

HOSTS = ("turnstile-webhook-service.turnstile-system.svc",)
DAY = dt.timedelta(days=1)


def test_every_step_of_a_rotation_shakes_hands(handshake: Callable[..., None]) -> None:
    """Real TLS between each leaf that may be served and each bundle that may be installed, step by step."""
    today = dt.datetime.now(dt.UTC)
    data = carry_out(Step.START_OVER, {}, today - 2450 * DAY, HOSTS)
    data = carry_out(Step.ISSUE_LEAF, data, today, HOSTS)
    steps = []
    moment = today
    while (due := plan(data, moment, HOSTS, distributed=True)).step is not Step.NOTHING or len(steps) < 3:
        if due.step is Step.NOTHING:
            moment = due.plan_again
            continue
        steps.append(due.step)
        after = carry_out(due.step, data, moment, HOSTS)
        for served in (data, after):  # a replica may be a step behind,
            for trusted in (data, after):  # and so may the API server
                if due.step is Step.DROP_CA and served["tls.crt"] != after["tls.crt"]:
                    continue  # a day later no replica is
                handshake(served, ca_bundle(trusted))
        data = after
    assert steps == [Step.STAGE_CA, Step.SWITCH_CA, Step.DROP_CA]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.booleans(), st.sampled_from(["", "ca.key", "ca-next.key", "ca-next.crt"])),
        max_size=60,
    )
)
def test_no_history_breaks_trust(trusts: Callable[..., bool], history: list[tuple[int, bool, str]]) -> None:
    """Days pass, the bundle is installed at once or the next time, signing keys get lost: what is served is trusted.

    After a loss there is time to recover before the leaf ends: three turns of a month without another one.
    """
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    data = carry_out(Step.START_OVER, {}, now, HOSTS)
    installed = ca_bundle(data)
    for turn, (days, installs, lost) in enumerate(history):
        installed = ca_bundle(data)
        now += days * DAY
        if turn % 4 == 0:
            data.pop(lost, None)
        for _ in range(6):
            step = plan(data, now, HOSTS, distributed=installed == ca_bundle(data)).step
            if step is Step.NOTHING:
                break
            data = carry_out(step, data, now, HOSTS)
            assert trusts(installed, data["tls.crt"], now), step
            assert trusts(ca_bundle(data), data["tls.crt"], now), step
            if installs:
                installed = ca_bundle(data)
        else:
            raise AssertionError("the plan does not settle")


@settings(max_examples=60, deadline=None)
@given(damage=st.dictionaries(st.sampled_from(KEYS), st.binary(max_size=40) | st.just(b"-----BEGIN CERTIFICATE-----")))
def test_any_damage_heals(trusts: Callable[..., bool], damage: dict[str, bytes]) -> None:
    """Whatever bytes somebody leaves in the Secret, a few steps later it serves again and nothing more is due."""
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    data = carry_out(Step.STAGE_CA, carry_out(Step.START_OVER, {}, now, HOSTS), now, HOSTS) | damage
    for _ in range(6):
        step = plan(data, now, HOSTS, distributed=True).step
        if step is Step.NOTHING:
            break
        data = carry_out(step, data, now, HOSTS)
    else:
        raise AssertionError("the plan does not settle")
    assert trusts(ca_bundle(data), data["tls.crt"], now)


@pytest.mark.parametrize("years", [30])
def test_thirty_years_unattended(trusts: Callable[..., bool], years: int) -> None:
    """A leader that looks again when it said it would never misses a date, and the bundle does not grow."""
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    end = now + years * 365 * DAY
    data = carry_out(Step.START_OVER, {}, now, HOSTS)
    steps: list[Step] = []
    while now < end:
        due = plan(data, now, HOSTS, distributed=True)
        if due.step is Step.NOTHING:
            assert due.plan_again > now
            assert trusts(ca_bundle(data), data["tls.crt"], due.plan_again)
            now = due.plan_again
            continue
        steps.append(due.step)
        data = carry_out(due.step, data, now, HOSTS)
        assert ca_bundle(data).count(b"BEGIN") <= 2
    assert steps.count(Step.STAGE_CA) == steps.count(Step.DROP_CA) == 4
