"""Events of a state, which are kept while a cycle is under way, so that the cycle sees one instant.

Must never do anything for one event that it does not for all, but to know which change no quota and no policy.
"""

from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from turnstile.engine.log import Log
from turnstile.engine.queue.nominations import Nominations

_OF_WORKLOADS: Final = frozenset(
    ("put_workload", "drop_workload", "confirm", "forget", "forget_eviction", "note_overdue", "pass_deadlines")
)
"""Events that change no quota and no policy."""


class _Logged(Protocol):
    log: Log
    nominations: Nominations


_S = TypeVar("_S", bound=_Logged)
_P = ParamSpec("_P")


def event(method: Callable[Concatenate[_S, _P], bool | None]) -> Callable[Concatenate[_S, _P], None]:
    """An event: kept while a cycle is under way, else applied at once. A method that answers False changed nothing
    that a cycle reads."""
    name = method.__name__
    shape = name not in _OF_WORKLOADS

    def apply(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.log.cycling:
            self.log.defer(lambda: apply(self, *args, **kwargs))
            return
        changed = method(self, *args, **kwargs) is not False
        if changed and shape:
            self.nominations.repeats.forget_all()
        self.log.took(name, args, kwargs, changed=changed, shape=shape)

    apply.__name__ = name
    apply.__doc__ = method.__doc__
    return apply
