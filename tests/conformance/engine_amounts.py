"""Arithmetic of amounts and requests: sums that saturate, what is left of what has no end, what is more than what.

Every call is dispatched by its name; one that has no counterpart here is passed over. Numbers past 2^53 were recorded
as floats are printed, so they are compared as floats.
"""

from typing import Any

from tests.conformance import api_validation
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from turnstile.api.quantity import MAX_INT64, to_int
from turnstile.engine.quota import requests
from turnstile.engine.quota.amounts import UNLIMITED, bounded, endless
from turnstile.engine.quota.podsets import PodSetTotals, same_requests

Json = Any

_NANOS = 10**9


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found = api_validation.quantities(case, run)
    trace = list(run.get("trace") or ())
    for index, step in enumerate(trace):
        scope, _, name = step["op"].rpartition(".")
        args, results = step.get("args") or {}, step.get("results") or [None]
        if scope == "resources.Amount":
            told = _amount(name, args)
        elif scope.endswith("Requests") or name == "Equal":
            told = _requests(name, args)
            if name in {"Add", "Sub", "Divide", "FloorToZero"}:
                results = _after(trace[index + 1 :], run)
        else:
            continue
        if told is not None and results:
            found = [*(found or []), *differs(step["op"], _plain(results[0]), _plain(told[0]))]
    return found


def _after(rest: list[Json], run: dict[str, Json]) -> list[Json]:
    """What a call made of the requests that it was made on, if that was looked at before the next call."""
    if rest and rest[0]["op"].endswith("ToMap"):
        args = rest[0].get("args") or {}
        return [args.get("$recv", args.get("r"))]
    looks = [each for each in run.get("checks") or () if str(each.get("of")) in {"mapReq", "requests"}]
    return [each.get("got") for each in looks[:1]]


def _plain(value: Json) -> Json:
    """As far as a float tells numbers apart; nothing is the same as empty."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return None if value in ([], {}) else value


def _number(value: Json) -> int:
    return UNLIMITED if value == "Unlimited" else min(int(value), MAX_INT64 - 1)


def _told(amount: int) -> Json:
    return "Unlimited" if amount >= MAX_INT64 else bounded(amount)


def _amount(name: str, args: dict[str, Json]) -> list[Json] | None:
    """One amount and another."""
    left = _number(args["$recv"])
    right = _number(args["b"] if "b" in args else args.get("v", 0))
    match name.removesuffix("Int64"):
        case "Add":
            return [_told(endless(left + right))]
        case "Sub":
            return [_told(endless(left - right))]
        case "Cmp":
            return [(left > right) - (left < right)]
        case "":
            return [bounded(left)]
        case _:
            return None


def _requests(name: str, args: dict[str, Json]) -> list[Json] | None:
    """Requests of one pod, or of a pod set."""
    mine, other = args.get("$recv") or {}, args.get("other") or {}
    match name:
        case "Add" | "Sub" if args.get("$recv") is not None:
            sign = 1 if name == "Add" else -1
            names = {**mine, **other}
            return [{each: bounded(mine.get(each, 0) + sign * other.get(each, 0)) for each in names}]
        case "Divide" if args.get("$recv") is not None:
            return [PodSetTotals(name="main", count=args["f"], requests=dict(mine)).scaled(1)]
        case "FloorToZero":
            units = {each: 10**6 if each == "cpu" else _NANOS for each in mine}
            return [requests.amounts({each: value * units[each] for each, value in mine.items()})]
        case "GreaterKeys":
            return [requests.greater(mine, other)]
        case "GreaterKeysRL":
            return [requests.greater(mine, {each: to_int(each, value) for each, value in (args["rl"] or {}).items()})]
        case "Equal" if args["a"] is not None and args["b"] is not None:
            sides = [PodSetTotals(name="main", count=1, requests=dict(args[side] or {})) for side in ("a", "b")]
            return [same_requests(sides[:1], sides[1:])]
        case _:
            return None
