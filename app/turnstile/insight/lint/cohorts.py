"""Rules about Cohorts, and about priorities, which compare Workloads of different queues. Must never look at jobs."""

from collections.abc import Iterator

from turnstile.api.clusterqueue import ClusterQueue, Preemption
from turnstile.api.cohort import Cohort
from turnstile.api.core import PriorityClass
from turnstile.api.quantity import parse
from turnstile.api.quota import ResourceQuota
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.causes import Inactive
from turnstile.engine.quota.tree import MOST_LEVELS, Node, too_deep
from turnstile.insight.lint.findings import Found
from turnstile.insight.lint.queues import quotas
from turnstile.insight.lint.world import Place, World, place
from turnstile.wording.inactivity import admits_nothing

_BY_PRIORITY = ("LowerPriority", "LowerOrNewerEqualPriority")


def cycles(world: World) -> Found:
    """Cohorts that are their own parents, or that have too many others above them."""
    ledger = world.offer.state.ledger
    for name, node in sorted(ledger.cohorts.items()):
        cycle = ledger.cycle_above(node) if ledger.cyclic(node) else []
        deep = node.parent is None and too_deep(node)
        if name in cycle or deep:
            fault = Inactive.COHORTS_DEEP.says(most=MOST_LEVELS) if deep else ledger.fault_above(node)
            yield Place("Cohort", name), f"each ClusterQueue below it {admits_nothing(fault)}"


def _roots(world: World) -> Iterator[tuple[Node, list[ClusterQueue], list[Cohort]]]:
    """Each tree of cohorts with its ClusterQueues and Cohorts."""
    ledger = world.offer.state.ledger
    for _, node in sorted(ledger.cohorts.items()):
        if node.parent is None:
            queues = [queue for each in node.walk_queues() if (queue := world.snapshot.get(ClusterQueue, each.name))]
            yield node, queues, [cohort for each in _below(node) if (cohort := world.snapshot.get(Cohort, each.name))]


def _below(node: Node) -> Iterator[Node]:
    rest = [node]
    while rest:
        yield (node := rest.pop())
        rest += reversed(node.cohorts.values())


def _about(root: Node, queues: list[ClusterQueue], cohorts: list[Cohort]) -> Place:
    """The object that a finding about a tree is told of: the topmost Cohort, if there is such an object."""
    own = next((each for each in cohorts if each.metadata.name == root.name), None)
    return place(own or queues[0])


def no_members(world: World) -> Found:
    """Cohorts with quota and without a ClusterQueue."""
    if not world.complete(ClusterQueue):
        return
    for _, queues, cohorts in _roots(world):
        for cohort in cohorts if not queues else ():
            if any(parse(each.nominal_quota) for _, each in quotas(cohort.spec.resource_groups)):
                yield place(cohort), "no ClusterQueue is below it, so that nobody can use its quota"


def of_one(world: World) -> Found:
    """Cohorts in which there is nobody to share with."""
    if not world.complete(ClusterQueue):
        return
    for root, queues, cohorts in _roots(world):
        if len(queues) == 1 and not any(each.spec.resource_groups for each in cohorts):
            name = queues[0].metadata.name
            sentence = f"ClusterQueue {name} is alone in cohort {root.name}: it has nobody to borrow from or to lend to"
            yield _about(root, queues, cohorts), sentence


def lends_nothing(world: World) -> Found:
    """Cohorts in which nobody lends, or nobody borrows."""
    if not world.complete(ClusterQueue):
        return
    for root, queues, cohorts in _roots(world):
        if len(queues) < 2:
            continue
        theirs = [each for queue in queues for _, each in quotas(queue.spec.resource_groups)]
        shared = [each for cohort in cohorts for _, each in quotas(cohort.spec.resource_groups)]
        if theirs and not any(_lends(each) for each in (*theirs, *shared)):
            yield _about(root, queues, cohorts), f"no member of cohort {root.name} lends anything: lendingLimit is 0"
        elif theirs and all(each.borrowing_limit is not None and not parse(each.borrowing_limit) for each in theirs):
            yield _about(root, queues, cohorts), f"no ClusterQueue of cohort {root.name} borrows: borrowingLimit is 0"


def _lends(quota: ResourceQuota) -> bool:
    return bool(parse(quota.nominal_quota)) and (quota.lending_limit is None or bool(parse(quota.lending_limit)))


def _priorities(world: World) -> set[int] | None:
    """The priorities that a Workload can have; None if they are not known."""
    if not world.complete(WorkloadPriorityClass) or not world.snapshot.whole(PriorityClass):
        return None
    values = {each.value for each in world.snapshot.of(WorkloadPriorityClass)}
    values |= {each.spec.priority or 0 for each in world.snapshot.of(Workload) if not each.finished}
    values |= {each.value for each in world.snapshot.of(PriorityClass) if not each.metadata.name.startswith("system-")}
    return values | {0}  # of a job without a class


def priority_never_differs(world: World) -> Found:
    """Policies that compare priorities, where all are equal."""
    priorities = _priorities(world)
    if priorities is None or len(priorities) > 1:
        return
    for queue in world.snapshot.of(ClusterQueue):
        policy = queue.spec.preemption or Preemption()
        compared = [
            f"{field} {value}"
            for field, value in (
                ("withinClusterQueue", policy.within_cluster_queue),
                ("reclaimWithinCohort", policy.reclaim_within_cohort),
            )
            if value == "LowerPriority"
        ]
        if compared:
            sentence = f"its preemption ({', '.join(compared)}) never happens: all jobs have the same priority"
            yield place(queue), sentence


def priority_only_orders(world: World) -> Found:
    """Queues in which a higher priority never takes the place of a lower one."""
    priorities = _priorities(world)
    if priorities is None or len(priorities) < 2:
        return
    for queue in world.snapshot.of(ClusterQueue):
        policy = queue.spec.preemption or Preemption()
        across = bool(queue.spec.cohort_name) and policy.reclaim_within_cohort != "Never"
        if policy.within_cluster_queue not in _BY_PRIORITY and not across:
            sentence = "priorities only order what waits in it: a job never takes the place of one that runs"
            yield place(queue), sentence


def equal_classes(world: World) -> Found:
    """Classes that are no different."""
    first: dict[int, str] = {}
    for each in world.snapshot.of(WorkloadPriorityClass):
        name = first.setdefault(each.value, each.metadata.name)
        if name != each.metadata.name:
            yield (
                place(each),
                f"its value {each.value} is that of WorkloadPriorityClass {name}: which one a job names never matters",
            )
