"""Facts worked out from the specs of pods, held for as long as the pods are.

Each change of one pod reconciles its whole group, which asks about every pod of the group again. The specs of no two
pods are equal, as each names its node and its token: what was worked out is of use to one pod, until that is gone.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from turnstile.api.core import Pod

T = TypeVar("T")

LIMIT: Final = 2048
"""Pods of which anything is held, at most: those that were asked about last."""


class Facts:
    """Facts worked out from pods, by pod."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._held: OrderedDict[int, tuple[msgspec.Raw, dict[object, Any]]] = OrderedDict()
        """By the identity of the spec, which is held as well so that no other one gets the same."""

    def __len__(self) -> int:
        return len(self._held)

    def of(self, pod: Pod) -> dict[object, Any]:
        """The known facts about a pod, to be added to."""
        spec = pod.spec
        found = self._held.get(id(spec))
        if found is not None:
            self._held.move_to_end(id(spec))
            return found[1]
        facts: dict[object, Any] = {}
        self._held[id(spec)] = (spec, facts)
        if len(self._held) > self._limit:
            self._held.popitem(last=False)
        return facts

    def forget(self, pod: Pod) -> None:
        """This version of a pod is not held any more."""
        self._held.pop(id(pod.spec), None)


FACTS: Final = Facts()
"""The facts about the pods of this process."""


class Once(Generic[T]):
    """A function of the spec of a pod that is worked out once for each pod that exists."""

    def __init__(self, function: Callable[[msgspec.Raw], T], *, facts: Facts = FACTS) -> None:
        self._function = function
        self._facts = facts

    def __call__(self, pod: Pod) -> T:
        """The value for this pod. Shared: must not be changed."""
        if not pod.metadata.uid:
            return self._function(pod.spec)  # it is only about to be created
        facts = self._facts.of(pod)
        if self not in facts:
            facts[self] = self._function(pod.spec)
        value: T = facts[self]
        return value
