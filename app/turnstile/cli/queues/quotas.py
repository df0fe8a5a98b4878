"""Reads what `create` takes in a compact form: quotas, taints, tolerations and labels. Pure; raises InvalidValue."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from turnstile.api.errors import InvalidValue
from turnstile.api.quantity import parse as parse_quantity

Plain = dict[str, Any]

NOMINAL: Final = "--nominal-quota"
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_FIELDS: Final = {NOMINAL: "nominalQuota", "--borrowing-limit": "borrowingLimit", "--lending-limit": "lendingLimit"}
_QUOTA: Final = "give FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT, as alpha:cpu=9;memory=36Gi"
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?")


def parts(given: Iterable[str] | None) -> list[str]:
    """The values of an option that may be given several times, and takes several with commas between them."""
    return [part.strip() for text in given or () for part in text.split(",")]


def labels(option: str, given: Iterable[str] | None) -> dict[str, str]:
    """Labels of `KEY=VALUE`."""
    found = {}
    for text in parts(given):
        key, equals, value = text.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise InvalidValue(option, text, "give KEY=VALUE, a label and its value")
        found[key] = value
    return found


def resource_groups(given: Mapping[str, Iterable[str] | None]) -> list[Plain]:
    """resourceGroups of the quota options, by option. Flavors with the same resources are in one group; a flavor that
    is named by several options must have the same resources in each."""
    flavors: dict[str, dict[str, Plain]] = {}
    for option, texts in given.items():
        named: set[str] = set()
        for text in parts(texts):
            flavor, amounts = _flavor(option, text)
            if flavor in named:
                raise InvalidValue(option, text, f"flavor {flavor} is there twice: give all its resources at once")
            named.add(flavor)
            known = flavors.setdefault(flavor, {name: {"name": name} for name in amounts})
            if known.keys() != amounts.keys():
                raise InvalidValue(
                    option, text, f"name the same resources of flavor {flavor} everywhere: {', '.join(known)}"
                )
            for name, amount in amounts.items():
                known[name][_FIELDS[option]] = amount
    groups: dict[frozenset[str], Plain] = {}
    for flavor, resources in flavors.items():
        covered = frozenset(resources)
        for other, group in groups.items():
            if other != covered and other & covered:
                shared = ", ".join(sorted(other & covered))
                cure = f"{shared} is in two groups: give it and {group['flavors'][0]['name']} the same resources"
                raise InvalidValue("flavor", flavor, cure)
        group = groups.setdefault(covered, {"coveredResources": list(resources), "flavors": []})
        quotas = [{**resource, "nominalQuota": resource.get("nominalQuota", "0")} for resource in resources.values()]
        by_name = {each["name"]: each for each in quotas}
        ordered = [by_name[name] for name in group["coveredResources"]]
        group["flavors"].append({"name": flavor, "resources": ordered})
    return list(groups.values())


def _flavor(option: str, text: str) -> tuple[str, dict[str, str]]:
    """The flavor and the amounts of `FLAVOR:RESOURCE=AMOUNT;...`."""
    flavor, colon, rest = text.partition(":")
    amounts: dict[str, str] = {}
    for each in rest.rstrip(";").split(";"):
        name, equals, amount = each.partition("=")
        if not (flavor and colon and name and equals and amount) or name in amounts:
            raise InvalidValue(option, text, _QUOTA)
        try:
            parse_quantity(amount)
        except InvalidValue:
            raise InvalidValue(option, text, f"{amount} is no quantity; {_QUOTA}") from None
        amounts[name] = amount
    return flavor, amounts


def taints(option: str, given: Iterable[str] | None) -> list[Plain]:
    """Taints of `KEY[=VALUE]:EFFECT`."""
    found: list[Plain] = []
    for text in parts(given):
        taint = _taint(option, text, "give KEY[=VALUE]:EFFECT, as spot=true:NoSchedule")
        if not taint.get("key") or "effect" not in taint:
            raise InvalidValue(option, text, "give KEY[=VALUE]:EFFECT, as spot=true:NoSchedule")
        if any((each["key"], each["effect"]) == (taint["key"], taint["effect"]) for each in found):
            raise InvalidValue(option, text, "this key has this effect twice: leave one of them out")
        found.append(taint)
    return found


def tolerations(option: str, given: Iterable[str] | None) -> list[Plain]:
    """Tolerations of `KEY[=VALUE][:EFFECT]`, or of `:EFFECT` for every key."""
    found: list[Plain] = []
    for text in parts(given):
        taint = _taint(option, text, "give KEY[=VALUE][:EFFECT] or :EFFECT, as spot=true:NoSchedule")
        found.append(taint | {"operator": "Equal" if taint.get("value") else "Exists"})
    return found


def _taint(option: str, text: str, cure: str) -> Plain:
    pair, colon, effect = text.partition(":")
    key, equals, value = pair.partition("=")
    if not text or (equals and not key) or (key and not _KEY.fullmatch(key)) or not _VALUE.fullmatch(value):
        raise InvalidValue(option, text, cure)
    if (colon or effect) and effect not in EFFECTS:
        raise InvalidValue(option, text, f"the effect is one of {', '.join(EFFECTS)}")
    return {name: part for name, part in (("key", key), ("value", value), ("effect", effect)) if part}
