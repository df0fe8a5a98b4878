"""A controller dies at a write of a lifecycle, the next one goes on, and the end is the same as if none had died.

In continuous integration some lifecycles are run once, with two leaders that die. With `LIFECYCLE_KILLS=each` three die
in every lifecycle. With `LIFECYCLE_KILLS=all` the leader dies at the first write, at the second, and so on until a run
needs no more writes: once when the write has landed and the answer was not read, once before the write is sent.
"""

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from testbed.autoscaler import Autoscaler
from testbed.client import wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import WaitTimeout
from testbed.installation import MANAGED
from tests.audits import assert_passes
from tests.cluster.scenario import Scenario
from tests.faults.lifecycles import LIFECYCLES, Lifecycle
from tests.faults.mortal import Death, Mortals
from tests.faults.normal import Form, difference, normal_form
from tests.turnstile import Turnstile

KILLS = os.environ.get("LIFECYCLE_KILLS", "")
EVERY = KILLS == "all"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600 if EVERY else 400)]

DEATHS_AT_ONCE = (
    [Death(2, "after"), Death(3, "before"), Death(2, "after")] if KILLS else [Death(2, "after"), Death(3, "before")]
)
SAME_SECONDS = 60.0
"""From the end of a lifecycle until all is as it was without a death, at most: queues' statuses are written later."""
PAUSE_SECONDS = 0.2
"""Between two looks at everything."""
QUIET_SECONDS = 2.5
"""A lifecycle is over when nothing has changed for so long."""


class Bed:
    """Turnstile under one configuration at a time, and namespaces for lifecycles."""

    def __init__(self, control_plane: ControlPlane, turnstile: Turnstile, tmp_path: pytest.TempPathFactory) -> None:
        self.control_plane = control_plane
        self.installation = turnstile.installation
        self._tmp_path = tmp_path
        self._text = ""
        self.mortals: Mortals | None = None

    def under(self, text: str) -> Mortals:
        """The controllers under that configuration; those under another one are stopped."""
        if self.mortals is None or self._text != text:
            self.stop()
            made = Mortals(self.control_plane, self.installation, self._tmp_path.mktemp("mortals"), text)
            self.mortals, self._text = made, text
            made.start()
        return self.mortals

    def stop(self) -> None:
        """SIGKILL all processes."""
        if self.mortals is not None:
            self.mortals.stop()
            self.mortals = None

    def run(self, lifecycle: Lifecycle, deaths: list[Death], *, wanted: Form | None = None) -> "Run":
        """One run in a namespace of its own; fails unless it ends as `wanted`, if that is given."""
        mortals = self.under(lifecycle.configuration)
        scenario = Scenario(self.control_plane.api, self.control_plane.namespace("life", labels=MANAGED))
        try:
            with mortals.killed_at(scenario.namespace, deaths) as writes:
                try:
                    lifecycle.act(scenario)
                    form = self._quiet(scenario) if wanted is None else self._same(scenario, wanted)
                    assert_passes(scenario.api, scenario.namespace)
                except (AssertionError, WaitTimeout) as error:
                    told = "\n".join(f"leader {number}: {', '.join(each)}" for number, each in enumerate(writes, 1))
                    log = mortals.leader.process.tail(20)
                    died = ", ".join(map(str, deaths)) or "never"
                    raise AssertionError(f"{lifecycle.name}, dies {died}: {error}\n{told}\n{log}") from error
            return Run(form, [len(each) for each in writes], list(itertools.chain(*writes)))
        finally:
            scenario.remove()

    def _quiet(self, scenario: Scenario) -> Form:
        """The normal form when nothing changes any more."""
        seen, since = normal_form(scenario), time.monotonic()

        def look() -> bool:
            nonlocal seen, since
            threading.Event().wait(PAUSE_SECONDS)
            now = normal_form(scenario)
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > QUIET_SECONDS

        wait_until(look, timeout=SAME_SECONDS, describe=lambda: "it does not come to rest")
        return seen

    def _same(self, scenario: Scenario, wanted: Form) -> Form:
        seen: Form = {}

        def look() -> bool:
            threading.Event().wait(PAUSE_SECONDS)
            seen.update(normal_form(scenario))
            return seen == wanted

        wait_until(look, timeout=SAME_SECONDS, describe=lambda: f"ends otherwise:\n{difference(seen, wanted)}")
        return seen


class Run(NamedTuple):
    """How a run ended, how many writes each leader made, and which."""

    form: Form
    writes: list[int]
    told: list[str]


@pytest.fixture(scope="module")
def bed(
    control_plane: ControlPlane,
    installation: Turnstile,
    nodes: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bed]:
    """In the place of the session's Turnstile, with the rights that the retention policies need."""
    installation.stop()
    autoscaler = Autoscaler(control_plane.api)
    autoscaler.install()
    control_plane.restart("kube-controller-manager")  # its garbage collector looks for new kinds only every 30 s
    policies = "config.objectRetentionPolicies.workloads"
    installation.installation.install(
        "config.integrations.frameworks={batch/job,pod,deployment,statefulset}",
        f"{policies}.afterFinished=1s",
        f"{policies}.afterDeactivatedByKueue=1s",
    )
    made = Bed(control_plane, installation, tmp_path_factory)
    with ExitStack() as ends:
        ends.callback(installation.start)
        ends.callback(autoscaler.remove)
        ends.callback(installation.installation.install)
        ends.callback(made.stop)
        yield made


@pytest.mark.parametrize(
    "lifecycle", [each for each in LIFECYCLES if each.always or KILLS], ids=lambda lifecycle: lifecycle.name
)
def test_the_end_is_the_same(bed: Bed, lifecycle: Lifecycle) -> None:
    """Conditions, admission, back-off, suspension, queues' statuses and quota; and an audit finds nothing."""
    alone = bed.run(lifecycle, [])
    print(f"{lifecycle.name}: {alone.writes[0]} writes: {', '.join(alone.told)}")
    if not EVERY:
        run = bed.run(lifecycle, DEATHS_AT_ONCE, wanted=alone.form)
        assert len(run.writes) > 1, "no leader died"
        return
    for moment in ("after", "before"):
        for number in itertools.count(1):
            run = bed.run(lifecycle, [Death(number, moment)], wanted=alone.form)
            if len(run.writes) == 1:
                break
        print(f"{lifecycle.name}: died {moment} each of {number - 1} writes")
