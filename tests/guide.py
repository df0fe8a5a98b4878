"""The example of docs/guides/new-kind.md: the files that it tells contributors to write."""

import re
from typing import Any, Final

from tests.documents import ROOT
from turnstile.jobs.integration import Integration

GUIDE: Final = ROOT / "docs" / "guides" / "new-kind.md"
_FILES: Final = re.compile(r"^`(\S+/flinkbatch\.py)`.*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """The text of each file, by its path."""
    return dict(_FILES.findall(GUIDE.read_text()))


def flink_batches() -> Integration[Any]:
    """The kind, which is not one of Turnstile's."""
    module: dict[str, Any] = {"__name__": "tests.flinkbatch"}
    exec(files()["app/turnstile/jobs/kinds/flinkbatch.py"], module)
    found: Integration[Any] = module["FlinkBatches"]()
    return found
