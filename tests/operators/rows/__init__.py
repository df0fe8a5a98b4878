"""The rows of the table of kinds: each module of this package adds its own, in `ROWS`."""

from importlib import import_module
from pkgutil import iter_modules

from tests.operators.rows.row import Attack, Row

ROWS: tuple[Row, ...] = tuple(
    row
    for module in sorted(found.name for found in iter_modules(__path__) if found.name != "row")
    for row in import_module(f"{__name__}.{module}").ROWS
)

__all__ = ["ROWS", "Attack", "Row"]
