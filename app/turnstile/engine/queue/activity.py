"""Whether a ClusterQueue admits: what it references must exist and be ready (Kueue: inactiveReason).

An event may concern thousands of ClusterQueues, so it is noted only. Each is judged when its problems are read, and
those that nobody reads are judged in slices of the next cycle. Must never look at usage.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Final, NamedTuple

from turnstile.api import names
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.engine.causes import Inactive
from turnstile.engine.pace import Pace, Sliced, finish
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.references import References
from turnstile.engine.queue.retries import Retries
from turnstile.engine.quota import clusterqueue
from turnstile.engine.quota.ledger import Ledger


class Check(NamedTuple):
    """An AdmissionCheck: whether it is ready, and the name of the controller that answers it."""

    active: bool
    controller: str


JUDGING: Final = 6.0
"""Work to judge a ClusterQueue, beside that for each flavor it names."""


class ActivityJudge:
    """The objects that ClusterQueues reference, and judges ClusterQueues by them. Topologies are not looked for unless
    `topologies` count."""

    __slots__ = (
        "_changed",
        "_ledger",
        "_marked",
        "_retries",
        "_topologies_count",
        "checks",
        "due",
        "flavors",
        "references",
        "topologies",
    )

    def __init__(self, ledger: Ledger[ClusterQueue], retries: Retries, *, topologies: bool) -> None:
        self._ledger = ledger
        self._retries = retries
        self._topologies_count = topologies
        self.flavors: dict[str, ResourceFlavor] = {}
        self.checks: dict[str, Check] = {}
        self.topologies: dict[str, tuple[str, ...]] = {}
        """The node labels of the levels of each Topology, the widest first."""
        self.references = References()
        self.due = False
        """Whether any ClusterQueue may have to be judged anew."""
        self._marked: dict[str, None] = {}
        """ClusterQueues to be judged anew."""
        self._changed: dict[tuple[str, str], bool] = {}
        """ResourceFlavors and AdmissionChecks whose ClusterQueues are not marked yet, and whether inadmissible
        Workloads there are to be tried again: there may be thousands, and an event must not wait for that."""

    # What they reference

    def put_flavor(self, flavor: ResourceFlavor) -> bool:
        """A ResourceFlavor exists; whether it changed."""
        name = flavor.metadata.name
        known = self.flavors.get(name)
        self.flavors[name] = flavor
        if known is not None and known.spec == flavor.spec:
            return False
        self._note("flavor", name, retry=True)
        return True

    def drop_flavor(self, name: str) -> None:
        """A ResourceFlavor is gone."""
        self.flavors.pop(name, None)
        self._note("flavor", name, retry=True)

    def _note(self, kind: str, name: str, *, retry: bool = False) -> None:
        """An object changed: the ClusterQueues that name it are to be judged anew."""
        if self._named_by(kind, name):
            self._changed[kind, name] = retry or self._changed.get((kind, name), False)
            self.due = True

    def _named_by(self, kind: str, name: str) -> Mapping[str, None]:
        return self.references.flavor(name) if kind == "flavor" else self.references.check(name)

    def put_topology(self, name: str, levels: tuple[str, ...]) -> bool:
        """A Topology exists; whether it changed."""
        if self.topologies.get(name) == levels:
            return False
        self.topologies[name] = levels
        self._topology_changed(name)
        return True

    def drop_topology(self, name: str) -> None:
        """A Topology is gone."""
        self.topologies.pop(name, None)
        self._topology_changed(name)

    def _topology_changed(self, name: str) -> None:
        for flavor in self.flavors.values():
            if flavor.spec.topology_name == name:
                self._note("flavor", flavor.metadata.name)

    def put_check(self, name: str, check: Check) -> bool:
        """An AdmissionCheck exists; whether it changed."""
        if self.checks.get(name) == check:
            return False
        self.checks[name] = check
        self._note("check", name)
        return True

    def drop_check(self, name: str) -> None:
        """An AdmissionCheck is gone."""
        self.checks.pop(name, None)
        self._note("check", name)

    def delays_places(self, queue: clusterqueue.ClusterQueue, flavor: str) -> bool:
        """Whether pods in a flavor get their places only once the admission checks of a ClusterQueue are ready: nodes
        are yet to be provisioned, or another cluster is to be found for them."""
        for check in queue.checks:
            known = self.checks.get(check.name)
            if known is None:
                continue
            if known.controller == names.MULTIKUEUE_CONTROLLER:
                return True
            concerns = not check.on_flavors or flavor in check.on_flavors
            if concerns and known.controller == names.PROVISIONING_CONTROLLER:
                return True
        return False

    # ClusterQueues

    def is_marked(self, name: str) -> bool:
        """Whether a ClusterQueue is to be judged anew."""
        finish(self._marking(Pace()))
        return name in self._marked

    def _marking(self, pace: Pace) -> Sliced[None]:
        """Mark the ClusterQueues of objects that changed."""
        while self._changed:
            (kind, name), again = self._changed.popitem()
            concerned = self._named_by(kind, name)
            self._marked.update(concerned)
            if again:
                self._retries.mark_all(concerned)
            pace.left -= len(concerned) / 32
            if pace.left <= 0:
                yield
                pace.renew()
        self.due = bool(self._marked)

    def _unmark(self, name: str) -> None:
        self._marked.pop(name, None)
        self.due = bool(self._marked or self._changed)

    def put(self, queue: ClusterQueue) -> None:
        """A ClusterQueue exists or changed."""
        queue.judged_by = self
        self.references.put(queue)
        self.judge(queue)

    def drop(self, name: str) -> None:
        """A ClusterQueue is gone."""
        self.references.drop(name)
        self._unmark(name)

    def judge(self, queue: ClusterQueue) -> None:
        """Judge a ClusterQueue now. One that admits again tries its inadmissible Workloads."""
        self._unmark(queue.name)
        before = queue.problems
        topologies = self.topologies if self._topologies_count else None
        queue.problems = found = list(problems(queue, flavors=self.flavors, checks=self.checks, topologies=topologies))
        if before and not found:
            self._retries.mark(queue.name)
        if queue.node.idle == queue.active:
            self._ledger.set_idle(queue)

    def judging(self, pace: Pace) -> Sliced[None]:
        """Judge all that are marked. If it is left early, the others are still marked."""
        yield from self._marking(pace)
        while self._marked:
            queue = self._ledger.cluster_queues[next(reversed(self._marked))]
            self.judge(queue)
            pace.left -= JUDGING + sum(len(group.flavors) for group in queue.groups) / 2
            if pace.left <= 0:
                yield
                pace.renew()


def problems(
    queue: ClusterQueue,
    *,
    flavors: Mapping[str, ResourceFlavor],
    checks: Mapping[str, Check],
    topologies: Container[str] | None,
) -> Iterator[tuple[str, str]]:
    """Reasons why it admits nothing, in the order they are reported, with their words. `flavors`, `checks` and
    `topologies` are those that exist; topologies are not looked for if they are None."""
    if queue.api.spec.stop_policy != "None":
        yield "Stopped", Inactive.STOPPED.says()
    missing = [flavor for flavor in queue.flavors() if flavor not in flavors]
    if missing:
        yield "FlavorNotFound", Inactive.FLAVORS_MISSING.says(missing=",".join(missing))
    named = sorted({check.name for check in queue.checks})
    unknown = [name for name in named if name not in checks]
    if unknown:
        yield "AdmissionCheckNotFound", Inactive.CHECKS_MISSING.says(named=",".join(unknown))
    found = {name: checks[name] for name in named if name in checks}
    inactive = [name for name, check in found.items() if not check.active]
    if inactive:
        yield "AdmissionCheckInactive", Inactive.CHECKS_INACTIVE.says(named=",".join(inactive))
    multi = [name for name, check in found.items() if check.controller == names.MULTIKUEUE_CONTROLLER]
    if len(multi) > 1:
        yield "MultipleMultiKueueAdmissionChecks", Inactive.SEVERAL_MULTIKUEUE.says(named=",".join(multi))
    per_flavor = sorted({check.name for check in queue.checks if check.on_flavors and check.name in multi})
    if per_flavor:
        message = Inactive.MULTIKUEUE_BY_FLAVOR.says(named=",".join(per_flavor))
        yield "MultiKueueAdmissionCheckAppliedPerFlavor", message
    provisioning = [name for name, check in found.items() if check.controller == names.PROVISIONING_CONTROLLER]
    if multi and provisioning:
        message = Inactive.MULTIKUEUE_PROVISIONS.says(named=",".join(multi), others=",".join(provisioning))
        yield "MultiKueueWithProvisioningRequest", message
    if multi or topologies is None:
        return
    for name in queue.flavors():
        flavor = flavors.get(name)
        topology = flavor.spec.topology_name if flavor is not None else None
        if topology and topology not in topologies:
            yield "TopologyNotFound", Inactive.TOPOLOGY_MISSING.says(topology=topology, flavor=name)
