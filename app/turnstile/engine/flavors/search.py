"""The search for the flavors of pod sets that share theirs: resource group after resource group, back to an earlier one
if its flavor is in the way.

Must never change usage.
"""

from collections.abc import Sequence
from typing import NamedTuple

from turnstile.engine.causes import Cause
from turnstile.engine.flavors.demand import Demand
from turnstile.engine.flavors.plain import PlainFits
from turnstile.engine.flavors.scan import Part, Scan
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.flavors.together import ALONE, Companions, Obstacle
from turnstile.engine.pace import Sliced
from turnstile.engine.quota.amounts import visiting_order
from turnstile.engine.reasons import Attempt, FlavorChoice, Mode


class Found(NamedTuple):
    """Flavors by resource, or None and the reasons why there are none."""

    choices: dict[str, FlavorChoice] | None
    reasons: Sequence[str]
    attempts: Sequence[Sequence[Attempt]]
    undeclared: Sequence[str] = ()
    error: str | None = None

    @property
    def mode(self) -> Mode:
        """The worst mode of the resources."""
        if self.choices is None:
            return Mode.NO_FIT
        return min((each.mode for each in self.choices.values()), default=Mode.FIT)


class Search:
    """One search. `resumed` says that a scan went on from where an earlier cycle stopped."""

    __slots__ = ("_scans", "_setup", "_undeclared", "resumed")

    def __init__(self, setup: Setup, plain: PlainFits, demand: Demand) -> None:
        self._setup = setup
        self._scans: list[Scan] = []
        """Scans of the resource groups, in the order in which they get their flavors."""
        self._undeclared = ""
        """Name of a resource in no resource group, which comes after those groups."""
        self.resumed = False
        queue, requests = demand.queue, demand.requests
        order = visiting_order(requests) if len(requests) > 1 else list(requests)
        covered: set[str] = set()
        for resource in order:
            if resource in covered:
                continue
            group = queue.group_of.get(resource)
            if group is not None:
                wanted = {name: requests[name] for name in order if name in group.covered}
                self._scans.append(Scan(setup, plain, demand, group.flavors, wanted))
                covered.update(wanted)
            elif requests[resource] and not setup.ignore_undeclared:
                self._undeclared = resource
                break

    def run(self) -> Sliced[Found]:
        """Flavors for all resources.

        Where not all of them fit, a flavor with which a flavor of a later resource group does not fit together is given
        up, and the search goes on from the group of that flavor: at most once a flavor of the ClusterQueue. The first
        of the best results counts.
        """
        given_up: dict[str, str] = {}
        parts: list[Part] = []
        best: Found | None = None
        while True:
            obstacle: Obstacle | None = None
            for scan in self._scans[len(parts) :]:
                self.resumed = self.resumed or scan.start > 0
                part = yield from scan.run(self._companions(parts, scan), given_up)
                parts.append(part)
                obstacle = obstacle or part.obstacle
                if not part.choices:
                    break
            found = self._together(parts)
            if best is None or found.mode > best.mode:
                best = found
            if obstacle is None or best.mode is Mode.FIT:
                return best
            given_up[obstacle.flavor] = obstacle.reason
            del parts[[part.flavor for part in parts].index(obstacle.flavor) :]

    def _companions(self, parts: list[Part], scan: Scan) -> Companions:
        """Flavors of the resource groups so far, but for resources that the next group gives a flavor too."""
        if not parts:
            return ALONE
        given = {resource: each.flavor for part in parts for resource, each in part.choices.items()}
        beside = {flavor for resource, flavor in given.items() if resource not in scan.wanted}
        return Companions([self._setup.flavors[name] for name in sorted(beside)]) if beside else ALONE

    def _together(self, parts: list[Part]) -> Found:
        """The result of all resource groups. Only the last of them may have found nothing."""
        attempts = [part.attempts for part in parts]
        if parts and not parts[-1].choices:
            return Found(None, parts[-1].reasons, attempts, error=parts[-1].error)
        if self._undeclared:
            why = Cause.NOT_COVERED.says(resource=self._undeclared)
            return Found(None, [why], attempts, undeclared=(self._undeclared,))
        if len(parts) == 1:
            return Found(parts[0].choices, parts[0].reasons, attempts)
        choices = {resource: choice for part in parts for resource, choice in part.choices.items()}
        return Found(choices, [reason for part in parts for reason in part.reasons], attempts)
