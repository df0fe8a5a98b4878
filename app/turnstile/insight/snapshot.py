"""All objects that decisions depend on, at one moment, and the ledger that they add up to.

For questions asked from outside of the process that leads: on objects read with the asker's own rights, or from a dump.
State that only the leader has (admissions that are assumed, how far a search for flavors came) is not in it. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Node, Pod
from turnstile.api.effectivequota import with_effective_quota, without_effective_quota
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.waitforroom import asks_for_room
from turnstile.api.workload import Workload
from turnstile.engine import Options, State
from turnstile.engine.instants import Instant
from turnstile.engine.intake import FEEDING, PLACES, workload_of
from turnstile.engine.naming import OTHER, OTHERS
from turnstile.wording.workloads import called

K = TypeVar("K", bound=Kind)

Sees = Callable[[str], bool]
"""Whether the asker may see the Workloads of a namespace."""
Refused = tuple[Kind, InvalidValue]
"""An object that a ledger cannot interpret, and why."""


def name_of(workload: str, sees: Sees) -> str:
    """The key of a Workload, if the asker may see it."""
    return workload if sees(workload.partition("/")[0]) else OTHER


def names_of(workloads: Sequence[str], sees: Sees, *, most: int | None = None) -> tuple[str, ...]:
    """The keys of Workloads that the asker may see, `most` of them at most, and how many others there are."""
    seen = [key for key in workloads if sees(key.partition("/")[0])]
    named = seen if most is None else seen[:most]
    more, hidden = len(seen) - len(named), len(workloads) - len(seen)
    rest = [f"{more} more"] if more else []
    if hidden:
        rest.append(OTHER if hidden == 1 else f"{hidden} {OTHERS}")
    return (*named, *rest)


def called_in(snapshot: "Snapshot", keys: Sequence[str], sees: Sees, *, most: int | None = None) -> tuple[str, ...]:
    """Like `names_of`, with the names of the jobs."""
    found = ((each, snapshot.get(Workload, each)) for each in names_of(keys, sees, most=most))
    return tuple(called(workload) if workload is not None else name for name, workload in found)


def refusals(refused: Iterable[Refused], sees: Sees) -> Iterator[str]:
    """Why objects that the asker may see cannot be interpreted."""
    return (str(error) for obj, error in refused if not obj.NAMESPACED or sees(obj.metadata.namespace))


@dataclass(slots=True)
class Snapshot:
    """Objects by kind and key (`namespace/name`, or the name of an object without a namespace)."""

    objects: dict[type[Kind], dict[str, Kind]] = field(default_factory=dict)
    unread: dict[type[Kind], str] = field(default_factory=dict)
    """Kinds that could not be read, with the reason: decisions may differ from the leader's."""
    hidden: dict[type[Kind], str] = field(default_factory=dict)
    """Kinds that the asker may not list everywhere, with the namespace whose objects were read, or an empty string."""

    def put(self, obj: Kind) -> None:
        """Add an object, or replace the one of its key."""
        self.objects.setdefault(type(obj), {})[obj.metadata.key] = obj

    def drop(self, kind: type[Kind], key: str) -> None:
        """Take an object out, if there is one."""
        self.objects.get(kind, {}).pop(key, None)

    def get(self, kind: type[K], key: str) -> K | None:
        """The object of a kind with a key, if any."""
        found = self.objects.get(kind, {}).get(key)
        return found if isinstance(found, kind) else None

    def of(self, kind: type[K]) -> Iterator[K]:
        """All objects of a kind, by key."""
        held = self.objects.get(kind, {})
        for key in sorted(held):
            found = held[key]
            if isinstance(found, kind):
                yield found

    def whole(self, *kinds: type[Kind]) -> bool:
        """Whether an object of these kinds that is not here does not exist."""
        return self.unread.keys().isdisjoint(kinds) and self.hidden.keys().isdisjoint(kinds)

    def needs_nodes(self, *, wait_for_room: bool) -> bool:
        """Whether a flavor has a Topology, or a ClusterQueue waits for room, so that decisions depend on nodes and on
        the pods that are bound to them; `wait_for_room` is as configured."""
        return any(flavor.spec.topology_name for flavor in self.of(ResourceFlavor)) or any(
            asks_for_room(queue.metadata, wait_for_room) for queue in self.of(ClusterQueue)
        )

    def all(self) -> Iterator[Kind]:
        """All objects."""
        for held in self.objects.values():
            yield from held.values()

    def changed(self, put: Iterable[Kind] = (), drop: Iterable[tuple[type[Kind], str]] = ()) -> "Snapshot":
        """The same with some objects put and others dropped; this one stays as it is."""
        other = self.holding({kind: dict(held) for kind, held in self.objects.items()})
        for obj in put:
            other.put(obj)
        for kind, key in drop:
            other.drop(kind, key)
        return other

    def keeping(self, kind: type[K], stays: Callable[[K], bool]) -> "Snapshot":
        """The same with only those objects of a kind for which `stays` is true. Workloads go with their pods."""
        held = {each.metadata.key: each for each in self.of(kind) if stays(each)}
        objects = dict(self.objects)
        objects[kind] = dict[str, Kind](held)
        if kind is Workload and Pod in objects:
            gone = self.objects.get(Workload, {}).keys() - held.keys()
            objects[Pod] = {key: pod for key, pod in objects[Pod].items() if workload_of(pod) not in gone}
        return self.holding(objects)

    def holding(self, objects: dict[type[Kind], dict[str, Kind]]) -> "Snapshot":
        """Other objects, read with the same rights."""
        return Snapshot(objects, dict(self.unread), dict(self.hidden))

    def heeding(self, options: Options) -> "Snapshot":
        """The same with the quota that holds in the spec of each ClusterQueue and Cohort, as the leader has them; it is
        in the status as well only where another controller has written it there and that is heeded."""
        given = with_effective_quota if options.gates.dynamic_quota_orchestration else without_effective_quota
        owners: list[ClusterQueue | Cohort] = [*self.of(ClusterQueue), *self.of(Cohort)]
        others = [other for each in owners if (other := given(each)) is not each]
        return self.changed(others) if others else self

    def state(self, options: Options, now: Instant) -> tuple[State, list[Refused]]:
        """A ledger of its own that holds the objects, and those that it cannot interpret. If there are nodes that could
        not be read, it knows of quota alone."""
        kinds = FEEDING
        if self.needs_nodes(wait_for_room=options.wait_for_room):
            if Node in self.objects and self.whole(*PLACES):
                kinds = FEEDING | PLACES
            else:
                options = replace(options, gates=replace(options.gates, topology_aware_scheduling=False))
        state, refused = State(options), list[Refused]()
        for kind, feed in kinds.items():
            for obj in self.of(kind):
                try:
                    feed.put(state, obj, now)
                except InvalidValue as error:
                    refused.append((obj, error))
        return state, refused
