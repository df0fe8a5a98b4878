"""Maps webhook paths, named as in Kueue, to handlers. Job kinds come from the registry; other kinds are listed."""

from collections.abc import Collection
from typing import Final

from turnstile.api import gates as known
from turnstile.api import names
from turnstile.webhooks import clusterqueue, cohort, resourceflavor, workload
from turnstile.webhooks.jobreview import mutating, validating
from turnstile.webhooks.lookups import Lookups
from turnstile.webhooks.review import ALLOWED, Answer, Handler, Request

_OURS: Final = f"{names.GROUP.replace('.', '-')}-{names.VERSION}"


def routes(lookups: Lookups, *, gates: Collection[str] = known.ON_BY_DEFAULT) -> dict[str, Handler]:
    """The handler of each path; `gates` are the feature gates that are on. Disabled kinds are allowed unchanged."""
    handlers: dict[str, Handler] = {}
    registry = lookups.registry
    for integration in registry.known.values():
        enabled = registry.by_framework(integration.framework) is integration
        suffix = integration.webhook_path
        handlers[f"/mutate-{suffix}"] = mutating(integration, lookups) if enabled else _pass
        handlers[f"/validate-{suffix}"] = validating(integration, lookups) if enabled else _pass
    return {
        **handlers,
        f"/mutate-{_OURS}-resourceflavor": resourceflavor.MUTATE,
        f"/validate-{_OURS}-resourceflavor": resourceflavor.VALIDATE,
        f"/mutate-{_OURS}-clusterqueue": clusterqueue.MUTATE,
        f"/validate-{_OURS}-clusterqueue": clusterqueue.validating(gates, lookups),
        f"/mutate-{_OURS}-workload": workload.mutating(gates),
        f"/validate-{_OURS}-workload": workload.validating(gates),
        f"/validate-{_OURS}-cohort": cohort.VALIDATE,
    }


def _pass(_: Request) -> Answer:
    return ALLOWED
