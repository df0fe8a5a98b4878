"""The chart's fixtures, for what reads rendered manifests."""

from tests.unit.chart.conftest import helm, render

__all__ = ["helm", "render"]
