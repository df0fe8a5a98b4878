"""Reads manifests: YAML text in, objects out."""

from typing import Any

import yaml

# The parser that PyYAML has in C takes a tenth of the time: CRDs are hundreds of kilobytes.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a YAML text in order, without empty documents."""
    return [document for document in yaml.load_all(text, Loader=_LOADER) if document]
