"""The objects of the API as they were last told to an engine: what a restart would read, and what the rules in plain
words judge by. Resources are `gpu` (flavors x and y) and `tpu` (flavor z)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.model.rules import Held, Pair, Plain, Policy, Quota
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.quota import ResourceGroup
from turnstile.api.workload import Workload
from turnstile.engine import Options, State

Json = dict[str, Any]
FLAVORS = ("x", "y", "z")
PAIRS: tuple[Pair, ...] = (("x", "gpu"), ("y", "gpu"), ("z", "tpu"))
CHECK = "check"


def groups(x: Any, y: Any, z: Any) -> list[Json]:
    """Two resource groups; a quota is (nominal, borrowing limit, lending limit)."""
    return b.quotas({"x": {"gpu": x}, "y": {"gpu": y}}) + b.quotas({"z": {"tpu": z}})


def cohort(name: str, resource_groups: list[Json], *, parent: str, weight: str) -> Cohort:
    """A Cohort."""
    spec = {"resourceGroups": resource_groups, "parentName": parent, "fairSharing": {"weight": weight}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Cohort)


def cluster_queue(name: str, resource_groups: list[Json], parent: str, **spec: Any) -> ClusterQueue:
    """A ClusterQueue; limits only where the API allows them, in a cohort."""
    if not parent:
        for group in resource_groups:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    resource.pop("borrowingLimit", None)
                    resource.pop("lendingLimit", None)
    body = {"namespaceSelector": {}, "resourceGroups": resource_groups, "cohortName": parent, **spec}
    return msgspec.convert({"metadata": {"name": name}, "spec": body}, ClusterQueue)


def workload(name: str, line: str, *, pod_sets: Sequence[tuple[int, int, int, int | None]], **given: Any) -> Workload:
    """A Workload of pod sets (gpus and tpus of a pod, count, minimal count)."""
    body = msgspec.to_builtins(b.workload(name, line, **given))
    body["spec"]["podSets"] = []
    for index, (gpu, tpu, count, minimum) in enumerate(pod_sets):
        requests = {key: str(value) for key, value in (("gpu", gpu), ("tpu", tpu)) if value}
        containers = [{"name": "c", "resources": {"requests": requests}}]
        item = {"name": f"set-{index}", "count": count, "template": {"spec": {"containers": containers}}}
        body["spec"]["podSets"].append(item if minimum is None else {**item, "minCount": minimum})
    return msgspec.convert(body, Workload)


def changed(base: Workload, *, spec: Json | None = None, status: Json | None = None) -> Workload:
    """The workload with other fields, in a new generation if they are of its spec."""
    body = msgspec.to_builtins(base)
    if spec:
        body["spec"] = {**body["spec"], **spec}
        body["metadata"]["generation"] = body["metadata"].get("generation", 0) + 1
    body["status"] = {**body.get("status", {}), **(status or {})}
    return msgspec.convert(body, Workload)


def check_states(state: str) -> list[Json]:
    """`status.admissionChecks`."""
    return [{"name": CHECK, "state": state, "lastTransitionTime": b.STAMP, "message": ""}]


def _quota(resource_groups: list[ResourceGroup]) -> dict[Pair, Quota]:
    def number(value: Any) -> int | None:
        return None if value is None else int(value)

    return {
        (flavor.name, resource.name): (
            int(resource.nominal_quota),
            number(resource.borrowing_limit),
            number(resource.lending_limit),
        )
        for group in resource_groups
        for flavor in group.flavors
        for resource in flavor.resources
    }


class Told:
    """Objects by name or key. Workloads are as the API has them: one whose admission is only decided still waits."""

    def __init__(self) -> None:
        self.cohorts: dict[str, Cohort] = {}
        self.queues: dict[str, ClusterQueue] = {}
        self.lines: dict[str, LocalQueue] = {}
        self.workloads: dict[str, Workload] = {}

    def state(self, options: Options, *, backwards: bool = False) -> State:
        """An engine that hears all of it for the first time."""
        return self.told_to(State(options), backwards=backwards)

    def told_to(self, state: State, *, backwards: bool = False) -> State:
        """The same engine, which is told all of it."""

        def tell(put: Any, items: Any, *rest: Any) -> None:
            for item in reversed(list(items)) if backwards else list(items):
                put(item, *rest)

        steps: list[tuple[Any, Any, Any]] = [
            (state.put_flavor, [b.flavor(name) for name in FLAVORS], ()),
            (state.put_cohort, self.cohorts.values(), ()),
            (state.put_cluster_queue, self.queues.values(), (b.NOW,)),
            (state.put_local_queue, self.lines.values(), (b.NOW,)),
            (state.put_workload, self.workloads.values(), (b.NOW,)),
        ]
        state.put_namespace("team", {})
        state.put_admission_check(CHECK, active=True)
        for put, items, rest in reversed(steps) if backwards else steps:
            tell(put, items, *rest)
        return state

    def plain(self, state: State) -> Plain:
        """The same world in plain words; who holds quota, and how much, is by the API and by what was decided since."""
        parents: dict[str, str | None] = {name: item.spec.parent_name or None for name, item in self.cohorts.items()}
        quotas = {name: _quota(item.spec.resource_groups) for name, item in self.cohorts.items()}
        policies: dict[str, Policy] = {}
        for name, queue in self.queues.items():
            parents[name] = queue.spec.cohort_name or None
            quotas[name] = _quota(queue.spec.resource_groups)
            policies[name] = _policy(queue)
        held = [*self._held()]
        known = {item.uid for item in held}
        for key, assumed in state.reservations.assumed.items():
            assert key not in known
            usage: dict[Pair, int] = {}
            for item in assumed.info.totals:
                for resource, flavor in (item.flavors or {}).items():
                    usage[flavor, resource] = usage.get((flavor, resource), 0) + item.requests.get(resource, 0)
            # as it was decided on, not as it changed while the write is under way: that write will conflict
            held.append(self._one(assumed.info.workload, assumed.cluster_queue, usage))
        return Plain(parents, quotas, {}, policies, held)

    def _held(self) -> list[Held]:
        found = []
        for item in self.workloads.values():
            admission = item.status.admission
            if admission is None or not item.quota_reserved or item.finished:
                continue
            usage: dict[Pair, int] = {}
            counts = {pod_set.name: pod_set.count for pod_set in item.spec.pod_sets}
            ended = {pods.name: pods.count for pods in item.status.reclaimable_pods}
            for assigned in admission.pod_set_assignments:
                count = counts[assigned.name] if assigned.count is None else assigned.count
                left = min(count, max(0, counts[assigned.name] - ended.get(assigned.name, 0)))
                for resource, flavor in assigned.flavors.items():
                    amount = int(assigned.resource_usage[resource]) * left // count if count else 0
                    usage[flavor, resource] = usage.get((flavor, resource), 0) + amount
            found.append(self._one(item, admission.cluster_queue, usage))
        return found

    @staticmethod
    def _one(item: Workload, queue: str, usage: dict[Pair, int]) -> Held:
        evicted = any(each.type == "Evicted" and each.status == "True" for each in item.status.conditions)
        return Held(item.metadata.key, queue, item.spec.priority or 0, 0, age(item), evicted, usage)


def age(item: Workload) -> int:
    """Second of its creation."""
    stamp = item.metadata.creation_timestamp or b.STAMP
    return int(stamp[14:16]) * 60 + int(stamp[17:19])


def _policy(queue: ClusterQueue) -> Policy:
    given = queue.spec.preemption
    if given is None:
        return Policy()
    borrow = given.borrow_within_cohort
    return Policy(
        given.within_cluster_queue,
        given.reclaim_within_cohort,
        borrow.policy if borrow is not None else "Never",
        borrow.max_priority_threshold if borrow is not None else None,
    )
