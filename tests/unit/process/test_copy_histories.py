"""Whatever happens to the ledger in whatever order: what its copy foretells is what the next cycle decides."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from app.engine import Decision, Options, State
from app.insight.question import Question
from app.insight.whatif import Fate, Outlook, WhatIf
from app.process.copy import Copy
from tests.unit.engine import builders as b
from tests.unit.engine.pictures import differences, essence
from tests.unit.engine.test_histories import Histories

T = TypeVar("T")
STATES = int(os.environ.get("STATES", "250"))


@dataclass(frozen=True)
class Foretelling:
    """What the copy looks like, and what it would decide."""

    def answer(self, state: State) -> Iterator[Any]:
        """All that decides what happens next, then what happens."""
        yield essence(state)
        yield from WhatIf(now=b.NOW, cycles=1).answer(state)


class Foretold(Histories):
    """The histories of the engine, with a copy that is asked before each cycle."""

    states = 0

    def begin(self, options: Options) -> None:
        """An engine, and its copy."""
        super().begin(options)
        if not hasattr(self, "loop"):
            self.loop = asyncio.new_event_loop()
        self.copy = Copy(self.state)

    def teardown(self) -> None:
        """The copy ends with the history."""
        self.copy.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def ask(self, question: Question[T]) -> list[T]:
        """The copy's answer."""
        return self.loop.run_until_complete(self.copy.ask(question))

    def try_all_again(self) -> None:
        """No event makes it so: another copy begins from here."""
        super().try_all_again()
        self.copy.close()

    @rule(times=st.integers(1, 4))
    def run_cycles(self, times: int) -> None:
        """Some cycles."""
        self.end_slices()
        for _ in range(times):
            self.cycle()

    def cycle(self) -> list[Decision]:
        """A cycle decides what the copy foretold, and the copy was as the ledger is."""
        if not self.state.has_work:
            return super().cycle()
        seen, *fates, outlook = self.ask(Foretelling())
        found = list(differences(essence(self.state), seen))
        assert not found, "\n".join(found)
        assert isinstance(outlook, Outlook)
        assert outlook.cycles == 1
        decisions = super().cycle()
        self.compare(fates, decisions)
        type(self).states += 1
        return decisions

    def compare(self, fates: list[Fate | Outlook], decisions: list[Decision]) -> None:
        """Whom it admits, with which flavors, whom it preempts for whom, and why the others wait."""
        foretold: dict[str, list[Any]] = {"holds": [], "preempted": [], "pending": []}
        for fate in fates:
            assert isinstance(fate, Fate)
            kind = fate.outcome if fate.outcome in foretold else "holds"
            foretold[kind].append(
                (fate.key, fate.reason, fate.message, fate.flavors, fate.preemptor, fate.outcome == "admitted")
            )
        assert foretold["holds"] == [
            (each.key, "", "", tuple(b.flavors_of(each)), "", each.admitted)
            for each in decisions
            if each.outcome == "admit"
        ]
        assert foretold["preempted"] == [
            (victim.key, victim.reason, victim.message, (), each.key, False)
            for each in decisions
            for victim in each.victims
            if victim.new
        ]
        waits = {key: self.state.why(key) for key in self.state.waiting}
        assert {key: (reason, message) for key, reason, message, *_ in foretold["pending"]} == {
            key: why[:2] for key, why in waits.items() if why is not None
        }


Foretold.TestCase.settings = settings(
    max_examples=int(os.environ.get("COPY_HISTORIES", "20")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(300)
def test_random_states() -> None:
    """The next cycle decides what the copy said, in as many states of random histories as STATES says."""
    Foretold.states = 0
    while Foretold.states < STATES:
        Foretold.TestCase("runTest").runTest()
