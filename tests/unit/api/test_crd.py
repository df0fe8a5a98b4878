"""CRDs follow from the structs."""

from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
import yaml

from turnstile.api import crd
from turnstile.api.kinds import KINDS, Definition
from turnstile.api.meta import Kind, Object
from turnstile.api.schema import Column, Field, Rule, Subdomain, always

CHART = Path(__file__).parents[3] / "charts" / "turnstile" / "crds"


class Part(Object):
    """A part of a thing."""

    name: str
    size: Annotated[int, Field(required=True, minimum=1)] = always(int)


_PARTS = Field("Its parts.", max_items=3, list_type="map", map_keys=("name",))


class Spec(Object):
    """What is wanted."""

    RULES: ClassVar = (Rule("has(self.parts)", "parts are needed"),)

    parts: Annotated[list[Part], _PARTS] = []  # noqa: RUF012
    home_of: Annotated[Subdomain | None, Field("Where it lives.")] = None
    count: Annotated[int, Field(defaulted=True, minimum=0)] = 1
    labels: dict[str, str] = {}  # noqa: RUF012


class Thing(Kind):
    """A thing.

    More about it, that no schema needs.
    """

    GROUP: ClassVar = "example.com"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Thing"
    PLURAL: ClassVar = "things"
    NAMESPACED: ClassVar = True
    SHORT_NAMES: ClassVar = ("th",)
    COLUMNS: ClassVar = (Column("Home", ".spec.homeOf"), Column("Count", ".spec.count", type="integer", priority=1))

    spec: Spec = msgspec.field(default_factory=Spec)


def schema_of(struct: type[Object]) -> dict[str, Any]:
    """The schema of a kind's `spec` that is this struct."""

    class Holder(Thing):
        """A thing."""

        spec: struct = msgspec.field(default_factory=struct)  # type: ignore[valid-type]

    schema: dict[str, Any] = crd.version(Holder)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


class TestSchema:
    """One line a field says all of it."""

    def test_spec(self) -> None:
        """Types, JSON names, limits, defaults, required fields and rules."""
        assert schema_of(Spec) == {
            "type": "object",
            "description": "What is wanted.",
            "properties": {
                "parts": {
                    "type": "array",
                    "description": "Its parts.",
                    "items": {
                        "type": "object",
                        "description": "A part of a thing.",
                        "properties": {
                            "name": {"type": "string"},
                            "size": {"type": "integer", "format": "int32", "minimum": 1},
                        },
                        "required": ["name", "size"],
                    },
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "homeOf": {
                    "type": "string",
                    "description": "Where it lives.",
                    "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                    "maxLength": 253,
                },
                "count": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "x-kubernetes-validations": [{"rule": "has(self.parts)", "message": "parts are needed"}],
        }

    def test_kind(self) -> None:
        """Names, scope and columns come from the kind."""
        spec = crd.definition(Definition(Thing, older=()))["spec"]
        assert spec["names"] == {
            "kind": "Thing",
            "listKind": "ThingList",
            "plural": "things",
            "singular": "thing",
            "shortNames": ["th"],
        }
        assert (spec["group"], spec["scope"]) == ("example.com", "Namespaced")
        (version,) = spec["versions"]
        assert version["additionalPrinterColumns"] == [
            {"name": "Home", "type": "string", "jsonPath": ".spec.homeOf"},
            {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1},
        ]
        assert "subresources" not in version

    def test_dropped_required_field(self) -> None:
        """A required field that the encoder would leave out is a mistake that shows at once."""

        class Wrong(Object):
            """Wrong."""

            count: Annotated[int, Field(required=True)] = 0

        with pytest.raises(TypeError, match=r"Wrong\.count"):
            schema_of(Wrong)

    def test_unknown_type(self) -> None:
        """A type that has no schema is refused."""

        class Wrong(Object):
            """Wrong."""

            raw: msgspec.Raw = msgspec.Raw(b"{}")

        with pytest.raises(TypeError, match="Field"):
            schema_of(Wrong)

    def test_decoder_does_not_check(self) -> None:
        """An object from before a limit still decodes."""
        assert msgspec.json.decode(b'{"spec": {"homeOf": "Not A Name", "count": -1}}', type=Thing).spec.count == -1


class TestEncoding:
    """What Turnstile writes satisfies what it declares."""

    def test_required_fields_are_written(self) -> None:
        """`always` puts the field on the wire even when it holds its default."""
        assert msgspec.json.encode(Part(name="a")) == b'{"name":"a","size":0}'

    @pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: kinds.stored.KIND)
    def test_defaults_may_be_left_out(self, kinds: Definition) -> None:
        """Every default that the encoder leaves out is one that the API server puts back, or that means absent."""
        empty = msgspec.to_builtins(kinds.stored(**({"value": 1} if kinds.stored.KIND.endswith("Class") else {})))
        assert set(empty) <= {"metadata", "spec", "status", "value"}
        assert empty["metadata"] == {}
        assert empty.get("spec", {}) == {}


class TestFiles:
    """The chart carries what the structs say."""

    def test_current(self, tmp_path: Path) -> None:
        """The files in the chart are what the generator writes."""
        written = {path.name: path.read_text() for path in crd.write(tmp_path)}
        assert {path.name: path.read_text() for path in CHART.glob("*.yaml")} == written

    def test_stale_file_goes(self, tmp_path: Path) -> None:
        """A generated file of a kind that is gone is removed; a file that someone wrote stays."""
        (tmp_path / "gone.yaml").write_text(crd.HEADER)
        (tmp_path / "mine.yaml").write_text("# mine\n")
        crd.write(tmp_path)
        assert not (tmp_path / "gone.yaml").exists()
        assert (tmp_path / "mine.yaml").exists()

    @pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: kinds.stored.KIND)
    def test_plain_yaml(self, kinds: Definition) -> None:
        """A file says it is generated, has no anchors and reads back as the definition."""
        text = crd.render(kinds)
        assert text.startswith(crd.HEADER)
        assert "&id" not in text
        assert yaml.safe_load(text) == crd.definition(kinds)

    def test_usage(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Without a directory it says what it wants."""
        assert crd.main([]) == 2
        assert "usage" in capsys.readouterr().err
