"""The samples of all job kinds: each module of this package adds its own, in `SAMPLES`."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from tests.unit.jobs.samples.sample import Moment, Sample

SAMPLES: Final[dict[str, Sample]] = {
    sample.framework: sample
    for module in sorted(found.name for found in iter_modules(__path__) if found.name != "sample")
    for sample in import_module(f"{__name__}.{module}").SAMPLES
}
"""By the name of the framework."""

__all__ = ["SAMPLES", "Moment", "Sample"]
