"""Random histories of the engine and its leaders in one process: each takes a twentieth of a second.

It is a model of what lies between the engine and the API server: leaders whose watches are behind, whose writes land
late, in any order or not at all, and who are killed and followed by others that begin with a list. The engine, its
decision log and the judge are the real ones, queues and quota those of `history`. Left out is everything else: there is
no API server that could refuse, no controller but the scheduler, no Jobs and no pods, and whoever is evicted gives its
quota back by lot. All that is for `test_never_over_quota`.

    python -m tests.faults.simulated {classical,fair} SEED [LAST]
"""

import argparse
import copy
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from testbed.client import Json
from tests.faults.again import decision_logs, keep
from tests.faults.evidence import looks
from tests.faults.history import COHORTS, POLICIES, PRIORITIES, QUEUES, WEIGHTS
from tests.faults.modelled import NAMESPACE, Cluster, Leader, evict, give_back, holds, in_line, set_condition
from tests.faults.moments import Replay, is_true
from tests.faults.promises import Judge, Verdict
from tests.model.quota import Limits
from tests.unit.engine import builders as b
from turnstile.controllers.scheduling.decisionlog import DecisionLog

STEPS = 120
"""Operations in a history."""
KILLED = 0.02
"""How likely the leader is killed after an operation."""
LATE = 0.4
"""How likely a write is not through yet when others are, and that one who has to go has stopped."""
PATIENCE = 400
"""Rounds in which a history has to come to rest."""
STUBBORN = 0.3
"""How many Workloads do not go when they are evicted, in histories with such victims."""


def play(directory: Path, seed: int, *, fair: bool, steps: int = STEPS, stubborn: bool = False) -> Verdict:
    """Play one history and judge it; its evidence is in the directory afterwards, for `tests.faults.again`. With
    `stubborn` some victims do not go until the end of the history."""
    history = Simulation(directory, random.Random(seed), fair=fair, stubborn=stubborn)
    rested = history.run(steps)
    recorded = history.cluster.recorded
    keep(directory, recorded, fair=fair)
    cycles = looks(decision_logs(directory), recorded)
    verdict = Judge(Replay().moments(recorded), cycles, fair=fair).judge()
    verdict.figures["killed"] += history.terms - 1
    if not rested:
        verdict.wrong.append(f"it did not come to rest in {PATIENCE} rounds")
    return verdict


class Simulation:
    """Queues a, b, c and d below three cohorts, what happens to them, and one leader after the other. The decision
    logs are written into the directory."""

    def __init__(self, directory: Path, lots: random.Random, *, fair: bool, stubborn: bool = False) -> None:
        self._refusing: set[str] | None = set() if stubborn else None
        """Workloads that do not go, by UID; None if all do."""
        self.cluster = Cluster()
        self.terms = 0
        self._directory = directory
        self._lots = lots
        self._fair = fair
        self._limits = {**COHORTS, **QUEUES}
        self._stopped: tuple[str, str] | None = None
        self._created = 0
        self._declare()
        self._leader = self._elect()

    def _declare(self) -> None:
        for name, limits in COHORTS.items():
            spec: Json = {"resourceGroups": _groups(limits)}
            if limits.parent is not None:
                spec["parentName"] = limits.parent
            self.cluster.put("cohorts", {"metadata": _meta("cohorts", name), "spec": spec})
        for name, limits in QUEUES.items():
            spec = {"namespaceSelector": {}, "resourceGroups": _groups(limits), "cohortName": limits.parent}
            spec["preemption"] = POLICIES[name]
            if name in WEIGHTS:
                spec["fairSharing"] = {"weight": WEIGHTS[name]}
            self.cluster.put("clusterqueues", {"metadata": _meta("clusterqueues", name), "spec": spec})
            meta = _meta("localqueues", name, namespace=NAMESPACE)
            self.cluster.put("localqueues", {"metadata": meta, "spec": {"clusterQueue": name}})

    def _elect(self) -> Leader:
        decisions = DecisionLog(self._directory / f"decisions-{self.terms}.jsonl")
        self.terms += 1
        return Leader(self.cluster, decisions, self._lots, epoch=self.terms, fair=self._fair)

    # --- how it goes on -------------------------------------------------------------------------------------------

    def run(self, steps: int) -> bool:
        """So many operations, with rest in the middle and at the end: whether it came to rest."""
        try:
            for step in range(steps):
                self.cluster.now += self._lots.choice([0, 0, 1])
                self._operate()
                for _ in range(self._lots.randint(0, 3)):
                    self._lots.choice([self._catch_up, self._decide, self._land, self._stop_some])()
                if self._lots.random() < KILLED:
                    self._leader.die()
                    self._leader = self._elect()
                if step == steps // 2 and not self._settle():
                    return False
            if self._refusing:
                if not self._settle():
                    return False
                self._refusing.clear()
            return self._settle()
        finally:
            self._leader.die()

    def _catch_up(self) -> None:
        self._leader.catch_up(self._lots.randint(0, self._leader.behind))

    def _decide(self) -> None:
        self._leader.decide(self._lots.choice([1, 3, 100]))

    def _land(self) -> None:
        self._leader.land(late=LATE)

    def _stop_some(self) -> None:
        self._release(late=1 - LATE)

    def _release(self, *, late: float) -> int:
        """Evicted Workloads have stopped and give back what they held. How many it were."""
        gone = [obj for obj in self.cluster.all("workloads") if is_true(obj, "Evicted") and holds(obj)]
        gone = [obj for obj in gone if obj["metadata"]["uid"] not in (self._refusing or ())]
        gone = [obj for obj in gone if self._lots.random() >= late]
        for workload in gone:
            self._write(workload, lambda draft: give_back(draft, at=self.cluster.now))
        return len(gone)

    def _settle(self) -> bool:
        """Let everything take its course until nothing happens any more."""
        for _ in range(PATIENCE):
            self.cluster.now += 1
            self._leader.catch_up(self._leader.behind)
            decided = self._leader.decide(100)
            under_way = len(self._leader.writes)
            self._leader.land(late=0)
            if not self._release(late=0) and not decided and not under_way and not self._leader.behind:
                if not self._leader.waits_for_victims:
                    return True
                self.cluster.now += 60
        return False

    # --- what is done ---------------------------------------------------------------------------------------------

    def _operate(self) -> None:
        """One random operation."""
        operations: dict[Callable[[], None], int] = {
            self._create: 14,
            self._delete: 2,
            self._finish: 5,
            self._edit_quota: 2,
            self._deactivate: 2,
            self._resize: 2,
            self._move: 2,
            self._stop_queue: 2,
            self._say_why: 10,
            self._do_nothing: 8,
        }
        self._lots.choices(list(operations), list(operations.values()))[0]()

    def _pick(self, suits: Callable[[Json], bool]) -> Json | None:
        """A Workload that suits, if there is one."""
        found = [obj for obj in self.cluster.all("workloads") if suits(obj)]
        return self._lots.choice(found) if found else None

    def _write(self, workload: Json, change: Callable[[Json], None]) -> Json:
        draft = copy.deepcopy(workload)
        change(draft)
        return self.cluster.put("workloads", draft)

    def _create(self) -> None:
        container = {"name": "c", "resources": {"requests": {"cpu": str(self._lots.randint(1, 3))}}}
        pods = {"name": "main", "count": self._lots.randint(1, 2), "template": {"spec": {"containers": [container]}}}
        spec = {"queueName": self._lots.choice(list(QUEUES)), "priority": self._lots.choice(PRIORITIES)}
        meta = _meta("workloads", f"job-{self._created}", namespace=NAMESPACE)
        if self._refusing is not None and self._lots.random() < STUBBORN:
            self._refusing.add(meta["uid"])
        self._created += 1
        self.cluster.put(
            "workloads", {"metadata": meta, "spec": {**spec, "active": True, "podSets": [pods]}, "status": {}}
        )

    def _delete(self) -> None:
        workload = self._pick(lambda _: True)
        if workload is not None:
            self.cluster.delete("workloads", workload)

    def _finish(self) -> None:
        workload = self._pick(lambda obj: holds(obj) and not is_true(obj, "Evicted"))
        if workload is not None:
            self._write(
                workload, lambda draft: set_condition(draft, "Finished", "True", "Succeeded", at=self.cluster.now)
            )

    def _edit_quota(self) -> None:
        """Change what a queue or a cohort has, and its limits if it has some."""
        name = self._lots.choice([*QUEUES, *QUEUES, "org", "left"])
        old, kind = self._limits[name], "clusterqueues" if name in QUEUES else "cohorts"
        new = self._limits[name] = Limits(
            self._lots.randint(2, 6) if name in QUEUES else self._lots.randint(0, 3),
            borrowing=None if old.borrowing is None else self._lots.randint(0, 4),
            lending=None if old.lending is None else self._lots.randint(0, 4),
            parent=old.parent,
            queue=old.queue,
        )
        self._specify(kind, name, {"resourceGroups": _groups(new)})

    def _specify(self, kind: str, name: str, parts: Json) -> None:
        obj = self.cluster.find(kind, _uid(kind, name))
        assert obj is not None
        self.cluster.put(kind, {"metadata": dict(obj["metadata"]), "spec": {**obj["spec"], **parts}})

    def _deactivate(self) -> None:
        """Or activate again. Who has quota is told to go."""
        workload = self._pick(lambda obj: not is_true(obj, "Finished"))
        if workload is None:
            return
        active = not workload["spec"]["active"]
        workload = self._write(workload, lambda draft: draft["spec"].update(active=active))
        if not active and holds(workload):
            message = "The workload is deactivated"
            self._write(workload, lambda draft: evict(draft, "Deactivated", message, at=self.cluster.now))

    def _resize(self) -> None:
        """Change how many pods a waiting Workload has."""
        workload, count = self._pick(in_line), self._lots.randint(1, 2)
        if workload is not None:
            self._write(workload, lambda draft: draft["spec"]["podSets"][0].update(count=count))

    def _move(self) -> None:
        """Send a waiting Workload to another queue."""
        workload, queue = self._pick(in_line), self._lots.choice(list(QUEUES))
        if workload is not None:
            self._write(workload, lambda draft: draft["spec"].update(queueName=queue))

    def _stop_queue(self) -> None:
        """Stop a ClusterQueue or a LocalQueue, or open the one that is stopped."""
        if self._stopped is not None:
            self._specify(*self._stopped, {"stopPolicy": "None"})
            self._stopped = None
        else:
            self._stopped = self._lots.choice(["clusterqueues", "localqueues"]), self._lots.choice(list(QUEUES))
            self._specify(*self._stopped, {"stopPolicy": "Hold"})

    def _say_why(self) -> None:
        """Write to some Workloads why they wait, so that there are versions of them in which nothing else is new."""
        for _ in range(3):
            workload = self._pick(in_line)
            if workload is not None:
                why = f"Waits since version {workload['metadata']['resourceVersion']}"
                waits = partial(set_condition, kind="QuotaReserved", status="False", reason="Waiting", message=why)
                self._write(workload, partial(waits, at=self.cluster.now))

    def _do_nothing(self) -> None:
        """Give the leader time."""


def _uid(kind: str, name: str) -> str:
    return f"{name}.{kind}"


def _meta(kind: str, name: str, **more: str) -> Json:
    return {"name": name, "uid": _uid(kind, name), **more}


def _groups(limits: Limits) -> list[Json]:
    if not limits.queue and not limits.nominal and limits.borrowing is None:
        return []
    return b.quotas({"plain": {"cpu": (limits.nominal, limits.borrowing, limits.lending)}})


def main() -> None:
    """Play histories and say which are wrong, and where their evidence is."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.simulated")
    parser.add_argument("sharing", choices=["classical", "fair"])
    parser.add_argument("seed", type=int)
    parser.add_argument("last", type=int, nargs="?", help="play all seeds up to this one")
    parser.add_argument("--stubborn", action="store_true", help="some victims do not go until the end")
    given = parser.parse_args()
    began, figures = time.monotonic(), Counter[str]()
    seeds = range(given.seed, (given.seed if given.last is None else given.last) + 1)
    wrong = 0
    for seed in seeds:
        directory = Path(tempfile.mkdtemp(prefix="simulated-"))
        verdict = play(directory, seed, fair=given.sharing == "fair", stubborn=given.stubborn)
        figures += verdict.figures
        if verdict.wrong or len(seeds) == 1:
            print("\n".join([f"seed {seed}, see: python -m tests.faults.again {directory}", *verdict.wrong]))
        else:
            shutil.rmtree(directory)
        wrong += bool(verdict.wrong)
    print(", ".join(f"{number} {what}" for what, number in sorted(figures.items())))
    print(f"{wrong} of {len(seeds)} histories are wrong, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
