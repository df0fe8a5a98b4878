"""What a decision writes, decoded."""

import json
from typing import Any

from turnstile.controllers.runtime.actions import Patch, ReconcileResult


def patches(decision: ReconcileResult) -> list[dict[str, Any]]:
    """Bodies of the patches."""
    return [json.loads(action.body) for action in decision.actions if isinstance(action, Patch)]


def status(decision: ReconcileResult) -> dict[str, Any]:
    """The status of the one patch."""
    (body,) = patches(decision)
    found: dict[str, Any] = body["status"]
    return found


def conditions(decision: ReconcileResult) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message by type, of the one patch."""
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status(decision)["conditions"]}
