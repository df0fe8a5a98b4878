"""Objects that a schema of ours allows, for hypothesis, and what of an object a schema does not know."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from hypothesis import strategies as st

from turnstile.api import crd
from turnstile.api.kinds import KINDS, Definition
from turnstile.api.schema import LABEL_PATTERN, NODE_KEY_PATTERN, SUBDOMAIN_PATTERN

Json = dict[str, Any]

TIMES = st.sampled_from(["2026-01-02T03:04:05Z", "1970-01-01T00:00:00Z"])
NAMES = st.sampled_from(["a", "b", "a-1", "team"])
_TEXTS = {
    LABEL_PATTERN: NAMES,
    SUBDOMAIN_PATTERN: NAMES | st.just("a.b"),
    NODE_KEY_PATTERN: st.sampled_from(["kubernetes.io/hostname", "example.com/rack", "zone"]),
}
_QUANTITIES = st.sampled_from(["1", "500m", "1Gi", 2])


def of(kind: str) -> Definition:
    """The kind of that name."""
    return next(kinds for kinds in KINDS if kind == kinds.stored.KIND)


@cache
def schema(kinds: Definition, version: str) -> Json:
    """The schema of a kind in a version."""
    versions = {entry["name"]: entry for entry in crd.definition(kinds)["spec"]["versions"]}
    found: Json = versions[version]["schema"]["openAPIV3Schema"]
    return found


@cache
def objects(kinds: Definition, version: str) -> st.SearchStrategy[Json]:
    """Objects of a kind in a version, as its schema allows them, rules aside; optional fields are there or not."""
    head = {"apiVersion": st.just(f"kueue.x-k8s.io/{version}"), "kind": st.just(kinds.stored.KIND)}
    metadata = st.fixed_dictionaries({"name": NAMES}, optional={"labels": st.dictionaries(NAMES, NAMES, max_size=2)})
    whole = schema(kinds, version)
    parts = {name: part for name, part in whole["properties"].items() if name not in {*head, "metadata"}}
    required = {name: values(part) for name, part in parts.items() if name in whole.get("required", ())}
    optional = {name: values(part) for name, part in parts.items() if name not in required}
    return st.fixed_dictionaries(head | {"metadata": metadata} | required, optional=optional)


def values(part: Json) -> st.SearchStrategy[Any]:
    """Values that a schema allows."""
    if part.get("x-kubernetes-int-or-string"):
        return _QUANTITIES
    if "enum" in part:
        return st.sampled_from(part["enum"])
    match part["type"]:
        case "object" if "additionalProperties" in part:
            return st.dictionaries(NAMES, values(part["additionalProperties"]), max_size=2)
        case "object":
            return _struct(part)
        case "array":
            return _list(part)
        case "integer":
            return st.integers(part.get("minimum", -2), min(part.get("maximum", 100), 100))
        case "boolean":
            return st.booleans()
        case _ if part.get("format") == "date-time":
            return TIMES
        case _ if part.get("pattern") in _TEXTS:
            return _TEXTS[part["pattern"]]
        case _ if "pattern" in part:
            return st.just("Kind")
        case _:
            return NAMES if part.get("minLength") else NAMES | st.just("")


def _struct(part: Json) -> st.SearchStrategy[Json]:
    properties = part.get("properties", {})
    if set(properties) >= {"levels", "domains"}:
        return assignments_by_domains()
    if set(properties) >= {"levels", "slices"}:
        return assignments_by_runs()
    if set(properties) == {"universal", "individual"}:
        raise AssertionError("runs of domains are made as a whole")
    required = part.get("required", ())
    return st.fixed_dictionaries(
        {name: values(properties[name]) for name in properties if name in required},
        optional={name: values(properties[name]) for name in properties if name not in required},
    )


def _list(part: Json) -> st.SearchStrategy[list[Any]]:
    items = values(part["items"])
    low = part.get("minItems", 0)
    keys = part.get("x-kubernetes-list-map-keys")
    if keys:
        return st.lists(items, min_size=low, max_size=2, unique_by=lambda item: tuple(item.get(key) for key in keys))
    unique = part.get("x-kubernetes-list-type") == "set"
    return st.lists(items, min_size=low, max_size=2, unique=unique)


HOSTS = st.builds("{}{}{}".format, st.sampled_from(["node-", "", "n"]), st.integers(0, 20), st.sampled_from(["", "-x"]))


@st.composite
def assignments_by_domains(draw: Any) -> Json:
    """Topology assignments of v1beta1."""
    levels = draw(st.lists(_TEXTS[NODE_KEY_PATTERN], min_size=1, max_size=3, unique=True))
    row = st.lists(HOSTS, min_size=len(levels), max_size=len(levels))
    domain = st.fixed_dictionaries({"values": row, "count": st.integers(1, 3)})
    return {"levels": levels, "domains": draw(st.lists(domain, max_size=5))}


@st.composite
def assignments_by_runs(draw: Any) -> Json:
    """Topology assignments of v1beta2, in any form that its rules allow."""
    levels = draw(st.lists(_TEXTS[NODE_KEY_PATTERN], min_size=1, max_size=3, unique=True))
    slices = []
    for _ in range(draw(st.integers(0, 3))):
        count = draw(st.integers(1, 3))
        roots = st.lists(HOSTS, min_size=count, max_size=count)
        affix = st.sampled_from(["a-", "z", ""])
        individual = st.fixed_dictionaries({"roots": roots}, optional={"prefix": affix, "suffix": affix})
        level = st.fixed_dictionaries({"universal": HOSTS}) | st.fixed_dictionaries({"individual": individual})
        number = st.integers(1, 3)
        each = st.lists(number, min_size=count, max_size=count)
        counts = st.fixed_dictionaries({"universal": number}) | st.fixed_dictionaries({"individual": each})
        per_level = [draw(level) for _ in levels]
        slices.append({"domainCount": count, "valuesPerLevel": per_level, "podCounts": draw(counts)})
    return {"levels": levels, "slices": slices}


def unknown(part: Json, value: Any, path: str = "") -> Iterator[str]:
    """Fields that a schema does not know and the API server would therefore drop."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown(part.get("items", {}), item, f"{path}[{index}]")
    elif isinstance(value, dict) and "additionalProperties" not in part and path != ".metadata":
        for name, item in value.items():
            if name in part.get("properties", {}):
                yield from unknown(part["properties"][name], item, f"{path}.{name}")
            elif not part.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name}"
