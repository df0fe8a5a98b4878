"""A job that was submitted: the name by which the API server knows it. A value; it is asked nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job in a cluster. `uid` tells it from a later one of the same name."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """The job of an object as the API server stores it."""
        metadata = obj["metadata"]
        return cls(
            api_version=obj["apiVersion"],
            kind=obj["kind"],
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata["uid"],
        )

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"
