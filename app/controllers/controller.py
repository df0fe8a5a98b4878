"""What a controller declares: what it decides about, how, and which changes concern which of its keys.

Values only; `app.controllers.runner` runs them. Each controller is declared in the module that decides for it, so that
all that is to be known about it stands in one place. A declaration subscribes to nothing and starts nothing.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app.api.meta import Kind
from app.controllers.actions import Decision
from app.kube.slices import ordered
from app.kube.store import Store

T = TypeVar("T", bound=Kind)
K = TypeVar("K")

Target = tuple[str, str]
"""The name of a controller, and one of its keys."""


@dataclass(frozen=True, slots=True)
class Watch(Generic[T, K]):
    """Which keys a change of an object in `store` concerns.

    `keys(key, old, new)` gives a few, which are added at once. `many(key, old, new)` gives keys that may be thousands,
    or None: they are added in slices, later, and each `None` among them is a step that found no key. With
    `after_ledger` they are listed only when the ledger has taken in the change.
    """

    store: Store[T]
    keys: Callable[[str, T | None, T | None], Iterable[K]] = lambda key, old, new: ()
    many: Callable[[str, T | None, T | None], Iterator[K | None] | None] = lambda key, old, new: None
    after_ledger: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One kind of objects that is decided about, by key, with a work queue of its own.

    `initial` gives the keys that are reconciled when the controller starts; it may take many steps, as `Watch.many`.
    `workers` keys are reconciled side by side. A key that keeps failing waits `base_delay` seconds, then twice that, up
    to `max_delay`. Names are unique within a runner; metrics have them as a label.
    """

    name: str
    kind: type[Kind]
    decide: Callable[[str], Decision]
    watches: Sequence[Watch[Any, str]] = ()
    initial: Callable[[], Iterator[str | None]] = lambda: iter(())
    workers: int = 1
    base_delay: float = 0.005
    max_delay: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Changes that concern many controllers, of which each would otherwise hear of all: one subscription says which
    controller has to reconcile which key. Keys of controllers that do not run are dropped.

    `initial` is gone through when the controllers start, and whenever a store in `complete` becomes complete.
    """

    watches: Sequence[Watch[Any, Target]] = ()
    initial: Callable[[], Iterator[Target | None]] = lambda: iter(())
    complete: Sequence[Store[Any]] = ()


def itself(key: str, _old: object, _new: object) -> tuple[str]:
    """`Watch.keys` of the kind that a controller decides about: each change concerns the object that changed."""
    return (key,)


def every(store: Store[Any]) -> Generator[str | None, None, None]:
    """All keys of a store, in the order of the alphabet."""
    yield from (yield from ordered(store.keys()))
