"""The words in which a struct says what the API server has to check: one line a field, beside the field.

`Annotated[type, Field("what it means", max_length=63)]` is read by `turnstile.api.crd` and ignored by the decoder: an
object that was stored under older rules still decodes, and the hot path pays nothing. Must never validate anything
itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec

T = TypeVar("T")

LABEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
NODE_KEY_PATTERN: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that must hold, and what the API server says when it does not."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`. Those with a priority above 0 show with `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "boolean", "date"] = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Field:
    """The schema of one field or item. All limits are inclusive; None says nothing.

    `required` is for a field that has a default in the struct and must still stand on the wire: give it `always(...)`,
    so that the encoder never leaves it out. `defaulted` puts the struct's own default into the schema, `default` some
    other. `schema` replaces what the type alone would give.
    """

    doc: str | None = None
    required: bool | None = None
    defaulted: bool | None = None
    default: Any = None
    pattern: str | None = None
    format: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    list_type: Literal["atomic", "set", "map"] | None = None
    map_keys: tuple[str, ...] | None = None
    map_type: Literal["atomic", "granular"] | None = None
    rules: tuple[Rule, ...] | None = None
    schema: dict[str, Any] | None = None

    def over(self, inner: "Field") -> "Field":
        """This field's words, and where it is silent those of the type it wraps."""
        return Field(
            *(mine if (mine := getattr(self, f.name)) is not None else getattr(inner, f.name) for f in fields(Field))
        )

    def without(self, words: tuple[str, ...]) -> "Field":
        """This field, silent about these words."""
        return replace(self, **dict.fromkeys(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The differences of an older version in one struct.

    Fields go by their JSON names in the stored version. `silent` names the words of `Field` that the older version does
    not say of a field, `said` what it says instead or besides. `other` gives a field another type, or adds one.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    silent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    said: Mapping[str, Field] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] | None = None
    columns: tuple[Column, ...] | None = None
    selectable_fields: tuple[str, ...] | None = None


Views = Mapping[type[msgspec.Struct], View]
"""An older version: how it sees each struct of which it says something else."""


class Always:
    """A default that the encoder writes out, because the API server requires the field."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory

    def __call__(self) -> Any:
        """A new default, as msgspec asks for it."""
        return self.factory()


def always(factory: Callable[[], T]) -> T:
    """Default of a field that stands on the wire even when it has it: `omit_defaults` would leave the field out."""
    return cast("T", msgspec.field(default_factory=Always(factory)))


Subdomain = Annotated[str, Field(pattern=SUBDOMAIN_PATTERN, max_length=253)]
"""A DNS-1123 subdomain: the name of most objects."""
Label = Annotated[str, Field(pattern=LABEL_PATTERN, max_length=63)]
"""A DNS-1123 label: the name of a pod set."""
Text63 = Annotated[str, Field(max_length=63)]
Text256 = Annotated[str, Field(max_length=256)]
Text317 = Annotated[str, Field(max_length=317)]
Int64 = Annotated[int, Field(format="int64")]
"""An int is int32 in a schema unless it says this."""
Time = Annotated[str, Field(format="date-time")]
"""RFC 3339."""
