"""What a reconciler may want: a short list of values that the executor carries out.

A decision is pure: it returns these and does nothing. So every decision can be tested without a server, and a test can
stop between any two actions. Each action is idempotent: done twice, it leaves what it left the first time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from app.api.meta import Kind

PatchType = Literal["merge", "strategic", "apply", "json"]


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. One that is there already counts as a conflict: the next decision starts from it."""

    kind: type[Kind]
    namespace: str
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """What a merge patch makes of an object, as the share of one field manager for server-side apply.

    Applied instead of the patch, it leaves the fields with that manager, and what the manager leaves out of its next
    apply goes: so another program that applies as the same manager can take over, and be taken over from. What other
    managers hold stays when it is left out: `rest` tells from the answer what a merge patch has still to take away.
    """

    manager: str
    body: bytes
    rest: Callable[[Any], bytes | None]


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object; `subresource` is empty or `status`. A body with a resourceVersion is refused if it is stale.

    `deferrable` marks housekeeping that may wait until nothing more urgent is to be written. With a `claim` that is
    applied, to the same effect.
    """

    kind: type[Kind]
    namespace: str
    name: str
    body: bytes
    type: PatchType = "merge"
    subresource: Literal["", "status"] = ""
    deferrable: bool = False
    claim: Claim | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object if it still has this uid. One that is gone counts as done."""

    kind: type[Kind]
    namespace: str
    name: str
    uid: str = ""
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an event about an object. Never fails, never blocks; given up under load."""

    regarding: Kind
    type: Literal["Normal", "Warning"]
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Decide again after so many seconds, whatever happens until then."""

    seconds: float


Action = Create | Patch | Delete | Emit | RequeueAfter


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one object, and the sentence that tells people why."""

    actions: list[Action] = field(default_factory=list)
    why: str = ""
