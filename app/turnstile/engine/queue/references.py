"""Which ClusterQueues name a ResourceFlavor or an AdmissionCheck: an event of those concerns no other ClusterQueue.

Must never judge a ClusterQueue.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue

_NONE: Final[Mapping[str, None]] = {}


class References:
    """Names of ClusterQueues by the flavors and checks that they name."""

    __slots__ = ("_checks", "_flavors", "_names")

    def __init__(self) -> None:
        self._flavors: dict[str, dict[str, None]] = {}
        self._checks: dict[str, dict[str, None]] = {}
        self._names: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """Flavors and checks that each ClusterQueue names."""

    def put(self, queue: "ClusterQueue") -> None:
        """A ClusterQueue exists or changed."""
        name = queue.name
        names = tuple(queue.flavors()), tuple(dict.fromkeys(check.name for check in queue.checks))
        if self._names.get(name) == names:
            return
        self.drop(name)
        self._names[name] = names
        for table, named in zip((self._flavors, self._checks), names, strict=True):
            for each in named:
                table.setdefault(each, {})[name] = None

    def drop(self, name: str) -> None:
        """A ClusterQueue is gone."""
        for table, named in zip((self._flavors, self._checks), self._names.pop(name, ((), ())), strict=True):
            for each in named:
                del table[each][name]
                if not table[each]:
                    del table[each]

    def flavor(self, name: str) -> Mapping[str, None]:
        """ClusterQueues with quota of a flavor, in the order in which they came."""
        return self._flavors.get(name, _NONE)

    def check(self, name: str) -> Mapping[str, None]:
        """ClusterQueues that name an AdmissionCheck, in the order in which they came."""
        return self._checks.get(name, _NONE)
