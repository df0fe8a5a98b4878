"""Usage over time as rows for people and programs: the accounts between instants, in hours of each resource. Pure but
for the file that it reads."""

import csv
import io
from collections.abc import Container, Iterable, Sequence
from itertools import pairwise
from typing import Final, cast

import msgspec

from turnstile.api.errors import InvalidValue
from turnstile.engine.instants import Instant, stamp
from turnstile.recorder.accounts import UNKNOWN, By, Figures, accounts, summed
from turnstile.recorder.holdings import holdings
from turnstile.recorder.reading import Reader
from turnstile.recorder.scope import EVERYTHING, Scope
from turnstile.wording.lost import unit_of

BY: Final[dict[str, By]] = {
    "queue": "cluster_queue",
    "localqueue": "local_queue",
    "namespace": "namespace",
    "user": "user",
    "flavor": "flavor",
}
"""The key by which usage is summed, as users call it."""
COLUMNS: Final = ("reserved", "used", "idle", "borrowed", "lent", "preempted")


class Row(msgspec.Struct, frozen=True):
    """Hours of one resource: of cores for cpu, of GiB for memory and storage, of units for all else. `lent` is None
    where the usage is by namespace, LocalQueue or user, or of some namespaces only: what is lent belongs to none of
    them. `borrowed` is None for a reader who is shown no quotas."""

    keys: dict[str, str]
    resource: str
    unit: str
    reserved: float
    used: float
    idle: float
    borrowed: float | None
    lent: float | None
    preempted: float


class Report(msgspec.Struct, frozen=True):
    """Usage between two points in time. `recorded_since` is the instant from which all is recorded."""

    since: str
    until: str
    recorded_since: str | None
    rows: list[Row]


def fields(by: str, user_label: str) -> list[str]:
    """The words of `--by`. Raises InvalidValue."""
    names = [name.strip() for name in by.split(",")]
    for name in names:
        if name not in BY:
            raise InvalidValue("--by", by, f"give one or several of {', '.join(BY)}, with commas between them")
    if "user" in names and not user_label:
        cure = (
            "give --user-label: Kubernetes does not tell who created an object, so a user is known by a label of the"
            " Workload only, such as one that your portal or a policy sets and that integrations.labelKeysToCopy copies"
        )
        raise InvalidValue("--by", by, cure)
    return list(dict.fromkeys(names))


def reports(
    reader: Reader,
    names: Sequence[str],
    edges: Sequence[Instant],
    *,
    user_label: str = "",
    scope: Scope = EVERYTHING,
    resource: str = "",
) -> list[Report]:
    """The usage between each two instants that follow on one another, by fields (keys of `BY`), of Workloads that a
    scope shows."""
    # What others held decides how much was borrowed: it is read if that is shown of anything.
    borrowing = scope.quotas and scope.namespaces != {}
    changes = reader.changes_of_usage(edges[0], edges[-1], EVERYTHING if borrowing else scope)
    held = [each for found, entries in changes for each in holdings(found, entries)]
    quotas, first = reader.quotas(), reader.since()
    hidden = {name for name, shown in (("borrowed", scope.quotas), ("lent", scope.whole)) if not shown}
    made = []
    for begin, end in pairwise(edges):
        found = accounts(held, quotas, begin, end, user_label=user_label, scope=scope)
        if resource:
            found = {account: figures for account, figures in found.items() if account.resource == resource}
        sums = summed(found, [BY[name] for name in names])
        rows = [_row(names, key, figures, hidden) for key, figures in sums.items()]
        made.append(Report(stamp(begin), stamp(end), stamp(first) if first is not None else None, rows))
    return made


def nominals(reader: Reader, edges: Sequence[Instant], resource: str) -> list[dict[str, float]]:
    """The nominal quotas of a resource in all flavors at the ends of these spans of time, in units, by ClusterQueue and
    `cohort NAME`."""
    quotas, found = iter(reader.quotas()), list[dict[str, float]]()
    amounts: dict[str, float] = {}
    _, unit = unit_of(resource)
    following = next(quotas, None)
    for _, end in pairwise(edges):
        while following is not None and following.at < end:
            name = following.name if following.kind == "ClusterQueue" else f"cohort {following.name}"
            amounts[name] = sum(each[2] for each in following.amounts if each[1] == resource) / unit
            following = next(quotas, None)
        found.append(dict(amounts))
    return found


def _row(names: Sequence[str], key: tuple[str, ...], figures: Figures, hidden: Container[str]) -> Row:
    *values, resource = key
    unit, each = unit_of(resource)
    amounts = {name: None if name in hidden else getattr(figures, name) for name in COLUMNS}
    hours = {name: None if value is None else value / each / 3600 for name, value in amounts.items()}
    keys = {name: value if value != UNKNOWN else "(unknown)" for name, value in zip(names, values, strict=True)}
    return Row(keys, resource, unit, **cast("dict[str, float]", hours))


def as_csv(tables: Iterable[Report], names: Sequence[str]) -> str:
    """Rows with a header; figures with six digits after the point."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["since", "until", *names, "resource", "unit", *COLUMNS])
    for each in tables:
        for row in each.rows:
            figures = [getattr(row, name) for name in COLUMNS]
            plain = ["" if value is None else f"{value:.6f}" for value in figures]
            writer.writerow([each.since, each.until, *map(row.keys.get, names), row.resource, row.unit, *plain])
    return text.getvalue()
