"""The text of `kubectl turnstile top`: the tree of cohorts and ClusterQueues, with quota and usage. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from turnstile.api.quantity import from_int, to_int

Plain = Mapping[str, Any]
Cell = tuple[str, str]
"""A flavor and a resource."""

HEADINGS: Final = ("Name", "Flavor", "Resource", "Used", "Quota", "Borrowed", "Use", "Pending", "Admitted")


@dataclass(slots=True)
class Amounts:
    """Quota and usage of one resource of one flavor, in the units of the engine."""

    quota: int = 0
    used: int = 0
    borrowed: int = 0


@dataclass(slots=True)
class Node:
    """A cohort or a ClusterQueue in the tree. Amounts and Workloads of a cohort include all that is below it."""

    name: str
    is_cohort: bool
    amounts: dict[Cell, Amounts] = field(default_factory=lambda: defaultdict(Amounts))
    pending: int = 0
    admitted: int = 0
    active: bool = True
    set_by: str = ""
    """The object whose controller has written the quota, if the one of the spec does not hold."""
    below: list["Node"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the cells, the share of the quota that is used (None without quota), and what the line is about."""

    cells: Sequence[str]
    share: float | None
    is_cohort: bool
    active: bool


def tree(cluster_queues: Iterable[Plain], cohorts: Iterable[Plain]) -> list[Node]:
    """The cohorts without a parent, then the ClusterQueues without a cohort; everything by name."""
    nodes: dict[str, Node] = {}
    parents: dict[str, str] = {}
    for cohort in cohorts:
        name = cohort["metadata"]["name"]
        nodes[name] = Node(name, is_cohort=True)
        parents[name] = cohort.get("spec", {}).get("parentName", "")
        _count_quota(nodes[name], cohort)
    alone: list[Node] = []
    for queue in cluster_queues:
        node = _queue(queue)
        if cohort_name := queue["spec"].get("cohortName"):
            nodes.setdefault(cohort_name, Node(cohort_name, is_cohort=True)).below.append(node)
        else:
            alone.append(node)
    for parent in parents.values():
        if parent:  # a cohort needs no object of its own
            nodes.setdefault(parent, Node(parent, is_cohort=True))
    roots = []
    for name, node in nodes.items():
        parent = parents.get(name, "")
        if parent and not _circular(name, parents):
            nodes[parent].below.append(node)
        else:
            roots.append(node)
    for root in roots:
        _sum(root)
    return [*sorted(roots, key=lambda node: node.name), *sorted(alone, key=lambda node: node.name)]


def _circular(name: str, parents: Mapping[str, str]) -> bool:
    """Whether a cohort is its own ancestor, which Turnstile does not admit to."""
    seen = {name}
    while name := parents.get(name, ""):
        if name in seen:
            return True
        seen.add(name)
    return False


def _queue(queue: Plain) -> Node:
    status = queue.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    node = Node(
        queue["metadata"]["name"],
        is_cohort=False,
        pending=status.get("pendingWorkloads", 0),
        admitted=status.get("admittedWorkloads", 0),
        active=conditions.get("Active") != "False",
    )
    _count_quota(node, queue)
    for flavor in status.get("flavorsReservation") or ():
        for resource in flavor.get("resources") or ():
            amounts = node.amounts[flavor["name"], resource["name"]]
            amounts.used += to_int(resource["name"], resource.get("total", "0"))
            amounts.borrowed += to_int(resource["name"], resource.get("borrowed", "0"))
    return node


def quota_of(obj: Plain) -> tuple[Sequence[Plain], str]:
    """The resourceGroups of a ClusterQueue or Cohort that hold, and by which object they are set, if not by its spec
    (gate DynamicQuotaOrchestration)."""
    effective = obj.get("status", {}).get("effectiveQuotas")
    if not effective:
        return obj.get("spec", {}).get("resourceGroups") or (), ""
    ref = effective["orchestratorRef"]
    return effective.get("resourceGroups") or (), f"{ref['kind']} {ref['name']}"


def _count_quota(node: Node, obj: Plain) -> None:
    groups, node.set_by = quota_of(obj)
    for group in groups:
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                quota = to_int(resource["name"], resource.get("nominalQuota", "0"))
                node.amounts[flavor["name"], resource["name"]].quota += quota


def _sum(cohort: Node) -> None:
    """Add to a cohort what is below it. Loans among its members are not borrowed by the cohort."""
    for node in cohort.below:
        if node.is_cohort:
            _sum(node)
        cohort.pending += node.pending
        cohort.admitted += node.admitted
        for cell, amounts in node.amounts.items():
            cohort.amounts[cell].quota += amounts.quota
            cohort.amounts[cell].used += amounts.used
    cohort.below.sort(key=lambda node: (node.is_cohort, node.name))


def lines(nodes: Iterable[Node], depth: int = 0) -> Iterator[Line]:
    """The lines of a tree: one for each flavor and resource, of which the first has the name and the Workloads."""
    for node in nodes:
        name = "  " * depth + "cohort " * node.is_cohort + node.name + ("" if node.active else " (inactive)")
        name += f" (quota by {node.set_by})" if node.set_by else ""
        workloads = (str(node.pending), str(node.admitted))
        cells: list[tuple[Cell, Amounts | None]] = [*sorted(node.amounts.items())] or [(("", ""), None)]
        for number, ((flavor, resource), amounts) in enumerate(cells):
            first = number == 0
            head = [name if first else "", flavor, resource]
            yield Line(
                [*head, *_shown(resource, amounts), *(workloads if first else ("", ""))],
                amounts.used / amounts.quota if amounts is not None and amounts.quota else None,
                node.is_cohort,
                node.active,
            )
        yield from lines(node.below, depth + 1)


def _shown(resource: str, amounts: Amounts | None) -> list[str]:
    if amounts is None:
        return ["", "", "", ""]
    borrowed = from_int(resource, amounts.borrowed) if amounts.borrowed else ""
    share = f"{100 * amounts.used // amounts.quota}%" if amounts.quota else "-"
    return [from_int(resource, amounts.used), from_int(resource, amounts.quota), borrowed, share]


def below(nodes: Iterable[Node], cohort: str) -> Node | None:
    """The cohort of a name in the tree."""
    for node in nodes:
        if node.is_cohort and node.name == cohort:
            return node
        if (found := below(node.below, cohort)) is not None:
            return found
    return None
