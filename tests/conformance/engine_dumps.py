"""What was in the scheduler's cache after recorded calls: queues, cohorts, usages, who holds quota.

Told by the shape of what was recorded; what has no counterpart here is passed over.
"""

import re
from typing import Any

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.queue.clusterqueue import ClusterQueue as Queue
from turnstile.engine.quota.amounts import Amounts, bounded
from turnstile.engine.quota.tree import Node
from turnstile.engine.state import State

Json = Any

_GENERATION = re.compile(r'"([^"]+)"\)\.AllocatableResourceGeneration$')


def numbers(amounts: Json) -> dict[str, int]:
    """Recorded amounts by flavor and resource, without zeros."""
    return {key: amount for key, value in (amounts or {}).items() if (amount := number(value))}


def number(value: Json) -> int:
    """A recorded amount."""
    return MAX_INT64 if value == "Unlimited" else int(value)


def ours(amounts: Amounts) -> dict[str, int]:
    """Our amounts likewise."""
    return {str(pair): bounded(amount) for pair, amount in amounts.items() if amount}


class Dumps:
    """Notes differences between a recorded cache and ours."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.frozen: State | None = None
        self.found: list[str] = []
        self.compared = 0

    def expect(self, what: str, want: Json, have: Json) -> None:
        """Note a difference."""
        self.compared += 1
        if want != have:
            self.found.append(f"{what}: want {want!r}, have {have!r}")

    @property
    def seen(self) -> State:
        """The last snapshot, or the cache itself."""
        return self.frozen if self.frozen is not None else self.state

    def dump(self, recorded: dict[str, Json]) -> None:
        """A comparison of the recorded test, told by its shape."""
        got, of = recorded.get("got"), str(recorded.get("of"))
        named = _GENERATION.search(of)
        if named and (queue := self.seen.cluster_queues.get(named[1])) is not None:
            self.expect("generation", got, queue.generation)
        if not isinstance(got, dict):
            return
        self.state.ledger.settle()
        items = list(got.values())
        if "Manager" in got:
            self.dump_snapshot(got)
        elif of.endswith("ClusterQueues()") or any(isinstance(item, dict) and "resourceNode" in item for item in items):
            self.expect("queues", sorted(got), sorted(self.state.cluster_queues))
            for name in sorted(got.keys() & self.state.cluster_queues.keys()):
                self.dump_queue(self.state, name, got[name])
        elif of.endswith("Cohorts") and all(isinstance(item, list) for item in items):
            cohorts = {name: sorted(node.queues) for name, node in self.state.ledger.cohorts.items()}
            self.expect("cohorts", {name: sorted(members) for name, members in got.items()}, cohorts)
        elif of.endswith("Queues") and all(isinstance(item, dict) and "key" in item for item in items):
            self.dump_local_queues(got, None)
        elif items and all(isinstance(item, dict) and "UsedResources" in item for item in items):
            for name, item in got.items():
                queue = self.state.cluster_queues[name]
                self.expect(f"usage of {name}", numbers(item["UsedResources"]), ours(queue.node.usage))
                held = sorted(key.lstrip("/") for key in item.get("Workloads") or ())
                self.expect(f"workloads of {name}", held, sorted(queue.workloads))

    @staticmethod
    def status(queue: Queue) -> str:
        """As Kueue's metrics name it."""
        return "terminating" if queue.terminating else "active" if queue.active else "pending"

    def dump_snapshot(self, got: Json) -> None:
        """Queues, cohorts and flavors of a snapshot; queues that admit nothing are apart."""
        state = self.seen
        state.ledger.settle()
        out = {
            name for name, queue in state.cluster_queues.items() if not queue.active or state.ledger.cyclic(queue.node)
        }
        manager = got["Manager"]
        queues = manager.get("clusterQueues") or {}
        self.expect("inactive queues", sorted(got.get("InactiveClusterQueueSets") or ()), sorted(out))
        self.expect("queues", sorted(queues), sorted(state.cluster_queues.keys() - out))
        for name in sorted(queues.keys() & state.cluster_queues.keys()):
            self.dump_queue(state, name, queues[name])
        cohorts = manager.get("cohorts") or {}
        whole = {name: node for name, node in state.ledger.cohorts.items() if not state.ledger.cyclic(node)}
        self.expect("cohorts", sorted(cohorts), sorted(whole))
        for name in sorted(cohorts.keys() & whole.keys()):
            self.dump_node(f"cohort {name}", whole[name], cohorts[name])
        if "ResourceFlavors" in got:
            self.expect("flavors", sorted(got["ResourceFlavors"] or ()), sorted(state.activity.flavors))

    def dump_queue(self, state: State, name: str, got: Json) -> None:
        """A ClusterQueue: status, policies, quotas, usages, who holds quota."""
        queue = state.cluster_queues[name]
        what = f"queue {name}"
        self.dump_node(what, queue.node, got)
        self.expect(f"status of {what}", got.get("Status", ""), self.status(queue))
        if "Preemption" in got:
            policy = {
                "withinClusterQueue": queue.preemption.within_cluster_queue,
                "reclaimWithinCohort": queue.preemption.reclaim_within_cohort,
            }
            self.expect(f"preemption of {what}", {field: got["Preemption"].get(field, "") for field in policy}, policy)
        if "ResourceGroups" in got:
            want = [
                (sorted(each.get("CoveredResources") or ()), each.get("Flavors") or [])
                for each in got["ResourceGroups"]
            ]
            self.expect(
                f"groups of {what}", want, [(sorted(group.covered), list(group.flavors)) for group in queue.groups]
            )
        if "AdmissionChecks" in got:
            names = {item.name: sorted(item.on_flavors or queue.flavors()) for item in queue.checks}
            want = {check: sorted(flavors or ()) for check, flavors in got["AdmissionChecks"].items()}
            self.expect(f"checks of {what}", want, names)
        if "Workloads" in got:
            want = {key.lstrip("/"): _totals(item) for key, item in got["Workloads"].items()}
            have = {
                key: [(each.name, each.count, each.requests, each.flavors or {}) for each in info.totals]
                for key, info in queue.workloads.items()
            }
            self.expect(f"workloads of {what}", want, have)
        if "AdmittedUsage" in got:
            admitted = ours(queue.held(admitted_only=True))  # also of what it has no quota for any more
            self.expect(f"admitted usage of {what}", numbers(got["AdmittedUsage"]), admitted)
            self.expect(
                f"admitted in {what}", got.get("admittedWorkloadsCount", 0), state.questions.queue_counts(name).admitted
            )
        if "localQueues" in got:
            self.dump_local_queues(got["localQueues"], name)

    def dump_node(self, what: str, node: Node, got: Json) -> None:
        """Quotas and usages of a node, its weight, and where it hangs."""
        parent = next(
            (each for kind in ("ClusterQueue", "Cohort") if (each := (got.get(kind) or {}).get("cohort"))), {}
        )
        if "Name" in parent:
            self.expect(f"parent of {what}", parent["Name"], node.parent.name if node.parent is not None else "")
        if "FairWeight" in got:
            self.expect(f"weight of {what}", float(got["FairWeight"]), node.weight)
        recorded = got.get("ResourceNode") or got.get("resourceNode")
        if recorded is None:
            return
        for field, amounts in (("SubtreeQuota", node.subtree), ("Usage", node.usage)):
            self.expect(f"{field} of {what}", numbers(recorded.get(field)), ours(amounts))
        quotas = recorded.get("Quotas") or {}
        for field, amounts in (
            ("Nominal", node.nominal),
            ("BorrowingLimit", node.borrowing_limit),
            ("LendingLimit", node.lending_limit),
        ):
            want = {
                key: number(each.get(field, 0)) for key, each in quotas.items() if field in each or field == "Nominal"
            }
            self.expect(f"{field} of {what}", want, {str(pair): bounded(amount) for pair, amount in amounts.items()})

    def dump_local_queues(self, got: Json, cluster_queue: str | None) -> None:
        """LocalQueues of one or all ClusterQueues, with their usages."""
        state = self.state
        have = {
            key: local
            for key, local in state.queues.local_queues.items()
            if local.api is not None
            and local.cluster_queue in state.cluster_queues
            and cluster_queue in {None, local.cluster_queue}
        }
        self.expect("local queues", sorted(got), sorted(have))
        for key in sorted(got.keys() & have.keys()):
            counts = state.questions.local_queue_counts(key)
            self.expect(f"reserving in {key}", got[key].get("reservingWorkloads", 0), counts.reserving)
            self.expect(f"admitted in {key}", got[key].get("admittedWorkloads", 0), counts.admitted)
            for field, only in (("totalReserved", False), ("admittedUsage", True)):
                usage = state.questions.local_queue_usage(key, admitted_only=only)
                rows = {f"{row.flavor}/{row.resource}": row.total for row in usage if row.total}
                self.expect(f"{field} of {key}", numbers(got[key].get(field)), rows)


def _totals(recorded: Json) -> list[Json]:
    return [
        (
            item.get("Name", ""),
            item.get("Count", 0),
            {name: number(amount) for name, amount in (item.get("Requests") or {}).items()},
            item.get("Flavors") or {},
        )
        for item in recorded.get("TotalRequests") or ()
    ]
