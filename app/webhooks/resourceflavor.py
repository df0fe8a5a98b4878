"""The webhooks of ResourceFlavor: a finalizer for use by ClusterQueues, and valid node labels and taints."""

from typing import Final

from app.api.resourceflavor import ResourceFlavor
from app.api.validation import default_resource_flavor, validate_resource_flavor
from app.webhooks.handlers import checking, finalizing

MUTATE: Final = finalizing(ResourceFlavor, default_resource_flavor)
VALIDATE: Final = checking(ResourceFlavor, lambda _, new, old: validate_resource_flavor(new, old))
