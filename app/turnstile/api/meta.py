"""Parts that every object has: metadata, owner references, conditions; and the struct base of all kinds.

Attributes are the snake_case of the JSON names. An optional field that is absent is None (or an empty collection); a
decoder ignores fields that Turnstile does not read, so a struct is a view of an object and never its full copy.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import msgspec
import orjson

from turnstile.api.schema import NODE_KEY_PATTERN, Column, Field, Int64, Rule, Time, always

T = TypeVar("T")

ConditionStatus = Literal["True", "False", "Unknown"]


def camel(attribute: str) -> str:
    """JSON name of an attribute: `borrowing_limit` is `borrowingLimit`."""
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)


class Object(msgspec.Struct, rename=camel, omit_defaults=True, kw_only=True, gc=False):
    """Base of every value that travels as JSON."""

    RULES: ClassVar[tuple[Rule, ...]] = ()
    """CEL rules of this object, for the schema."""


class OwnerReference(Object):
    """metav1.OwnerReference."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Object):
    """metav1.ObjectMeta, without managedFields."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: Sequence[str] = ()
    owner_references: Sequence[OwnerReference] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with `controller: true`, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


_REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


class Condition(Object):
    """metav1.Condition. `turnstile.api.conditions` sets one in a list."""

    type: Annotated[str, Field("What is true or not.", max_length=316, pattern=NODE_KEY_PATTERN)]
    status: Annotated[ConditionStatus, Field("Whether it is.")]
    reason: Annotated[str, Field("One word why.", min_length=1, max_length=1024, pattern=_REASON)]
    message: Annotated[str, Field("A sentence for people.", required=True, max_length=32768)] = always(str)
    last_transition_time: Annotated[Time, Field("When the status changed last.", required=True)] = always(str)
    observed_generation: Annotated[Int64 | None, Field("The metadata.generation it speaks of.", minimum=0)] = None


Conditions = Annotated[
    Sequence[Condition], Field("What is known of the object.", list_type="map", map_keys=("type",), max_items=16)
]


class Kind(Object):
    """Base of the kinds: `kind`, `apiVersion` and `metadata`."""

    GROUP: ClassVar[str]
    VERSION: ClassVar[str]
    VERSIONS: ClassVar[tuple[str, ...]] = ()
    """The versions that the struct reads, the preferred one first; empty if `VERSION` is the only one."""
    KIND: ClassVar[str]
    PLURAL: ClassVar[str]
    GUESSED: ClassVar[bool] = False
    """Whether `PLURAL` is only a guess: the discovery documents of each API server say what it is there."""
    NAMESPACED: ClassVar[bool]
    HAS_TEMPLATES: ClassVar[bool] = False
    """Whether each raw part is a pod template that is never written back: a store holds what decides of a large one."""

    SHORT_NAMES: ClassVar[tuple[str, ...]] = ()
    COLUMNS: ClassVar[tuple[Column, ...]] = ()
    SELECTABLE_FIELDS: ClassVar[tuple[str, ...]] = ()
    """JSON paths that a field selector may name."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @classmethod
    def decoder(cls) -> Callable[[bytes | msgspec.Raw], Self]:
        """The function that reads one from JSON. A kind that wants to see more than its fields gives its own."""
        return msgspec.json.Decoder(cls).decode

    @classmethod
    def collection_path(cls, namespace: str = "", *, version: str = "", plural: str = "") -> str:
        """URL path of the collection, of one namespace if given: `/apis/batch/v1/namespaces/ns/jobs`.

        In `VERSION` and by `PLURAL` unless others are given.
        """
        version, plural = version or cls.VERSION, plural or cls.PLURAL
        root = f"/apis/{cls.GROUP}/{version}" if cls.GROUP else f"/api/{version}"
        return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"

    @classmethod
    def path(cls, name: str, namespace: str = "", *, version: str = "") -> str:
        """URL path of one object."""
        return f"{cls.collection_path(namespace, version=version)}/{name}"


def find_condition(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """The condition of that type, if present."""
    for condition in conditions:  # no generator: this is asked hundreds of times for each Job
        if condition.type == kind:
            return condition
    return None


def is_true(conditions: Sequence[Condition], kind: str) -> bool:
    """Whether the condition of that type is present with status True."""
    for condition in conditions:
        if condition.type == kind:
            return condition.status == "True"
    return False


def tolerating_nulls(decode: Callable[[bytes | msgspec.Raw], T]) -> Callable[[bytes | msgspec.Raw], T]:
    """A decoder to which a null means an absent field, as in Kubernetes, wherever its struct would not take one.

    The API server leaves nulls where a schema keeps unknown fields, as in the pod template of a Workload. Costs nothing
    as long as there are none. Raises msgspec.ValidationError.
    """

    def tolerant(data: bytes | msgspec.Raw) -> T:
        try:
            return decode(data)
        except msgspec.ValidationError:
            raw = bytes(data)
            if b"null" not in raw:
                raise
            try:
                return decode(orjson.dumps(without_nulls(orjson.loads(raw))))
            except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError) as error:
                raise msgspec.ValidationError(str(error)) from None

    return tolerant


def without_nulls(value: Any) -> Any:
    """A plain value without the members that are null, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def to_plain(value: Any) -> Any:
    """A struct (or a tree of them) as the dicts and lists that its JSON would give."""
    return msgspec.to_builtins(value)
