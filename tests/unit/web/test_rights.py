"""How many questions it takes to know what a user may see, and that what is not known is not shown."""

from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import WireError
from turnstile.api.workload import Workload
from turnstile.kube.reviews import AccessReviews, User
from turnstile.kube.transport import Transport
from turnstile.web.rights import ALLOWED_SECONDS, NAMESPACES, REFUSED_SECONDS, Rights

pytestmark = pytest.mark.asyncio

TENANT = User("alice", groups=("system:authenticated",))


@dataclass
class ApiServer:
    """Answers SubjectAccessReviews: `allowed` has pairs of resource and namespace."""

    allowed: set[tuple[str, str]] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    down: bool = False
    quiet: set[str] = field(default_factory=set)
    """Namespaces that exist and have no queues."""
    now: float = 0.0

    async def request(self, method: str, path: str, *, body: bytes) -> bytes:
        """One review."""
        assert (method, path) == ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
        if self.down:
            raise WireError("no answer")
        spec: dict[str, Any] = msgspec.json.decode(body)["spec"]
        assert spec["user"] == "alice"
        attributes = spec["resourceAttributes"]
        assert attributes["verb"] == "list"
        key = attributes["resource"], attributes["namespace"]
        self.asked.append(key)
        return msgspec.json.encode({"status": {"allowed": key in self.allowed or (key[0], "") in self.allowed}})

    def rights(self, *namespaces: str) -> Rights:
        """Rights in a cluster in which these namespaces have queues."""
        reviews = AccessReviews(
            cast("Transport", self),
            allowed_seconds=ALLOWED_SECONDS,
            refused_seconds=REFUSED_SECONDS,
            asked=64,
            clock=lambda: self.now,
        )
        return Rights(reviews, lambda: namespaces, lambda name: name in namespaces or name in self.quiet)


async def test_an_administrator_costs_a_question_for_each_kind() -> None:
    """Whatever the number of namespaces, and none for the next request."""
    seen = ("clusterqueues", "cohorts", "workloads", "localqueues", "multikueueclusters", "leases", "nodes")
    server = ApiServer({(kind, "") for kind in seen})
    rights = server.rights(*(f"team-{number}" for number in range(1000)))
    sight = await rights.sight(TENANT)
    assert sight.whole
    assert len(server.asked) == len(seen)
    assert await rights.sight(TENANT) == sight
    assert len(server.asked) == len(seen)


async def test_a_tenant_sees_the_namespaces_that_it_may_list() -> None:
    """Both Workloads and LocalQueues; a right that was taken away ends with the answer that is remembered."""
    server = ApiServer({("workloads", "a"), ("localqueues", "a"), ("workloads", "b")})
    rights = server.rights("a", "b", "c")
    sight = await rights.sight(TENANT)
    assert (sight.namespaces, sight.tree, sight.whole) == (frozenset({"a"}), False, False)
    assert ClusterQueue in sight.unlisted
    assert sight.unread()[Workload] == "you may list them in namespace a only"
    server.allowed.clear()
    assert (await rights.sight(TENANT)).sees("a")
    server.now = ALLOWED_SECONDS
    assert not (await rights.sight(TENANT)).sees("a")


async def test_with_very_many_namespaces_the_reader_names_one() -> None:
    """The API server is not asked about each of them."""
    names = [f"team-{number}" for number in range(NAMESPACES + 1)]
    server = ApiServer({("workloads", names[7]), ("localqueues", names[7])})
    rights = server.rights(*names)
    sight = await rights.sight(TENANT)
    assert (sight.namespaces, len(server.asked)) == (frozenset(), 7)
    assert "look for one by its name" in sight.unread()[Workload]
    sight = await rights.sight(TENANT, ("train", names[7], "elsewhere"))
    assert sight.namespaces == {names[7]}


async def test_a_namespace_without_queues_may_be_named() -> None:
    """As for a Workload that is gone, while the namespace exists."""
    server = ApiServer({(kind, name) for kind in ("workloads", "localqueues") for name in ("quiet", "gone")})
    server.quiet = {"quiet"}
    rights = server.rights("a")
    assert (await rights.sight(TENANT)).namespaces == frozenset()
    assert (await rights.sight(TENANT, ("quiet", "gone"))).namespaces == {"quiet"}
    assert all(namespace != "gone" for _, namespace in server.asked)


async def test_what_cannot_be_found_out_is_not_allowed() -> None:
    """While the API server does not answer, nothing is shown; afterwards it is at once."""
    server = ApiServer({("clusterqueues", ""), ("cohorts", "")}, down=True)
    rights = server.rights("a")
    assert not (await rights.sight(TENANT)).tree
    server.down = False
    assert (await rights.sight(TENANT)).tree


async def test_system_masters_may_everything() -> None:
    """As at the API server, which is not asked."""
    server = ApiServer()
    assert (await server.rights("a").sight(User("root", groups=("system:masters",)))).whole
    assert server.asked == []
