"""The two ways to write where pods go: a list of domains, and runs of domains with what they have in common said once.

v1beta1 has the list, v1beta2 the runs. Works on plain JSON. Any valid form of runs is as good as another, so nothing
may compare two assignments by their text.
"""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, Final

from turnstile.api.errors import InvalidValue

Json = dict[str, Any]

MAX_DOMAINS: Final = 100_000
"""Domains of one assignment, in either form."""


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
    """The runs of an assignment by domains: one run, or none if there are no domains. Raises InvalidValue."""
    levels = _list(assignment, "levels")
    domains = _list(assignment, "domains")
    if len(domains) > MAX_DOMAINS:
        raise InvalidValue("domains", f"{len(domains)} domains", f"an assignment has at most {MAX_DOMAINS}")
    rows = [_row(domain, len(levels)) for domain in domains]
    slices = []
    if rows:
        counts = [domain.get("count", 0) for domain in domains]
        slices.append(
            {
                "domainCount": len(rows),
                "valuesPerLevel": [_level(column) for column in zip(*rows, strict=True)],
                "podCounts": {"universal": counts[0]} if _same(counts) else {"individual": counts},
            }
        )
    return {**_rest(assignment, "domains"), "levels": levels, "slices": slices}


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


def _row(domain: Any, levels: int) -> list[str]:
    if not isinstance(domain, dict):
        raise InvalidValue("domains", domain, "give objects with values and count")
    values = _list(domain, "values")
    if len(values) != levels or not all(isinstance(value, str) for value in values):
        raise InvalidValue("values", values, f"give a text for each of the {levels} levels")
    return values


def _same(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


def _beginning(values: Sequence[str]) -> str:
    """The common prefix of all of them: what the first and the last in order have in common, all others have too."""
    first, last = min(values), max(values)
    return next((first[:place] for place, letter in enumerate(first) if not last.startswith(letter, place)), first)


def _level(values: tuple[str, ...]) -> Json:
    if _same(values):
        return {"universal": values[0]}
    prefix = _beginning(values)
    suffix = _beginning([value[::-1] for value in values])[::-1]
    # What both would claim of the shortest value goes to the suffix.
    prefix = prefix[: max(0, min(map(len, values)) - len(suffix))]
    end = -len(suffix) or None
    individual: Json = {"roots": [value[len(prefix) : end] for value in values]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}
