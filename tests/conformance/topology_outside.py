"""Recorded looks at pods that topology did not place: which use the amounts of a node, and which changes count."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from tests.unit.controllers.worlds import decode
from turnstile.api.core import Pod
from turnstile.engine.intake import PLACES
from turnstile.engine.options import Options
from turnstile.engine.state import State

Json = Any
_OP = "controller/tas."


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every call of a run; None if none has a counterpart here."""
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        if not step["op"].startswith(_OP):
            continue
        args, (want,) = step.get("args") or {}, step["results"]
        match step["op"].removeprefix(_OP):
            case "belongsToNonTASCache":
                have = bool(_after(args["pod"]))
            case "PodUsageReconciler.Create":
                have = bool(_after(args["e"]["Object"]))
            case "PodUsageReconciler.Delete":
                pod = args["e"]["Object"]
                have = bool(_after(pod))
                if want and not have:
                    continue  # a pod that has ended counts no more here when it is deleted
            case "PodUsageReconciler.Update":
                old, new = args["e"]["ObjectOld"], args["e"]["ObjectNew"]
                have = _after(old) != _after(old, new)
            case other:
                raise NotRead(f"the runner does not know the call {other}")
        compared = True
        found += differs(step["op"], want, have)
    return found if compared else None


def _after(*versions: Json) -> Mapping[str, Mapping[str, int]]:
    """The amounts of each node that a pod uses in its last version."""
    state = State(Options())
    for each in versions:
        if each is not None:
            PLACES[Pod].put(state, decode(Pod, each), 0.0)
    names = {each["spec"]["nodeName"] for each in versions if each is not None and each["spec"].get("nodeName")}
    nodes = state.surroundings.nodes
    return {name: dict(nodes.outside(name)) for name in sorted(names) if nodes.outside(name)}
