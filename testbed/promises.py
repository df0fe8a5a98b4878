"""What the tour promises, one sentence each, and how each is judged from what is seen.

A promise is judged again at every snapshot until it holds or its time is up. Pure: no I/O and no clock of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from testbed.snapshot import Row, Snapshot, State

Judge = Callable[[Snapshot], str]
"""Empty when the promise holds, else what is missing."""


@dataclass(slots=True)
class Promise:
    """One sentence, the seconds it has once it is due, and how it went."""

    sentence: str
    judge: Judge
    seconds: float = 30
    due_since: float | None = None
    kept_after: float | None = None
    missing: str = "never reached"

    @property
    def kept(self) -> bool:
        """Whether it has come true."""
        return self.kept_after is not None

    def look(self, snapshot: Snapshot, now: float) -> None:
        """Judge once more; the first look starts its time."""
        if self.kept:
            return
        if self.due_since is None:
            self.due_since = now
        self.missing = self.judge(snapshot)
        if not self.missing:
            self.kept_after = now - self.due_since

    def is_over(self, now: float) -> bool:
        """Whether nothing more can come of it: kept, or out of time."""
        return self.kept or (self.due_since is not None and now - self.due_since > self.seconds)


@dataclass(slots=True)
class Question:
    """What a person would ask the command line at this moment, and words that its answer must have."""

    sentence: str
    arguments: tuple[str, ...]
    """Of `turnstile`."""
    words: tuple[str, ...]
    kept_after: float | None = None
    missing: str = "never asked"

    @property
    def kept(self) -> bool:
        """Whether it was answered as promised."""
        return self.kept_after is not None

    def answered(self, answer: str, *, code: int, seconds: float) -> None:
        """Judge what the command printed."""
        lacking = [word for word in self.words if word not in answer]
        if code:
            self.missing = f"it ended with {code}"
        elif lacking:
            self.missing = f"its answer does not say {', '.join(lacking)}"
        else:
            self.kept_after = seconds


@dataclass(slots=True)
class Invariant:
    """Must hold at every snapshot; the first breach is remembered."""

    sentence: str
    judge: Judge
    breach: str = ""
    looks: int = 0

    @property
    def holds(self) -> bool:
        """Whether it was looked at and never breached."""
        return self.looks > 0 and not self.breach

    def look(self, snapshot: Snapshot) -> None:
        """Judge once more."""
        self.looks += 1
        self.breach = self.breach or self.judge(snapshot)


@dataclass(slots=True)
class Act:
    """Files of examples/ (and further objects) that are applied, and what must follow before the next act begins.

    Questions are asked when the promises have come true. With `stand_ins`, JobSets and RayJobs are known from then on,
    and what stands in for their operators plays.
    """

    title: str
    files: tuple[str, ...]
    promises: list[Promise] = field(default_factory=list)
    objects: tuple[dict[str, Any], ...] = ()
    questions: tuple[Question, ...] = ()
    stand_ins: bool = False


def on_one(key: str, label: str) -> Judge:
    """All nodes of the row's pods have the same value of a label."""

    def judge(snapshot: Snapshot) -> str:
        row = snapshot.row(key)
        values = {snapshot.nodes.get(node, {}).get(label, "") for node in row.nodes} if row is not None else set()
        return "" if len(values) == 1 and all(values) else f"{key} is on {label} {', '.join(sorted(values)) or 'none'}"

    return judge


def runs(key: str, flavor: str, *, node_labels: Mapping[str, str]) -> Judge:
    """The row's pods run, with this flavor, only on nodes that carry these labels."""

    def judge(snapshot: Snapshot) -> str:
        row = snapshot.row(key)
        if row is None or row.state not in ("Running", "Finished"):
            return _is(key, row)
        if row.flavors != (flavor,):
            return f"{key} has the flavor {', '.join(row.flavors) or 'none'}"
        strangers = [n for n in row.nodes if not node_labels.items() <= snapshot.nodes.get(n, {}).items()]
        if strangers or not row.nodes:
            return f"{key} is on {', '.join(strangers) or 'no node'}"
        return ""

    return judge


def is_in(key: str, *states: State, queue: str | None = None, saying: tuple[str, ...] = ()) -> Judge:
    """The row is in one of the states, in that queue, and its sentence contains all the words."""

    def judge(snapshot: Snapshot) -> str:
        row = snapshot.row(key)
        if row is None or row.state not in states:
            return _is(key, row)
        if queue is not None and row.queue != queue:
            return f"{key} is in queue {row.queue!r}"
        missing = [word for word in saying if word not in row.why]
        return f"{key} does not say {', '.join(missing)}: {row.why!r}" if missing else ""

    return judge


def borrows(cluster_queue: str, flavor: str) -> Judge:
    """The ClusterQueue reports borrowed GPUs or CPUs of the flavor."""
    return lambda seen: (
        "" if seen.borrowed.get((cluster_queue, flavor)) else f"{cluster_queue} reports nothing borrowed"
    )


def queues_are_active(*queues: str) -> Judge:
    """All these queues report Active."""
    return lambda seen: ", ".join(f"{queue} is not Active" for queue in queues if queue not in seen.active_queues)


def waits_although_it_fits(key: str, flavor: str, total: Fraction) -> Judge:
    """The row waits while its CPUs are free in the cohort."""

    def judge(snapshot: Snapshot) -> str:
        row = snapshot.row(key)
        if row is None or row.state != "Waiting":
            return _is(key, row)
        free = total - sum(_in_use(snapshot, flavor).values(), Fraction(0))
        return "" if row.cpu <= free else f"{key} needs {row.cpu} CPUs while {free} are free"

    return judge


def never_overtakes(key: str, ahead: str) -> Judge:
    """The one does not run before the other was given quota."""

    def judge(snapshot: Snapshot) -> str:
        row, before = snapshot.row(key), snapshot.row(ahead)
        if row is None or row.state not in ("Running", "Finished") or (before is not None and before.flavors):
            return ""
        return f"{key} is {row.state} while {_is(ahead, before)}"

    return judge


def never_over(flavor: str, total: Fraction) -> Judge:
    """Rows that started with the flavor and are not gone ask for no more GPUs or CPUs than the cohort owns."""

    def judge(snapshot: Snapshot) -> str:
        used = _in_use(snapshot, flavor)
        return "" if sum(used.values()) <= total else f"{', '.join(used)} use more than {total} of {flavor}"

    return judge


def nothing_reserved() -> Judge:
    """No ClusterQueue has GPUs or CPUs reserved."""

    def judge(snapshot: Snapshot) -> str:
        left = [
            f"{queue} still holds {amount} of {flavor}"
            for (queue, flavor), amount in snapshot.reserved.items()
            if amount
        ]
        return ", ".join(left)

    return judge


def only_its_rights() -> Judge:
    """The API server forbade Turnstile nothing."""
    return lambda snapshot: ", ".join(snapshot.refused)


def all_of(*judges: Judge) -> Judge:
    """Every one of them holds."""
    return lambda snapshot: "; ".join(filter(None, (judge(snapshot) for judge in judges)))


def _in_use(snapshot: Snapshot, flavor: str) -> dict[str, Fraction]:
    started = ("Admitted", "Running", "Stopping")
    return {key: row.amount for key, row in snapshot.rows.items() if row.state in started and flavor in row.flavors}


def _is(key: str, row: Row | None) -> str:
    return f"{key} is not there" if row is None else f"{key} is {row.state}: {row.why}"
