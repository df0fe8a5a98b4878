"""A promise is kept only by what it says, within its time; the tour fails when one is not."""

from fractions import Fraction
from pathlib import Path

import yaml

from testbed.acts import acts
from testbed.board import Board
from testbed.promises import (
    Invariant,
    Promise,
    is_in,
    never_over,
    never_overtakes,
    nothing_reserved,
    runs,
    waits_although_it_fits,
)
from testbed.snapshot import Row, Snapshot, State
from testbed.tour import EXAMPLES, Tour, _timed

QUICKSTART = EXAMPLES / "quickstart"


def row(
    name: str, state: State, *, cpu: int = 1, flavor: str = "", node: str = "", why: str = "", queue: str = "q"
) -> Row:
    """A Job's row in namespace `team`."""
    return Row(
        kind="Job",
        namespace="team",
        name=name,
        queue=queue,
        state=state,
        cpu=Fraction(cpu),
        flavors=(flavor,) if flavor else (),
        nodes=(node,) if node else (),
        why=why,
    )


def seen(*rows: Row) -> Snapshot:
    """A snapshot with these rows and two nodes."""
    nodes = {"spot-1": {"capacity": "spot"}, "od-1": {"capacity": "on-demand"}}
    return Snapshot(rows={row.key: row for row in rows}, nodes=nodes)


class TestTime:
    """Time runs from the first look."""

    def test_kept_late_in_its_time(self) -> None:
        """What comes true in time is kept, and stays so."""
        promise = Promise("it runs", is_in("team/a", "Running"), seconds=10)
        promise.look(seen(), 100)
        assert not promise.is_over(109)
        promise.look(seen(row("a", "Running")), 109)
        promise.look(seen(), 110)
        assert promise.kept_after == 9

    def test_out_of_time_names_what_is_missing(self) -> None:
        """After its seconds it is over, with the last thing seen."""
        promise = Promise("it runs", is_in("team/a", "Running"), seconds=10)
        promise.look(seen(row("a", "Waiting", why="no room")), 100)
        assert promise.is_over(111)
        assert not promise.kept
        assert promise.missing == "team/a is Waiting: no room"


class TestJudges:
    """Each sentence has one meaning."""

    def test_runs_on_nodes_of_the_flavor(self) -> None:
        """The flavor and every node must be right."""
        judge = runs("team/a", "spot", node_labels={"capacity": "spot"})
        assert judge(seen(row("a", "Running", flavor="spot", node="spot-1"))) == ""
        assert judge(seen(row("a", "Running", flavor="spot", node="od-1"))) == "team/a is on od-1"
        assert judge(seen(row("a", "Running", flavor="on-demand", node="od-1"))) == "team/a has the flavor on-demand"
        assert judge(seen(row("a", "Running", flavor="spot"))) == "team/a is on no node"
        assert judge(seen()) == "team/a is not there"

    def test_says_why(self) -> None:
        """The sentence must have all the words, and the queue be the right one."""
        judge = is_in("team/a", "Waiting", queue="q", saying=("cpu", "spot"))
        assert judge(seen(row("a", "Waiting", why="no cpu in spot"))) == ""
        assert "does not say spot" in judge(seen(row("a", "Waiting", why="no cpu")))
        assert "queue 'r'" in judge(seen(row("a", "Waiting", why="no cpu in spot", queue="r")))

    def test_waits_although_it_fits(self) -> None:
        """Waiting for want of room is something else."""
        judge = waits_although_it_fits("team/b", "spot", Fraction(4))
        assert judge(seen(row("a", "Running", cpu=3, flavor="spot"), row("b", "Waiting"))) == ""
        assert judge(seen(row("a", "Running", cpu=4, flavor="spot"), row("b", "Waiting"))) != ""

    def test_never_overtakes(self) -> None:
        """Running while the one ahead has no quota is a breach; about to start, or after it, is not."""
        judge = never_overtakes("team/b", "team/a")
        assert judge(seen(row("a", "Waiting"), row("b", "Waiting"))) == ""
        assert judge(seen(row("a", "Waiting", flavor="spot"), row("b", "Running", flavor="spot"))) == ""
        assert "team/a is Waiting" in judge(seen(row("a", "Waiting"), row("b", "Running", flavor="spot")))

    def test_never_over(self) -> None:
        """Admitted, running and stopping count, waiting and finished do not; the first breach is remembered."""
        invariant = Invariant("never over", never_over("spot", Fraction(4)))
        full = (
            row("a", "Running", cpu=2, flavor="spot"),
            row("b", "Admitted", cpu=1, flavor="spot"),
            row("s", "Stopping", cpu=1, flavor="spot"),
        )
        invariant.look(seen(*full, row("c", "Finished", flavor="spot"), row("d", "Waiting", flavor="spot")))
        assert invariant.holds
        invariant.look(seen(*full, row("e", "Admitted", flavor="spot")))
        invariant.look(seen())
        assert not invariant.holds

    def test_nothing_reserved(self) -> None:
        """Zeroes are nothing."""
        assert nothing_reserved()(Snapshot(reserved={("cq", "spot"): Fraction(0)})) == ""
        assert "cq still holds 2" in nothing_reserved()(Snapshot(reserved={("cq", "spot"): Fraction(2)}))


class TestTheTour:
    """The script as a whole."""

    def test_it_fails_until_everything_was_seen(self) -> None:
        """A tour that did not come to its end, broke a promise or an invariant, ends with 1."""
        tour = Tour(Board())
        assert tour.exit_code == 1
        tour.ended = True
        for promise in tour.promises:
            promise.kept_after = 1.0
        assert tour.exit_code == 1  # nobody looked whether quota was kept
        for invariant in tour.invariants:
            invariant.looks = 1
        assert tour.exit_code == 0
        tour.promises[3].kept_after = None
        assert tour.exit_code == 1

    def test_it_applies_every_file_once_in_order(self) -> None:
        """All files of the GPUs and of the quickstart, then some of the other kinds, then those of the racks."""
        applied = [name for act in acts() for name in act.files]
        gpus, quickstart, racks = (
            [f"{folder.name}/{path.name}" for path in sorted(folder.glob("*.yaml"))]
            for folder in (EXAMPLES / "gpus", QUICKSTART, EXAMPLES / "racks")
        )
        assert applied == [*gpus, *quickstart, "kinds/pod-group.yaml", "kinds/jobset.yaml", *racks]

    def test_simulated_pods_run_as_long_as_they_would_sleep(self) -> None:
        """The Jobs' own sleep is what the simulated nodes wait for; other kinds are left as they are."""
        pods = 0
        for path in sorted(Path(QUICKSTART).glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                template = document["spec"]["template"] if document["kind"] == "Job" else document
                timed = _timed(document)
                if document["kind"] in ("Job", "Pod"):
                    pods += 1
                    seconds = template["spec"]["containers"][0]["command"][1]
                    assert template["metadata"]["annotations"] == {"testbed.turnstile.dev/run-for": f"{seconds}s"}
                else:
                    assert timed == document
        assert pods == 9
