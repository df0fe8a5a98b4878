"""The part of a search for flavors that is the same for all heads: ResourceFlavors that exist, options, the judge of
quota, and the pace of the work.

Must never search.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.causes import Cause
from turnstile.engine.flavors.assignment import PairOf
from turnstile.engine.flavors.eligibility import mismatch
from turnstile.engine.flavors.places import Delays
from turnstile.engine.flavors.quotafit import Oracle, QuotaJudge
from turnstile.engine.flavors.room import RoomJudge
from turnstile.engine.flavors.topology import topology_mismatch
from turnstile.engine.pace import Pace
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.placement import Policy

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info


class Setup:
    """Shared by the searches of one `Assigner`. `topologies` has the node labels of the levels of each Topology;
    None if topologies do not count."""

    __slots__ = (
        "delays",
        "flavors",
        "fungible",
        "ignore_undeclared",
        "judge",
        "nodes",
        "observable",
        "pace",
        "pair",
        "policy",
        "room",
        "topologies",
    )

    def __init__(
        self,
        *,
        flavors: Mapping[str, ResourceFlavor],
        pair: PairOf,
        oracle: Oracle,
        fungible: bool = True,
        fair_sharing: bool = False,
        ignore_undeclared: bool = False,
        topologies: Mapping[str, tuple[str, ...]] | None = None,
        nodes: Nodes | None = None,
        policy: Policy | None = None,
        delays: Delays = lambda _, __: False,
        observable: bool = True,
        room: RoomJudge | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.flavors = flavors
        self.topologies = topologies
        self.nodes = nodes or Nodes()
        self.policy = policy or Policy()
        self.delays = delays
        self.observable = observable
        self.room = room
        self.pair = pair
        self.fungible = fungible
        self.ignore_undeclared = ignore_undeclared
        self.pace = pace or Pace()
        self.judge = QuotaJudge(pair=pair, oracle=oracle, fungible=fungible, fair_sharing=fair_sharing, pace=self.pace)

    def unfit(self, queue: "ClusterQueue", info: "Info", members: Sequence[int], flavor: str) -> str | None:
        """Why pods of these pod sets cannot have a flavor, whatever its quota; None if they can. Raises ValueError if
        their affinity is malformed."""
        found = self.flavors.get(flavor)
        if found is None:
            return Cause.FLAVOR_MISSING.says(flavor=flavor)
        for index in members:
            pod_set = info.totals[index].pod_set
            request = pod_set.topology_request if pod_set is not None else None
            topologies = self.topologies
            if (
                topologies is not None
                and (request is not None or found.spec.topology_name is not None)
                and (
                    mismatched := topology_mismatch(
                        queue, info.totals[index], request, found, flavors=self.flavors, topologies=topologies
                    )
                )
            ):
                return mismatched
            shape = info.totals[index].shape
            if shape is None:
                continue
            answer = shape.answers.get(flavor)
            if answer is None or answer[0] is not found:
                if len(shape.answers) > 2 * len(self.flavors):  # most of these flavors are gone
                    shape.answers.clear()
                answer = shape.answers[flavor] = found, mismatch(shape, found)
            if answer[1] is not None:
                return answer[1]
        return None
