"""The check for attacks that start pods before anybody can know: the tenant unsuspends a Job, or lifts a gate."""

from tests.attacks.conftest import QUIET_SECONDS, QUOTA, Tenant


def comes_back_within_quota(tenant: Tenant, *, timeout: float = 10) -> None:
    """Wait until the namespace is at rest, pods of no more than the quota run, and nothing else is reserved."""

    def at_rest() -> bool:
        sentry = tenant.sentry
        return (
            sentry.quiet_for(QUIET_SECONDS)
            and sentry.runs <= QUOTA
            and sentry.runs_or_will <= QUOTA
            and tenant.reserved <= sentry.runs_or_will
        )

    tenant.wait(
        at_rest,
        timeout=timeout,
        describe=lambda: (
            f"{float(tenant.sentry.runs):g} CPUs run of {QUOTA}, {float(tenant.reserved):g} are reserved; "
            f"at rest: {tenant.sentry.quiet_for(QUIET_SECONDS)}"
        ),
    )
