"""The webhooks of ResourceFlavor: a finalizer for use by ClusterQueues, and valid node labels and taints."""

from typing import Final

from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.validation import default_resource_flavor, validate_resource_flavor
from turnstile.webhooks.handlers import checking, finalizing

MUTATE: Final = finalizing(ResourceFlavor, default_resource_flavor)
VALIDATE: Final = checking(ResourceFlavor, lambda _, new, old: validate_resource_flavor(new, old))
