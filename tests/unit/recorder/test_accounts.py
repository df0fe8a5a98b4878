"""The accounts are the integral of what was recorded, worked out once more second by second."""

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.recorder.lives import PREEMPTED, T0, admission, condition, evictions, life, recorded, version
from turnstile.api.workload import Workload
from turnstile.recorder.accounts import Account, By, Figures, accounts, summed
from turnstile.recorder.database import Database
from turnstile.recorder.facts import Pair, Quota, Record, of_change, of_pods
from turnstile.recorder.holdings import Holding, holdings
from turnstile.recorder.location import Location
from turnstile.recorder.quotatree import Tree
from turnstile.recorder.reading import Reader, Recorded, reading

CPU: Pair = ("default", "cpu")


def figures_of(records: list[Record], since: float, until: float, *, user_label: str = "") -> dict[Account, Figures]:
    """The accounts of records that were stored and read back."""
    with tempfile.TemporaryDirectory() as folder:
        place = Location.of(str(Path(folder) / "recorder.db"))
        database = Database(place, now=T0)
        database.store(records)
        database.close()
        with reading(place) as reader:
            return of_reader(reader, since, until, user_label=user_label)


def of_reader(reader: Reader, since: float, until: float, *, user_label: str = "") -> dict[Account, Figures]:
    """The accounts of a file."""
    held = [each for found, entries in reader.changes_of_usage(since, until) for each in holdings(found, entries)]
    return accounts(held, reader.quotas(), since, until, user_label=user_label)


class TestALife:
    """Four CPUs from second 10 to 25, preempted at 20; four from 40 to 48, then three to 60."""

    def total(self, since: float, until: float, *quotas: Quota) -> Figures:
        """The one account of ClusterQueue a."""
        found = figures_of([*recorded(life()), *quotas], T0 + since, T0 + until)
        return summed(found, ["cluster_queue"]).get(("a", "cpu"), Figures(lent=0.0))

    def test_in_all(self) -> None:
        """Reserved, used, and what the preempted attempt took."""
        figures = self.total(0, 100)
        assert figures == Figures(reserved=128_000, used=128_000, lent=0.0, preempted=60_000)

    def test_between_two_instants(self) -> None:
        """What was held before and after does not count."""
        assert self.total(20, 50).reserved == 5 * 4000 + 8 * 4000 + 2 * 3000
        assert self.total(61, 90).reserved == 0
        assert self.total(0, 15).preempted == 5 * 4000

    def test_above_the_nominal_quota_of_the_time(self) -> None:
        """Three CPUs until second 15, then five, then one from 50 on."""
        quotas = [
            Quota("ClusterQueue", "a", T0 + at, "all", (("default", "cpu", cpu * 1000, None, None),))
            for at, cpu in ((0, 3), (15, 5), (50, 1))
        ]
        assert self.total(0, 100, *quotas).borrowed == pytest.approx(5 * 1000 + 10 * 2000)

    def test_a_quota_that_is_not_known_is_not_borrowed_from(self) -> None:
        """Its ClusterQueue was gone before the recorder came."""
        assert self.total(0, 100).borrowed == 0


class TestTimeWithoutPods:
    """A Workload waits for a check and for its first pod, runs, and has no pod left before it gives its quota back."""

    def idle(self, *facts: tuple[int, bool], admitted: int = 10) -> Figures:
        """The account of four CPUs from second 10 to 60; each fact says from when on a pod runs, or none does."""
        reserved, runs = condition("QuotaReserved", "True", 10), condition("Admitted", "True", admitted)
        held = version("w", reserved, runs, admission=admission())
        over = version("w", reserved, runs, condition("Finished", "True", 60, "Succeeded"), admission=admission())
        records = [*recorded([version("w"), held, over]), *(of_pods(held, run=run, since=T0 + at) for at, run in facts)]
        return summed(figures_of(records, T0, T0 + 100), ["cluster_queue"])["a", "cpu"]

    def test_until_the_first_pod_runs_and_after_the_last(self) -> None:
        """Seconds 10 to 18, and 50 to 60."""
        assert self.idle((10, False), (18, True), (50, False)).idle == 18 * 4000

    def test_between_two_attempts_of_a_pod(self) -> None:
        """A pod that is made again costs the time until it runs."""
        assert self.idle((10, True), (30, False), (34, True)).idle == 4 * 4000

    def test_a_wait_for_a_check_is_idle(self) -> None:
        """No pod can run before the admission, whatever is recorded."""
        assert self.idle(admitted=25) == Figures(200_000, 140_000, 60_000, 0.0, 0.0)

    def test_without_facts_about_pods_nothing_is_idle(self) -> None:
        """Records of an older version have none."""
        assert self.idle().idle == 0


class TestWhoIsCharged:
    def test_the_lender_and_the_borrower(self) -> None:
        """Queue b lends to a out of what it does not use."""
        quotas = [
            Quota("ClusterQueue", name, T0, "all", (("default", "cpu", cpu, None, None),))
            for name, cpu in (("a", 1000), ("b", 9000))
        ]
        found = summed(figures_of([*recorded(life()), *quotas], T0, T0 + 20), ["cluster_queue", "flavor"])
        assert found["a", "default", "cpu"] == Figures(40_000, 40_000, 0.0, 30_000, 0.0, 40_000)
        assert found["b", "default", "cpu"] == Figures(lent=pytest.approx(30_000))

    def test_the_user_that_a_label_names(self) -> None:
        """Without the label nobody is known."""
        versions = [None if each is None else b.changed(each, metadata={"labels": {"user": "eve"}}) for each in life()]
        records = [*recorded(versions), *(each for each in recorded(life("other")))]
        found = summed(figures_of(records, T0, T0 + 100, user_label="user"), ["user"])
        assert {key: figures.reserved for key, figures in found.items()} == {
            ("", "cpu"): 128_000,
            ("eve", "cpu"): 128_000,
        }

    @pytest.mark.parametrize(
        ("by", "key"),
        [
            ("cluster_queue", "a"),
            ("local_queue", "team/main"),
            ("namespace", "team"),
            ("flavor", "default"),
        ],
    )
    def test_by(self, by: By, key: str) -> None:
        """The fields of an account; what is lent has no namespace."""
        found = summed(figures_of(recorded(life()), T0, T0 + 100), [by])
        lends = by in ("cluster_queue", "flavor")
        assert found == {(key, "cpu"): Figures(128_000, 128_000, 0.0, 0.0, 0.0 if lends else None, 60_000)}


# --- against an oracle ------------------------------------------------------------------------------------------------

HORIZON = 60


@dataclass(frozen=True)
class Attempt:
    """Of one Workload: seconds until it reserves, is admitted, gives a part back, is evicted, and frees its quota."""

    gap: int
    admitted_after: int
    back_after: int
    back: int
    runs: int
    preempted: bool
    leaves_after: int


@dataclass(frozen=True)
class Truth:
    """What was held, as the test knows it."""

    queue: str
    namespace: str
    begin: int
    end: int
    amount: int
    admitted: bool
    preempted: bool


ATTEMPTS = st.builds(
    Attempt,
    gap=st.integers(1, 9),
    admitted_after=st.integers(0, 3),
    back_after=st.integers(1, 8),
    back=st.integers(0, 3),
    runs=st.integers(1, 20),
    preempted=st.booleans(),
    leaves_after=st.integers(0, 5),
)
LIVES = st.tuples(
    st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]), st.integers(1, 5), st.lists(ATTEMPTS, max_size=3)
)
QUOTAS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "Cohort"]),
        st.integers(0, HORIZON),
        st.integers(0, 12),
        st.sampled_from(["", "all"]),
    )
)


def played(name: str, queue: str, namespace: str, cpu: int, attempts: list[Attempt]) -> Iterator[Truth | Record]:
    """The records of a Workload with these attempts, and the truth about them."""
    now, old = 0, None

    def seen(new: Workload) -> Iterator[Record]:
        nonlocal old
        new = b.changed(new, metadata={"namespace": namespace})
        yield from of_change(old, new, T0 + now)
        old = new

    yield from seen(version(name))
    for done, attempt in enumerate(attempts):
        now += attempt.gap
        held: dict[str, Any] = {"admission": admission(queue, cpu * 4), "schedulingStats": evictions(done)}
        reserved = [condition("QuotaReserved", "True", now)]
        steps = sorted(
            (at, what)
            for at, what in ((attempt.admitted_after, "admitted"), (attempt.back_after, "back"))
            if at < attempt.runs and (what != "back" or attempt.back)
        )
        begin, end = now, now + attempt.runs + attempt.leaves_after
        edges, admitted, amount = [begin, *(begin + at for at, _ in steps), end], False, cpu * 4000
        yield from seen(version(name, *reserved, **held))
        for number, (at, what) in enumerate([(0, ""), *steps]):
            now = begin + at
            if what == "admitted":
                admitted = True
                reserved.append(condition("Admitted", "True", now))
                yield from seen(version(name, *reserved, **held))
            elif what == "back":
                amount = cpu * 1000 * (4 - attempt.back)
                held["reclaimablePods"] = [{"name": "main", "count": attempt.back}]
                yield from seen(version(name, *reserved, **held))
            yield Truth(queue, namespace, edges[number], edges[number + 1], amount, admitted, attempt.preempted)
        now = begin + attempt.runs
        gone = condition("Evicted", "True", now, "Preempted" if attempt.preempted else "ClusterQueueStopped", PREEMPTED)
        held["schedulingStats"] = evictions(done + 1)
        yield from seen(version(name, *reserved, gone, **held))
        now = end
        free = condition("QuotaReserved", "False", now, "Pending", "waits")
        yield from seen(version(name, free, gone, schedulingStats=evictions(done + 1)))


@settings(max_examples=examples(20))
@given(st.lists(LIVES, max_size=5), QUOTAS, st.integers(0, 30), st.integers(31, HORIZON))
def test_the_accounts_are_the_integral_of_the_history(
    lives: list[tuple[str, str, int, list[Attempt]]],
    changes: list[tuple[str, int, int, str]],
    since: int,
    until: int,
) -> None:
    """Within a thousandth, for each ClusterQueue, namespace and lender; a second is the smallest step of a history."""
    told = [each for n, life in enumerate(lives) for each in played(f"w-{n}", *life)]
    truths = [each for each in told if isinstance(each, Truth)]
    changes = [(name, 0, 4, "all") for name in ("a", "b", "c", "Cohort")] + sorted(changes, key=lambda each: each[1])
    quotas = [
        Quota("Cohort", "all", T0 + at, "", ((*CPU, cpu * 1000, None, None),))
        if name == "Cohort"
        else Quota("ClusterQueue", name, T0 + at, parent, ((*CPU, cpu * 1000, None, None),))
        for name, at, cpu, parent in changes
    ]
    records: list[Record] = [each for each in told if not isinstance(each, Truth)]
    found = figures_of([*records, *quotas], T0 + since, T0 + until)

    expected: dict[tuple[str, str], Figures] = defaultdict(Figures)
    lends: dict[str, float] = defaultdict(float)
    for second in range(since, until):
        tree = Tree()
        tree.put(*(quota for quota in quotas if quota.at <= T0 + second))
        limit = {quota.name: quota for quota in quotas if quota.at <= T0 + second and quota.kind == "ClusterQueue"}
        now = [each for each in truths if each.begin <= second < each.end]
        held: dict[str, int] = defaultdict(int)
        for each in now:
            held[each.queue] += each.amount
        for name, amount in held.items():
            tree.use(name, CPU, amount)
        for each in now:
            quota = limit[each.queue]
            above = max(0, held[each.queue] - quota.amounts[0][2]) if quota.parent else 0
            expected[each.queue, each.namespace].add(
                Figures(
                    each.amount,
                    each.amount * each.admitted,
                    each.amount * (not each.admitted),
                    above * each.amount / held[each.queue],
                    None,
                    each.amount * each.preempted,
                )
            )
        root = next((root for name in ("a", "b", "c") if (root := tree.root(name)) is not None), None)
        for lender, lent in tree.lent(root, CPU).items() if root is not None else ():
            lends[lender.name if lender.is_queue else f"cohort {lender.name}"] += lent

    queues = summed(found, ["cluster_queue", "namespace"])
    for (queue, namespace), figures in expected.items():
        got = queues[queue, namespace, "cpu"]
        for name in ("reserved", "used", "idle", "borrowed", "preempted"):
            assert getattr(got, name) == pytest.approx(getattr(figures, name), rel=1e-3), (queue, namespace, name)
    assert sum(each.reserved for each in queues.values()) == pytest.approx(sum(t.reserved for t in expected.values()))
    got_lent = {name: each.lent for (name, _), each in summed(found, ["cluster_queue"]).items() if each.lent}
    assert got_lent == pytest.approx(dict(lends), rel=1e-3)


def test_a_holding_without_an_end_counts_until_now() -> None:
    """A Workload that runs."""
    workload = Recorded("u", "ns", "w", "", "", "main", 0, T0, {}, None, None)
    holding = Holding(workload, "a", T0, None, {CPU: 1000}, admitted=False, idle=True, preempted=False)
    (figures,) = accounts([holding], [], T0, T0 + 10).values()
    assert (figures.reserved, figures.used) == (10_000, 0)
