"""The form of decisions, options and events in a decision log: plain data that JSON can hold.

The leader writes it, and `insight.replay` reads it and compares. Writes nothing itself.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from turnstile.api.meta import Kind
from turnstile.engine.decisions import Decision
from turnstile.engine.options import Options

Line = dict[str, Any]
"""One line of the log."""


def decided(decision: Decision) -> Line:
    """A decision as the log has it."""
    return {
        "key": decision.key,
        "uid": decision.uid,
        "generation": decision.generation,
        "resourceVersion": decision.workload.metadata.resource_version,
        "clusterQueue": decision.cluster_queue,
        "outcome": decision.outcome,
        "reason": decision.condition_reason,
        "requeue": decision.requeue_reason,
        "message": decision.message,
        "short": [list(each) for each in decision.short],
        "borrowing": decision.borrowing,
        "victims": [
            {
                "key": victim.key,
                "uid": victim.uid,
                "clusterQueue": victim.cluster_queue,
                "reason": victim.reason,
                "new": victim.new,
            }
            for victim in decision.victims
        ],
    }


def plain_options(options: Options) -> Any:
    """Options as JSON."""
    return msgspec.to_builtins(options, enc_hook=_as_text)


def plain_event(args: tuple[Any, ...], named: Mapping[str, Any]) -> Line:
    """The arguments of an event as JSON."""
    return {"args": [_plain(each) for each in args], "named": dict(named)}


def _plain(value: Any) -> Any:
    if isinstance(value, Kind):
        return {"kind": type(value).KIND, "object": msgspec.to_builtins(value)}
    return dict(value) if isinstance(value, Mapping) else value


def _as_text(value: Any) -> str:
    if isinstance(value, Fraction):
        return str(value)
    raise NotImplementedError(type(value))
