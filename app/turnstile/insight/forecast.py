"""When pending Workloads will be admitted: intervals from many courses of events that the run times seen make likely.

Each course draws how long every Workload runs, given how long it has run already, and which Workloads will come, from
those that came before; then the engine decides as time passes (`simulation`). An interval has 80 of 100 courses in it.
Where a run time has no data, or what must end first may run longer than anything seen, there is no number but a reason.
The same seed gives the same answer. Must never decide, and never guess.
"""

import pickle
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from turnstile.api.errors import InvalidValue
from turnstile.api.workload import Workload, WorkloadStatus
from turnstile.engine import Options, State
from turnstile.engine.instants import Instant, instant_or_zero, stamp
from turnstile.insight import standing
from turnstile.insight.near import Near
from turnstile.insight.rights import absent
from turnstile.insight.runtimes import ENDLESS, Distribution, Group, Runs, RunTimes, group_of, runs_of
from turnstile.insight.simulation import Simulation
from turnstile.insight.snapshot import Sees, Snapshot
from turnstile.wording.grammar import clause

COURSES: Final = 100
"""Courses of events that are drawn."""
LOW: Final = 0.1
HIGH: Final = 0.9
HORIZON: Final = 7 * 86_400.0
"""Seconds after which a course ends: what has not happened until then is later than any number says."""
_DAY: Final = 86_400.0


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a Workload will be admitted, in seconds from now: with 80 % from `earliest` to `latest`.

    None for an end that the data do not tell, and for all if there is no forecast; `reason` says why.
    """

    workload: str
    earliest: float | None = None
    median: float | None = None
    latest: float | None = None
    reason: str = ""
    based_on: tuple[str, ...] = ()
    """The runs that the run times of this Workload, and of those it waits for, were drawn from."""


Arrivals = Sequence[tuple[Instant, Workload]]
"""Workloads that came, in the order in which they did."""


def arrivals_of(snapshot: Snapshot) -> Arrivals:
    """The Workloads of a snapshot, finished ones too, by their creation."""
    found = [(instant_or_zero(each.metadata.creation_timestamp), each) for each in snapshot.of(Workload)]
    return sorted((each for each in found if each[0]), key=lambda each: (each[0], each[1].metadata.key))


@dataclass(slots=True)
class Forecaster:
    """Forecasts for the pending Workloads of one snapshot."""

    snapshot: Snapshot
    options: Options
    now: Instant
    run_times: RunTimes
    label: str = ""
    arrivals: Arrivals = ()
    """Workloads that came before now; without any, nobody is supposed to come."""
    courses: int = COURSES
    seed: int = 0
    sees: Sees = lambda _: True
    """Whether the asker may see the Workloads of a namespace; the names of others are not told."""

    def forecast(self, keys: Collection[str] | None = None) -> list[Forecast]:
        """The forecasts of some pending Workloads, or of all, in the order of their keys."""
        state, _ = self.snapshot.state(self.options, self.now)
        ledger = pickle.dumps(state, pickle.HIGHEST_PROTOCOL)  # read back, it is the fastest copy
        asked = sorted(state.queues.waiting if keys is None else keys)
        missing = self._without_data(state)
        reasons = dict(self._without_chance(asked, pickle.loads(ledger)))  # noqa: S301 (it was written here)
        found: dict[str, list[float]] = {key: [] for key in asked if key in state.queues.waiting and key not in reasons}
        if found and not self.run_times.ended:
            reasons |= dict.fromkeys(
                found, "no run time is known: no Workload has finished yet, of those that can be read"
            )
            found = {}
        based_on: dict[str, None] = {}
        endless = False
        for number in range(self.courses if found else 0):
            course = _Course(self, Random(f"{self.seed}/{number}"))  # noqa: S311
            copy: State = pickle.loads(ledger)  # noqa: S301 (it was written here)
            played = Simulation(copy, self.now, course.lasts, course.arrivals())
            played.until_admitted(found, horizon=self.now + HORIZON)
            based_on |= course.based_on
            endless |= course.endless
            for key, times in found.items():
                times.append(played.admitted.get(key, ENDLESS) - self.now)
        late = ""
        if missing:
            seen = [key for key in sorted(missing) if self.sees(key.partition("/")[0])][:5]
            late = f"too few runs are known like those of {', '.join(seen or ['Workloads of other namespaces'])}"
        elif endless:
            late = "what it waits for may run longer than any run that was seen"
        return [
            Forecast(workload=key, reason=reasons[key])
            if key in reasons
            else self._answer(key, found.get(key), late, tuple(based_on))
            for key in asked
        ]

    def _without_chance(self, asked: Sequence[str], state: State) -> Iterator[tuple[str, str]]:
        """Workloads whose start does not depend on how long others run, and the reasons: some are held, some start by
        themselves, some never."""
        begun = Simulation(state, self.now, lambda *_: ENDLESS)
        for key in asked:
            workload = self.snapshot.get(Workload, key)
            if workload is None or workload.quota_reserved or workload.finished:
                continue
            if held := next(standing.holding_back(workload, self.snapshot), ""):
                yield key, held
            elif key in begun.admitted:
                yield key, standing.by_itself(workload, self.snapshot, self.sees)
            elif never := standing.never(self.snapshot, self.options, self.now, workload):
                yield key, clause(never)

    def _answer(self, key: str, times: list[float] | None, late: str, based_on: tuple[str, ...]) -> Forecast:
        """`late` is why Workloads may never end in a course of events."""
        if times is None:
            return Forecast(workload=key, reason="it does not wait in a queue")
        times.sort()
        low, middle, high = (_quantile(times, part) for part in (LOW, 0.5, HIGH))
        reason = ""
        if times[0] == ENDLESS and not late:
            reason = "it is not admitted in any course of events: see `turnstile explain` and `turnstile what-if`"
        elif high == ENDLESS:
            reason = late or f"it may wait for more than {HORIZON / _DAY:.0f} days"
        return Forecast(
            workload=key,
            earliest=_finite(low),
            median=_finite(middle),
            latest=_finite(high),
            reason=reason,
            based_on=based_on,
        )

    def _without_data(self, state: State) -> set[str]:
        """Workloads that run, and of whose kind too few runs were seen."""
        return {
            key
            for queue in state.cluster_queues.values()
            for key, info in queue.workloads.items()
            if self.run_times.sample(group_of(info.workload, self.label)) is None
        }


class _Course:
    """The draws for one course of events."""

    def __init__(self, of: Forecaster, lots: Random) -> None:
        self._of = of
        self._lots = lots
        self._distributions: dict[tuple[Group, Runs | None], Distribution] = {}
        self.based_on: dict[str, None] = {}
        self.endless = False
        """Whether a run was drawn that is longer than any that was seen."""

    def lasts(self, workload: Workload, elapsed: float) -> float:
        """How long a Workload runs in all."""
        group = group_of(workload, self._of.label)
        sample = self._of.run_times.sample(group, elapsed=elapsed)
        if sample is None:
            self.endless = True
            return ENDLESS
        found = self._distributions.get((group, sample.coarser))
        if found is None:
            found = self._distributions[group, sample.coarser] = sample.distribution(self._lots)
            own = self._of.sees(group.queue.partition("/")[0])
            self.based_on[str(sample) if own else "runs in other namespaces"] = None
        seconds = found.draw(self._lots, elapsed=elapsed)
        self.endless |= seconds == ENDLESS
        return seconds

    def arrivals(self) -> Iterator[tuple[Instant, Workload]]:
        """Those who will come: as they came from another moment on, at the same time of day if that long ago is known;
        at the end of what is known, from its begin on."""
        past = self._of.arrivals
        span = self._of.now - past[0][0] if past else 0.0
        if span <= 0:
            return
        days = int(span / _DAY)
        back = self._lots.random() * span
        if days >= 2:
            back = min(span, max(0.0, self._lots.randint(1, days) * _DAY + self._lots.gauss(0, 3600.0)))
        shift = back
        number = 0
        while True:
            for at, workload in past:
                if at + shift > self._of.now:
                    number += 1
                    yield at + shift, _another(workload, number, at + shift)
            shift += span


def _another(workload: Workload, number: int, at: Instant) -> Workload:
    """A Workload like one that came before."""
    meta = workload.metadata
    name = f"{meta.name}-again-{number}"
    new = replace(meta, name=name, uid=f"{meta.uid}-{number}", creation_timestamp=stamp(at), resource_version="")
    return replace(workload, metadata=new, spec=replace(workload.spec, active=True), status=WorkloadStatus())


def _quantile(ordered: Sequence[float], part: float) -> float:
    """By the nearest of the courses, outwards: an interval must not be narrower than they are."""
    at = part * (len(ordered) + 1) - 1
    index = int(at) if part < 0.5 else -int(-at // 1)
    return ordered[min(max(index, 0), len(ordered) - 1)]


def _finite(seconds: float) -> float | None:
    return None if seconds == ENDLESS else max(0.0, seconds)


# --- as it is asked ---------------------------------------------------------------------------------------------------


def forecasts(
    snapshot: Snapshot,
    options: Options,
    now: Instant,
    keys: Collection[str],
    *,
    label: str = "",
    courses: int = COURSES,
    seed: int = 0,
    sees: Sees = lambda _: True,
) -> list[Forecast]:
    """Forecasts for pending Workloads, from the run times of all Workloads of a snapshot."""
    asked = [found for key in keys if (found := snapshot.get(Workload, key)) is not None]
    near = Near(snapshot, options).of(*asked)
    forecaster = Forecaster(
        snapshot=near,
        options=options,
        now=now,
        run_times=RunTimes(runs_of(snapshot.of(Workload), now, label)),
        label=label,
        arrivals=arrivals_of(near),
        courses=courses,
        seed=seed,
        sees=sees,
    )
    return forecaster.forecast(keys)


def pending(snapshot: Snapshot, namespace: str, key: str = "") -> list[str]:
    """Keys of the pending Workloads of a namespace, or that one alone. Raises InvalidValue unless it is pending, and if
    the Workloads of the namespace could not be read."""
    if snapshot.hidden.get(Workload, namespace) != namespace:
        raise InvalidValue("namespace", namespace, absent(snapshot, Workload, f"{namespace}/"))
    if not key:
        return sorted(
            each.metadata.key
            for each in snapshot.of(Workload)
            if each.metadata.namespace == namespace and not each.quota_reserved and not each.finished
        )
    if (found := snapshot.get(Workload, key)) is None:
        raise InvalidValue("TARGET", key, "there is no such Workload: see `kubectl get workloads`")
    if found.finished or found.quota_reserved:
        raise InvalidValue("TARGET", key, "it is not pending: see `turnstile explain`")
    return [key]


def plain(predicted: Sequence[Forecast], unread: Sequence[str], now: datetime) -> dict[str, Any]:
    """The forecasts for programs; seconds count from `now`."""
    return {"now": now.isoformat(), "forecasts": msgspec.to_builtins(predicted), "unread": unread}


class _Answer(msgspec.Struct):
    now: datetime
    forecasts: list[Forecast]
    unread: list[str]


def read(answer: bytes) -> tuple[list[Forecast], list[str], datetime]:
    """The forecasts of `plain` as JSON, the sentences on what is not read, and the time they count from."""
    found = msgspec.json.decode(answer, type=_Answer)
    return found.forecasts, found.unread, found.now
