"""The scan of one resource group: its flavors are tried in the order the ClusterQueue lists them, and fungibility says
when to go on to the next.

Each flavor is judged once in a search, however often the scan runs. Sources: Kueue's flavorassigner and KEP-582.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from turnstile.engine.causes import Cause
from turnstile.engine.flavors.demand import Demand
from turnstile.engine.flavors.fungibility import FIT, NO_FIT, better, try_next
from turnstile.engine.flavors.plain import PlainFits
from turnstile.engine.flavors.quotafit import Verdict
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.flavors.together import Companions, Obstacle
from turnstile.engine.pace import Sliced
from turnstile.engine.reasons import MODE_OF, NO_MATCHING_FLAVOR, NO_ROOM, Attempt, FlavorChoice, Mode


class Part(NamedTuple):
    """A flavor for the resources of one group, or no choices and the reasons why there is none."""

    choices: dict[str, FlavorChoice]
    reasons: Sequence[str]
    attempts: Sequence[Attempt]
    obstacle: Obstacle | None
    """The first companion with which one of the flavors does not fit together."""
    error: str | None = None

    @property
    def flavor(self) -> str:
        """Name of the flavor; empty if there is none."""
        return next((choice.flavor for choice in self.choices.values()), "")


class Scan:
    """The flavors of one resource group, for the resources of it that are asked for. `start` is where an earlier cycle
    stopped."""

    __slots__ = ("_demand", "_flavors", "_judged", "_plain", "_resource", "_setup", "start", "wanted")

    def __init__(
        self, setup: Setup, plain: PlainFits, demand: Demand, flavors: tuple[str, ...], wanted: dict[str, int]
    ) -> None:
        self._setup = setup
        self._plain = plain
        self._demand = demand
        self._flavors = flavors
        self.wanted = wanted
        self._resource = resource = next(iter(wanted))
        self._judged: dict[str, Verdict] = {}
        self.start = 0
        last, first = demand.info.last_assignment, demand.members[0]
        if setup.fungible and last is not None and first < len(last.tried):
            self.start = last.tried[first].get(resource, -1) + 1

    def run(self, companions: Companions, given_up: Mapping[str, str]) -> Sliced[Part]:
        """The best flavor beside companions, which are those of other groups, but for flavors that were given up, each
        for a reason."""
        demand, flavors, setup = self._demand, self._flavors, self._setup
        fungibility, fungible, pace = demand.queue.fungibility, setup.fungible, setup.pace
        reasons: list[str] = []
        attempts: list[Attempt] = []
        obstacle: Obstacle | None = None
        best: Verdict | None = None
        best_how, best_level = NO_FIT, 0
        attempted = -1
        for index in range(self.start, len(flavors)):
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            attempted = index
            flavor = flavors[index]
            if excluded := self._excluded(flavor):
                reasons.append(excluded)
                continue
            try:
                unfit = setup.unfit(demand.queue, demand.info, demand.members, flavor) or given_up.get(flavor)
                if unfit is None:
                    blocked = companions.unfit(setup.flavors[flavor], demand)
                    if blocked is not None:
                        obstacle, unfit = obstacle or blocked, blocked.reason
            except ValueError as error:
                return Part({}, reasons, attempts, obstacle, str(error))
            if unfit is not None:
                attempts.append(_refused(flavor, unfit))
                reasons.append(unfit)
                continue
            verdict = self._judged.get(flavor)
            if verdict is None:
                verdict = self._judged[flavor] = yield from setup.judge.suits(demand, flavor, self.wanted)
            how, level = verdict.how, verdict.level
            if how is FIT and setup.room is not None:
                together = sorted({*companions.names, flavor})
                if no_room := (yield from setup.room.lacks(demand, together)):
                    if companions.names:
                        obstacle = obstacle or Obstacle(companions.names[-1], no_room)
                    attempts.append(_refused(flavor, no_room, NO_ROOM))
                    reasons.append(no_room)
                    continue
            if how is FIT and not verdict.ratings:
                choice, alone = self._plain.fit(flavor, self._progress(index))
                return Part(
                    dict.fromkeys(self.wanted, choice), (), [*attempts, *alone] if attempts else alone, obstacle
                )
            reasons.extend(verdict.reasons)
            attempts.append(verdict.attempt)
            if how is FIT and level == 0:
                best, best_how = verdict, how
                break
            enough = not try_next(how, level, fungibility) if fungible else how is FIT
            if enough or better(how, level, best_how, best_level, fungibility, fungible=fungible):
                best, best_how, best_level = verdict, how, level
            if enough:
                break
        choices = self._choices(best, self._progress(attempted)) if best is not None else {}
        return Part(choices, () if best_how is FIT else reasons, attempts, obstacle)

    def _excluded(self, flavor: str) -> str:
        """Why the Workload may not have a flavor, whatever its pods and the quota; empty if it may."""
        pins, allowed = self._demand.pins, self._demand.info.allowed_flavors
        if pins is not None and pins.get(self._resource) != flavor:
            return Cause.OTHER_NOMINATION.says(flavor=flavor, resource=self._resource)
        if allowed is not None and flavor not in allowed:
            return Cause.VARIANT_FLAVOR.says(flavor=flavor)
        return ""

    def _progress(self, attempted: int) -> int:
        """The index at which the scan ended; -1 at the last flavor."""
        return -1 if attempted == len(self._flavors) - 1 else attempted

    def _choices(self, verdict: Verdict, tried: int) -> dict[str, FlavorChoice]:
        flavor, index = verdict.attempt.flavor, tried if self._setup.fungible else -1
        return {
            resource: FlavorChoice(flavor, MODE_OF[how], level, index)
            for resource in self.wanted
            for how, level in (verdict.ratings.get(resource, (FIT, 0)),)
        }


def _refused(flavor: str, reason: str, no_fit_reason: str = NO_MATCHING_FLAVOR) -> Attempt:
    attempt = Attempt(flavor)
    attempt.mode = Mode.NO_FIT
    attempt.possibility = NO_FIT
    attempt.refuse(reason, no_fit_reason)
    return attempt
