"""Turnstile: a quota keeper for shared Kubernetes clusters that speaks Kueue's API.

The package is built in floors that import one way only; `docs/architecture.md` draws them and import-linter holds them.
`from turnstile import Client` is for users' programs: `turnstile.client`, which is loaded when it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnstile.client import AsyncClient, Client, Standing, State, Submitted, container_job

__all__ = ["AsyncClient", "Client", "Standing", "State", "Submitted", "container_job"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A name of the client, which no command waits for."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("turnstile.client"), name)
    raise AttributeError(f"module 'turnstile' has no attribute {name!r}")
