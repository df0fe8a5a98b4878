"""The actions that a reconciler may decide on: plain values that the executor carries out.

Deciding is pure: it returns actions and performs none. So every decision can be tested without a server, and a test can
stop between any two actions. Each action is idempotent: a second execution changes nothing.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import msgspec

from turnstile.api.meta import Kind
from turnstile.kube.gate import Rank

PatchType = Literal["merge", "strategic", "apply", "json"]


@dataclass(frozen=True, slots=True)
class Whole:
    """An object of which a store holds no whole pod templates, and the body that is made of it when it is written: the
    object is read again for that. A body of an object that has changed since is not written, like a stale one."""

    seen: Kind
    body: Callable[[Any], bytes] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object. An existing object of that name counts as a conflict: the next decision starts from it.

    `refused` returns, from what the API server says, the actions that report a refusal elsewhere than on the object
    that the decision is about. With `whole` the body is made when it is sent; with `source` it is read then, from
    another cluster.
    """

    kind: type[Kind]
    namespace: str
    name: str
    body: bytes
    refused: "Callable[[str], list[Action]] | None" = field(default=None, compare=False)
    whole: Whole | None = None
    source: Callable[[], Awaitable[bytes]] | None = field(default=None, compare=False)
    written: "Callable[[], None] | None" = field(default=None, compare=False)
    """Called once the object is created."""
    taken: "Callable[[], None] | None" = field(default=None, compare=False)
    """Called if there is an object of that name, which is not read then: it may be a stranger's."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The result of a merge patch as the fields of one field manager, for server-side apply.

    Applied instead of the patch, it makes that manager own the fields, and a field that the manager's next apply omits
    is removed: so Turnstile and another program that applies as the same manager can take over from each other. An
    omitted field that another manager owns stays: `rest` returns, from the API server's answer, the merge patch that
    still has to remove such fields, or None.
    """

    manager: str
    body: bytes
    rest: Callable[[Any], bytes | None]


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object; `subresource` is empty or `status`. The API server refuses a body with a stale resourceVersion.

    A `deferrable` patch waits until nothing more useful is to be written (`Rank.STATUS`), and a newer deferrable patch
    of the same object replaces it meanwhile. A `claim` is applied instead of the body, with the
    same effect: the content of such a patch is not encoded unless `body` is read. With `whole` the content is made when
    it is sent, and what is given is only its precondition. With `source` the content is read before its turn comes,
    from another cluster.
    """

    kind: type[Kind]
    namespace: str
    name: str
    content: bytes | Mapping[str, Any]
    type: PatchType = "merge"
    subresource: Literal["", "status"] = ""
    deferrable: bool = False
    claim: Claim | None = field(default=None, compare=False)
    stops: str = ""
    """The uid of the job that the patch stops, if it does. After one conflict such a patch is sent on condition of the
    uid alone (`insisting`), so that a user who changes the job all the time does not keep it running."""
    whole: Whole | None = None
    source: Callable[[], Awaitable[bytes]] | None = field(default=None, compare=False)
    written: Callable[[], None] | None = field(default=None, compare=False)
    """Called when the API server has taken the patch."""
    refused: "Callable[[str], list[Action]] | None" = field(default=None, compare=False)
    """As that of `Create`."""

    @property
    def body(self) -> bytes:
        """The content as JSON."""
        return self.content if isinstance(self.content, bytes) else msgspec.json.encode(self.content)

    @property
    def version(self) -> str:
        """The resourceVersion that the patch has as precondition; empty if it has none."""
        plain = msgspec.json.decode(self.content) if isinstance(self.content, bytes) else self.content
        if isinstance(plain, list):
            return next((each["value"] for each in plain if each["path"] == _VERSION), "")
        metadata = plain.get("metadata")
        return str(metadata.get("resourceVersion") or "") if isinstance(metadata, Mapping) else ""

    @property
    def insisting(self) -> "Patch":
        """The patch with the uid as precondition instead of the resourceVersion."""
        plain = msgspec.json.decode(self.content) if isinstance(self.content, bytes) else self.content
        if isinstance(plain, list):
            body: Any = [each if each["path"] != _VERSION else _SAME | {"value": self.stops} for each in plain]
        else:
            metadata = {key: value for key, value in plain.get("metadata", {}).items() if key != "resourceVersion"}
            body = {**plain, "metadata": {**metadata, "uid": self.stops}}
        return replace(self, content=msgspec.json.encode(body))


_VERSION: Final = "/metadata/resourceVersion"
_SAME: Final = {"op": "replace", "path": "/metadata/uid"}


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object if it still has this uid. An object that is gone counts as deleted."""

    kind: type[Kind]
    namespace: str
    name: str
    uid: str = ""
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    grace_seconds: int | None = None
    """Grace period in the place of the object's own; of a terminating pod it can only be shortened."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an event about an object. Never fails, never blocks; dropped under load. `one_series`: events of the
    reason that differ in their notes, one for each of many other objects, are counted in one."""

    regarding: Kind
    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    one_series: bool = False


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Decide again after this many seconds, whatever happens until then."""

    seconds: float


Action = Create | Patch | Delete | Emit | RequeueAfter


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The actions decided about one object, and the reason, for people. `rank` is that of the writes at the gate;
    creations and deferrable patches have ranks of their own. `failure` is why nothing else could be decided: it is
    reported when the actions were carried out, and the object is decided about again after a back-off."""

    actions: list[Action] = field(default_factory=list)
    why: str = ""
    rank: Rank = Rank.STOP
    failure: Exception | None = None
