"""Turnstile: a quota keeper for shared Kubernetes clusters that speaks Kueue's API.

The package is built in floors that import one way only; `docs/architecture.md` draws them and import-linter holds them.
"""

__version__ = "0.1.0"
