"""The JSON schema of the configuration file, for editors: `python -m turnstile.api.config.schema FILE` writes it.

An editor names unknown fields and wrong types while a file is written. `turnstile config check` knows more: which
values go together, and what is not built.
"""

import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from turnstile.api.config.v1beta2 import Configuration

VERSION: Final = "config.kueue.x-k8s.io/v1beta2"


def schema() -> dict[str, Any]:
    """The schema of a file of version v1beta2, as people write it: durations are texts such as 15s."""
    found = Configuration.model_json_schema(mode="serialization")
    found["properties"] |= {"apiVersion": {"const": VERSION}, "kind": {"const": "Configuration"}}
    found["required"] = ["apiVersion", "kind"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_untitled(found)}


def _untitled(part: Any) -> Any:
    """Without titles, which only repeat the names of fields."""
    if isinstance(part, dict):
        return {key: _untitled(value) for key, value in part.items() if key != "title" or not isinstance(value, str)}
    return [_untitled(each) for each in part] if isinstance(part, list) else part


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(msgspec.json.format(msgspec.json.encode(schema())) + b"\n")
