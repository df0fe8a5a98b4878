"""`python -m tests.versions`: what depends on the release of Kubernetes, on the oldest supported one and the newest.

Each release has a run of pytest of its own, one after the other: policies and their CEL, definitions and their
conversion, the chart, installing and leaving, and jobs from their creation to their end.
"""

import os
import subprocess
import sys
import time
from typing import Final

from testbed import build

MODULES: Final = (
    "testbed/test_release.py",
    *(
        f"cluster/test_{name}.py"
        for name in (
            "chart", "chart_roles", "check", "conversion", "crds", "crds_apply", "crds_rules", "deployments",
            "gates_and_stops", "managed_namespaces", "partial_admission", "pod_groups", "pod_policies", "pod_requests",
            "preemption", "preflight", "queued_policy", "quota", "reclaim", "stateful_sets", "tutorial", "uninstall",
            "visibility", "webhook_reviews",
        )
    ),
)  # fmt: skip
"""Modules below tests/."""


def at_least(minor: int) -> bool:
    """Whether the bed's Kubernetes is 1.`minor` or newer."""
    return int(build.kubernetes().split(".")[1]) >= minor


def main() -> int:
    """Run them; further arguments are pytest's. Returns 1 if a run failed."""
    failed = 0
    for release in (*build.OTHERS, build.NEWEST.rpartition(".")[0]):
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *(f"tests/{module}" for module in MODULES), *sys.argv[1:]]
        ended = subprocess.run(command, env={**os.environ, build.ASKED_FOR: release}, check=False)
        failed = failed or ended.returncode
        said = "passed" if not ended.returncode else "FAILED"
        print(f"Kubernetes {release}: {said} in {time.monotonic() - began:.0f} s", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
