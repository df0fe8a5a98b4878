"""The ways to write where pods go: a list of domains, and runs of domains with what they have in common said once.

v1beta1 has the list, v1beta2 the runs; decisions are made on `Domain`s. The order of domains has a meaning: the ranks
of pods follow it. Any valid form of runs is as good as another, so nothing may compare two assignments by their text.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import Any, Final, NamedTuple

import msgspec

from turnstile.api.errors import InvalidValue
from turnstile.api.meta import to_plain
from turnstile.api.topology import (
    HOSTNAME,
    IndividualValues,
    LevelValues,
    SlicePodCounts,
    TopologyAssignment,
    TopologyAssignmentSlice,
)

Json = dict[str, Any]

MAX_DOMAINS: Final = 100_000
"""Domains of one run, and of an assignment in the form of v1beta1."""
_MAX_RUNS: Final = 1000


class Domain(NamedTuple):
    """A place for pods: the values of the node labels that make it, and how many pods it gets."""

    values: tuple[str, ...]
    """One for each level of the assignment, the widest first."""
    pods: int


def decode(assignment: TopologyAssignment | None) -> Iterator[Domain]:
    """The domains of an assignment, in their order. Ends early where a run is malformed.

    The number of steps is bounded by the text of the assignment and not by the counts that it states.
    """
    repeated = 0
    for run in assignment.slices if assignment is not None else ():
        count = run.domain_count
        if all(level.individual is None for level in run.values_per_level) and not run.pod_counts.individual:
            repeated += count
            if repeated > MAX_DOMAINS:
                return
        pods = run.pod_counts.individual or repeat(run.pod_counts.universal or 0, count)
        columns = [_column(level, count) for level in run.values_per_level]
        yield from map(Domain, zip(*columns, strict=False) if columns else repeat((), count), pods)


def hosts(assignment: TopologyAssignment | None) -> Iterator[str]:
    """Host names of the nodes that an assignment names; none if its lowest level is wider than a host."""
    if assignment is not None and assignment.levels[-1:] == [HOSTNAME]:
        for domain in decode(assignment):
            yield domain.values[-1]


def encode(levels: Sequence[str], domains: Sequence[Domain], *, split: bool = True) -> TopologyAssignment:
    """The shortest of two forms: one run, or runs of hosts with a common prefix, unless `split` is False."""
    whole = write(levels, [domains[start : start + MAX_DOMAINS] for start in range(0, len(domains), MAX_DOMAINS)])
    parts = runs(levels, domains) if split else []
    if len(parts) < 2:
        return whole
    by_prefix = write(levels, parts)
    longer = len(domains) > MAX_DOMAINS or len(msgspec.json.encode(whole)) >= len(msgspec.json.encode(by_prefix))
    return by_prefix if longer else whole


def write(levels: Sequence[str], parts: Sequence[Sequence[Domain]]) -> TopologyAssignment:
    """An assignment of these runs."""
    return TopologyAssignment(levels=list(levels), slices=[_run(part) for part in parts])


def runs(levels: Sequence[str], domains: Sequence[Domain]) -> list[Sequence[Domain]]:
    """The domains in their order, cut where the prefix of host names changes."""
    prefixes = None
    if levels[-1:] == [HOSTNAME] and len(domains) > 1:
        prefixes = host_prefixes([domain.values[-1] for domain in domains])
    found: list[Sequence[Domain]] = []
    end = 0
    for _, same in groupby(prefixes if prefixes is not None else repeat("", len(domains))):
        start, end = end, end + sum(1 for _ in same)
        found += [domains[place : min(place + MAX_DOMAINS, end)] for place in range(start, end, MAX_DOMAINS)]
    return found


def host_prefixes(names: Sequence[str]) -> list[str] | None:
    """For each host the longest prefix up to a dash that another host has too, or an empty text.

    With ever shorter prefixes until they make no more runs than an assignment may have; None if no prefix does.
    """
    dashes = [[place + 1 for place, letter in enumerate(name) if letter == "-"] for name in names]
    seen = Counter(name[:end] for name, ends in zip(names, dashes, strict=True) for end in ends)
    for depth in range(max(map(len, dashes), default=0), 0, -1):
        prefixes = [
            next((name[:end] for end in reversed(ends[:depth]) if seen[name[:end]] > 1), "")
            for name, ends in zip(names, dashes, strict=True)
        ]
        if sum(-(-sum(1 for _ in same) // MAX_DOMAINS) for _, same in groupby(prefixes)) <= _MAX_RUNS:
            return prefixes
    return None


def expand(assignment: Json) -> Json:
    """The list of domains of an assignment by runs. Raises InvalidValue for what is malformed or has no end."""
    levels = _list(assignment, "levels")
    slices = _list(assignment, "slices")
    counts = [_count(piece) for piece in slices]
    if sum(counts) > MAX_DOMAINS:
        raise InvalidValue("slices", f"{sum(counts)} domains", f"an assignment has at most {MAX_DOMAINS}")
    domains: list[Json] = []
    for piece, count in zip(slices, counts, strict=True):
        columns = [_values(level, count) for level in _list(piece, "valuesPerLevel")]
        if len(columns) != len(levels):
            raise InvalidValue("valuesPerLevel", len(columns), f"give one entry for each of the {len(levels)} levels")
        pods = _spread(piece.get("podCounts"), count, "podCounts")
        rows = zip(*columns, strict=True) if columns else repeat((), count)
        domains.extend({"values": list(values), "count": pod} for values, pod in zip(rows, pods, strict=True))
    return {**_rest(assignment, "slices"), "levels": levels, "domains": domains}


def compact(assignment: Json) -> Json:
    """The runs of an assignment by domains; none if there are no domains. Raises InvalidValue."""
    levels = _list(assignment, "levels")
    domains = _list(assignment, "domains")
    if len(domains) > MAX_DOMAINS:
        raise InvalidValue("domains", f"{len(domains)} domains", f"an assignment has at most {MAX_DOMAINS}")
    rows = [Domain(_row(domain, len(levels)), domain.get("count", 0)) for domain in domains]
    return {**_rest(assignment, "domains"), "levels": levels, "slices": to_plain(encode(levels, rows))["slices"]}


def _rest(assignment: Json, form: str) -> Json:
    return {name: value for name, value in assignment.items() if name != form}


def _list(parent: Any, name: str) -> list[Any]:
    value = parent.get(name) if isinstance(parent, dict) else None
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidValue(name, value, "give a list")
    return value


def _count(piece: Any) -> int:
    count = piece.get("domainCount") if isinstance(piece, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise InvalidValue("domainCount", count, "give the number of domains")
    return count


def _values(level: Any, count: int) -> Any:
    individual = level.get("individual") if isinstance(level, dict) else None
    if not isinstance(individual, dict):
        return _spread(level, count, "valuesPerLevel")
    prefix, suffix = individual.get("prefix") or "", individual.get("suffix") or ""
    roots = _list(individual, "roots")
    if not all(isinstance(part, str) for part in chain((prefix, suffix), roots)):
        raise InvalidValue("roots", "", "values of a level are texts")
    if len(roots) != count:
        raise InvalidValue("roots", len(roots), f"give one for each of the {count} domains")
    return [f"{prefix}{root}{suffix}" for root in roots]


def _spread(said: Any, count: int, name: str) -> Any:
    """One value for all, or a value each."""
    if not isinstance(said, dict):
        raise InvalidValue(name, said, "give universal or individual")
    individual = _list(said, "individual")
    if not individual:
        if (universal := said.get("universal")) is None:
            raise InvalidValue(name, said, "give universal or individual")
        return repeat(universal, count)
    if len(individual) != count:
        raise InvalidValue(name, len(individual), f"give one for each of the {count} domains")
    return individual


def _row(domain: Any, levels: int) -> tuple[str, ...]:
    if not isinstance(domain, dict):
        raise InvalidValue("domains", domain, "give objects with values and count")
    values = _list(domain, "values")
    if len(values) != levels or not all(isinstance(value, str) for value in values):
        raise InvalidValue("values", values, f"give a text for each of the {levels} levels")
    return tuple(values)


def _same(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _beginning(values: Sequence[str]) -> str:
    """The common prefix of all of them: what the first and the last in order have in common, all others have too."""
    first, last = min(values), max(values)
    return next((first[:place] for place, letter in enumerate(first) if not last.startswith(letter, place)), first)


def _run(domains: Sequence[Domain]) -> TopologyAssignmentSlice:
    counts = [domain.pods for domain in domains]
    return TopologyAssignmentSlice(
        domain_count=len(domains),
        values_per_level=[_level(column) for column in zip(*(domain.values for domain in domains), strict=True)],
        pod_counts=SlicePodCounts(universal=counts[0]) if _same(counts) else SlicePodCounts(individual=counts),
    )


def _level(values: tuple[str, ...]) -> LevelValues:
    if _same(values):
        return LevelValues(universal=values[0])
    prefix = _beginning(values)
    suffix = _beginning([value[::-1] for value in values])[::-1]
    # The part of the shortest value that both would take goes to the suffix.
    prefix = prefix[: max(0, min(map(len, values)) - len(suffix))]
    end = -len(suffix) or None
    roots = [value[len(prefix) : end] for value in values]
    return LevelValues(individual=IndividualValues(roots=roots, prefix=prefix or None, suffix=suffix or None))


def _column(level: LevelValues, count: int) -> Iterator[str]:
    """Values of one level, a domain each."""
    each = level.individual
    if each is None:
        return repeat(level.universal or "", count)
    prefix, suffix = each.prefix or "", each.suffix or ""
    return (f"{prefix}{root}{suffix}" for root in each.roots)
