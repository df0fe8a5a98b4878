"""Who lends what others borrow. Pure.

The API does not say whose quota a borrower uses, so a rule does: what a ClusterQueue holds above its nominal quota is
taken from the nearest Cohort that has some: first from the Cohort's own quota, then from the unused quotas of the
ClusterQueues below it, each in proportion to what it has to lend, and what is missing then from the Cohort above.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.api.quantity import MAX_INT64
from app.recorder.facts import Pair, Quota

Node = tuple[str, str]
"""Kind and name."""


@dataclass(slots=True)
class Tree:
    """The ClusterQueues and Cohorts of a moment, with their quotas."""

    parents: dict[Node, str] = field(default_factory=dict)
    nominal: dict[Node, dict[Pair, int]] = field(default_factory=dict)
    lending: dict[Node, dict[Pair, int]] = field(default_factory=dict)

    def nominal_of(self, queue: str, pair: Pair) -> int:
        """The nominal quota of a ClusterQueue; without end for one whose quota is not known."""
        known = self.nominal.get(("ClusterQueue", queue))
        return MAX_INT64 if known is None else known.get(pair, 0)

    def put(self, quota: Quota) -> None:
        """A ClusterQueue or Cohort has this quota from now on."""
        node = quota.kind, quota.name
        for table in (self.parents, self.nominal, self.lending):
            table.pop(node, None)
        if quota.gone:
            return
        self.parents[node] = quota.parent
        self.nominal[node] = {(each[0], each[1]): each[2] for each in quota.amounts}
        self.lending[node] = {(each[0], each[1]): each[4] for each in quota.amounts if each[4] is not None}

    def roots(self) -> dict[str, str]:
        """The name of the topmost Cohort above each ClusterQueue; its own, with a colon, for one without a Cohort."""
        return {
            name: self._root(name, parent) for (kind, name), parent in self.parents.items() if kind == "ClusterQueue"
        }

    def _root(self, name: str, parent: str) -> str:
        seen = set[str]()
        while above := self.parents.get(("Cohort", parent), ""):
            if above in seen:
                break  # Cohorts in a cycle
            seen.add(above)
            parent = above
        return parent or f":{name}"

    def children(self, names: Iterable[str]) -> dict[str, list[Node]]:
        """The members of each Cohort, of these ClusterQueues and of all Cohorts above them."""
        members: dict[str, list[Node]] = {}
        todo, seen = [("ClusterQueue", name) for name in names], set[Node]()
        while todo:
            node = todo.pop()
            parent = self.parents.get(node, "")
            if node in seen or not parent:
                continue
            seen.add(node)
            members.setdefault(parent, []).append(node)
            todo.append(("Cohort", parent))
        return members


def lent(
    tree: Tree, members: Mapping[str, list[Node]], root: str, pair: Pair, held: Mapping[str, int]
) -> dict[Node, float]:
    """What each ClusterQueue and Cohort below a root lends of a flavor and resource, if ClusterQueues hold so much."""
    given: dict[Node, float] = {}
    seen = set[Node]()

    def settle(node: Node) -> tuple[float, dict[Node, float]]:
        """What is missing below the node, and what each lender has left for those above."""
        nominal = tree.nominal.get(node, {}).get(pair, 0)
        limit = tree.lending.get(node, {}).get(pair)
        if node[0] == "ClusterQueue":
            used = held.get(node[1], 0)
            unused = max(0, nominal - used)
            return float(max(0, used - nominal)), {node: float(unused if limit is None else min(unused, limit))}
        seen.add(node)
        spares: dict[Node, float] = {}
        missing = 0.0
        for child in members.get(node[1], ()):
            if child in seen:
                continue  # Cohorts in a cycle
            more, left = settle(child)
            missing += more
            spares |= left
        own = min(float(nominal), missing)
        if own:
            given[node] = given.get(node, 0.0) + own
        missing -= own
        available = sum(spares.values())
        taken = min(missing, available)
        if taken:
            share = taken / available
            for lender, spare in spares.items():
                given[lender] = given.get(lender, 0.0) + spare * share
                spares[lender] = spare * (1 - share)
        spares[node] = float(nominal) - own
        rest = sum(spares.values())
        if limit is not None and rest > limit:
            spares = {lender: spare * limit / rest for lender, spare in spares.items()}
        return missing - taken, spares

    settle(("Cohort", root))
    return {lender: amount for lender, amount in given.items() if amount}
