"""The base of every section of a configuration file, so that all are read alike. Must never know a section."""

from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A mapping of the file: unknown fields and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """As it would stand in a file, without what is not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def raw(self) -> msgspec.Raw:
        """As it stands in an error: compact JSON in the order of the fields."""
        return msgspec.Raw(msgspec.json.encode(self.plain()))
