"""What what-if says of a change is what happens when the change is made."""

import copy
import random

import pytest

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.insight import pending_worlds as worlds
from tests.unit.insight.happenings import Happening, some_change
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.options import FairSharing
from turnstile.insight.consequences import after
from turnstile.insight.difference import Course
from turnstile.insight.snapshot import Snapshot

STATES = examples(80)


def compare(seed: int) -> None:
    """A cluster, a change that is foretold and then made."""
    lots = random.Random(seed)
    options = Options(fair_sharing=FairSharing() if seed % 3 == 0 else None)
    snapshot, _ = worlds.world(seed)
    cluster = Happening(snapshot.keeping(Workload, lambda _: False).changed(_fresh(snapshot)), options, lots)
    begin = cluster.objects.changed()
    change = some_change(lots, begin)
    changed = after(begin, change, b.NOW)
    live = copy.deepcopy(cluster.state)
    changed.happen(live, b.NOW)
    foretold = [Course(live, b.NOW)]
    if all(info.last_assignment is None for info in cluster.state.queues.waiting.values()):
        # A snapshot does not know how far a search for flavors came.
        foretold.append(Course(changed.snapshot.state(options, b.NOW)[0], b.NOW))
    held = set(cluster.holding())

    evicted = cluster.happen(change)

    about = f"seed {seed}: {change}"
    assert evicted == {each.key for each in changed.released if each.evicted}, about
    now, victims = cluster.holding(), {key: by for key, by in cluster.preempted.items() if key in held}
    waits = {key: why for key in cluster.state.queues.waiting if (why := cluster.state.questions.why(key)) is not None}
    while cluster.state.queues.waiting and cluster.holding():
        cluster.finish_all()
    for course in foretold:
        assert {key for key, number in course.rounds.items() if number == 0} == set(now), about
        for key, fate in course.fates.items():
            if key in now and fate.outcome == "admitted":
                assert list(fate.flavors) == now[key], about
        assert {key: fate.preemptor for key, fate in course.preempted.items()} == victims, about
        assert course.waiting.keys() == waits.keys(), about
        assert course.starving.keys() == set(cluster.state.queues.waiting), about
    for key, fate in foretold[0].waiting.items():
        assert fate.reason == waits[key].reason, f"{about}: {key}"


def _fresh(snapshot: Snapshot) -> list[Workload]:
    """The Workloads as they were submitted."""
    return [b.changed(each, status={"conditions": [], "admission": None}) for each in snapshot.of(Workload)]


class TestRandomStates:
    """80 clusters, times EXAMPLES."""

    @pytest.mark.timeout(600)
    def test_what_is_foretold_happens(self) -> None:
        """Who is evicted, admitted with which flavors, preempted by whom; who waits and why; who starves."""
        for seed in range(STATES):
            compare(seed)
