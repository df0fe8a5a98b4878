"""The rights of the sender of a request, asked of the API server by SubjectAccessReviews.

Rights are asked by kind and namespace, never by object, so how many are asked does not depend on how many Workloads
there are: `list` of ClusterQueues, Cohorts, MultiKueueClusters and Nodes, of Workloads and LocalQueues everywhere, and
without that right in one namespace after the other: those that have queues, and those that exist and are named by the
request. Answers are kept for a short time. A right that cannot be found out is refused.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from turnstile.api.core import Node
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster
from turnstile.kube.frontproxy import MASTERS
from turnstile.kube.lease import Lease
from turnstile.kube.reviews import AccessReviews, NotAnswered, User
from turnstile.web.sight import NAMESPACED, TREE, Sight

ALLOWED_SECONDS: Final = 10.0
"""Seconds for which a right may be used after it was taken away."""
REFUSED_SECONDS: Final = 60.0
"""Seconds for which a right that was given may not be used yet."""
NAMESPACES: Final = 100
"""Namespaces about which the API server is asked for one reader; if more have queues, only those that the request
names."""
AT_ONCE: Final = 16
"""SubjectAccessReviews under way at a time."""
KEPT: Final = 8192
"""Answers that are remembered."""

_log = structlog.get_logger(__name__)


class Rights:
    """Finds out what users may see. `namespaces` are those that have queues; `exists` is whether there is one."""

    def __init__(
        self, reviews: AccessReviews, namespaces: Callable[[], Collection[str]], exists: Callable[[str], bool]
    ) -> None:
        self._reviews = reviews
        self._namespaces = namespaces
        self._exists = exists
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def may(self, user: User, verb: str, kind: type[Kind], namespace: str = "") -> bool:
        """Whether a user may do something with objects of a kind; in all namespaces if none is given."""
        if MASTERS in user.groups:
            return True
        attributes = {"group": kind.GROUP, "version": kind.VERSION, "resource": kind.PLURAL}
        attributes |= {"verb": verb, "namespace": namespace}
        try:
            async with self._turns:
                return await self._reviews.allowed(user, {"resourceAttributes": attributes})
        except NotAnswered as error:
            _log.warning("rights.unknown", user=user.name, verb=verb, resource=kind.PLURAL, error=str(error))
            return False

    async def sight(self, user: User, named: Collection[str] = ()) -> Sight:
        """The sight of a user; `named` are words of the request that may be names of namespaces."""
        kinds: tuple[type[Kind], ...] = (*TREE, *NAMESPACED, MultiKueueCluster, Lease, Node)
        listed = await asyncio.gather(*(self.may(user, "list", kind) for kind in kinds))
        unlisted = frozenset(kind for kind, may in zip(kinds, listed, strict=True) if not may)
        if unlisted.isdisjoint(NAMESPACED):
            return Sight(unlisted)
        known = self._namespaces()
        too_many = len(known) if len(known) > NAMESPACES else 0
        asked = sorted(each for each in {*named} if self._exists(each))[:NAMESPACES]
        if not too_many:
            asked = sorted({*asked, *known})
        seen = await asyncio.gather(*(self._may_list(user, each, unlisted) for each in asked))
        return Sight(unlisted, frozenset(each for each, may in zip(asked, seen, strict=True) if may), too_many)

    async def _may_list(self, user: User, namespace: str, unlisted: frozenset[type[Kind]]) -> bool:
        for kind in NAMESPACED:
            if kind in unlisted and not await self.may(user, "list", kind, namespace):
                return False
        return True
