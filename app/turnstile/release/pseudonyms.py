"""Stable pseudonyms for the names of other tenants, wherever they stand in a document. Pure.

A name is replaced as a whole word in texts, and never in the keys of objects. The same name has the same pseudonym in
all bundles of one cluster, which share a salt that is not in them.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Any, Final

_WORD: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PLAIN: Final = frozenset(("true", "false", "default", "main", "cpu", "memory", "pods"))
"""Words of Kubernetes that name nobody, also where a tenant uses them as a name."""


class Pseudonyms:
    """The names to be replaced. `kept` are names that are shown: of the tenant who reports, and of the cluster."""

    def __init__(self, salt: str, *, kept: Iterable[str] = ()) -> None:
        self._salt = salt.encode()
        self._kept = frozenset(kept) | _PLAIN
        self._known: dict[str, str] = {}

    def add(self, prefix: str, names: Iterable[str]) -> None:
        """Replace these names; a name that was added before keeps its pseudonym."""
        for name in names:
            if name and name not in self._kept and name not in self._known:
                digest = hmac.digest(self._salt, name.encode(), hashlib.sha256).hex()
                self._known[name] = f"{prefix}-{digest[:10]}"

    def __len__(self) -> int:
        return len(self._known)

    def text(self, text: str) -> str:
        """A text with the names replaced."""
        if not self._known:
            return text
        known = self._known
        return _WORD.sub(lambda word: known.get(word[0], word[0]), text)

    def of(self, value: Any) -> Any:
        """A document with the names replaced in all its texts."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {key: self.of(each) for key, each in value.items()}
            case list() | tuple():
                return [self.of(each) for each in value]
            case _:
                return value
