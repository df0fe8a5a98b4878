"""Maps webhook paths, named as in Kueue, to handlers. Job kinds come from the registry; other kinds are listed.

ResourceFlavors get a finalizer for use by ClusterQueues, and need valid node labels and taints; Cohorts need consistent
quota, and get no defaults. The handlers of ClusterQueues and Workloads have modules of their own.
"""

from collections.abc import Collection
from typing import Final

from turnstile.api import gates as known
from turnstile.api import names
from turnstile.api.cohort import Cohort
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.validation import default_resource_flavor, validate_cohort, validate_resource_flavor
from turnstile.jobs.naming import webhook_path
from turnstile.webhooks import clusterqueue, timeannotations, workload
from turnstile.webhooks.handlers import checking, finalizing
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
        suffix = webhook_path(integration.kind)
        handlers[f"/mutate-{suffix}"] = mutating(integration, lookups) if enabled else _pass
        handlers[f"/validate-{suffix}"] = validating(integration, lookups) if enabled else _pass
    return {
        **handlers,
        f"/mutate-{_OURS}-resourceflavor": finalizing(ResourceFlavor, default_resource_flavor),
        f"/validate-{_OURS}-resourceflavor": checking(
            ResourceFlavor, lambda _, new, old: validate_resource_flavor(new, old)
        ),
        f"/mutate-{_OURS}-clusterqueue": clusterqueue.MUTATE,
        f"/validate-{_OURS}-clusterqueue": clusterqueue.validating(gates, lookups),
        f"/mutate-{_OURS}-workload": workload.mutating(gates),
        f"/validate-{_OURS}-workload": workload.validating(gates),
        f"/validate-{_OURS}-workloadpriorityclass": timeannotations.validating(lookups),
        f"/validate-{_OURS}-cohort": checking(Cohort, lambda _, new, old: validate_cohort(new, old)),
    }


def _pass(_: Request) -> Answer:
    return ALLOWED
