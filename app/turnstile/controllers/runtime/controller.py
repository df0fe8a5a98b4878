"""Declarations of controllers: the kind, the decide function, and which changes require reconciling which keys.

Values only; `turnstile.controllers.runtime.runner` runs them. Each controller is declared in the module with its decide
function. A declaration must never subscribe to a store and never start a task.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from turnstile.api.meta import Kind
from turnstile.controllers.runtime.actions import ReconcileResult
from turnstile.kube.slices import ordered
from turnstile.kube.store import Store

T = TypeVar("T", bound=Kind)
K = TypeVar("K")

Target = tuple[str, str]
"""The name of a controller, and one of its keys."""


@dataclass(frozen=True, slots=True)
class Watch(Generic[T, K]):
    """Which keys to reconcile after a change of an object in `store`.

    `keys(key, old, new)` returns a few keys, which are added at once. `many(key, old, new)` returns None or an iterator
    of possibly thousands of keys, which are added later, in slices; each `None` it yields is a step without a key. With
    `after_ledger` they are added only after the change was applied to the ledger.
    """

    store: Store[T]
    keys: Callable[[str, T | None, T | None], Iterable[K]] = lambda key, old, new: ()
    many: Callable[[str, T | None, T | None], Iterator[K | None] | None] = lambda key, old, new: None
    after_ledger: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The reconciler of one kind of objects, by key, with its own work queue.

    `decide` returns the decision, or the steps to it if they may be many: other tasks run in between.
    `initial` returns the keys to reconcile when the controller starts; it may take many steps, as `Watch.many`. Up to
    `workers` keys are reconciled concurrently. A key that keeps failing waits `base_delay` seconds, then twice that, up
    to `max_delay`. Names are unique within a runner, and a label of metrics.
    """

    name: str
    kind: type[Kind]
    decide: Callable[[str], ReconcileResult | Generator[None, None, ReconcileResult]]
    watches: Sequence[Watch[Any, str]] = ()
    initial: Callable[[], Iterator[str | None]] = lambda: iter(())
    workers: int = 1
    base_delay: float = 0.005
    max_delay: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Watches shared by many controllers, so that not every controller handles every change: each watch returns which
    controller has to reconcile which key. Keys of controllers that do not run are dropped.

    The targets of `initial` are added when the controllers start. Whenever a store becomes complete, the targets that
    `complete` has for it are added: what was not decided, or was decided without its objects.
    """

    watches: Sequence[Watch[Any, Target]] = ()
    initial: Callable[[], Iterator[Target | None]] = lambda: iter(())
    complete: Mapping[Store[Any], Callable[[], Iterator[Target | None]]] = field(default_factory=dict)


def itself(key: str, _old: object, _new: object) -> tuple[str]:
    """`Watch.keys` of the kind that a controller decides about: the key of the changed object."""
    return (key,)


def every(store: Store[Any]) -> Generator[str | None, None, None]:
    """All keys of a store, sorted."""
    yield from (yield from ordered(store.keys()))
