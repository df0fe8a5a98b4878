"""`python -m tests.versions`: what depends on the release of Kubernetes, on the oldest supported one and the newest.

Each release has a run of pytest of its own, both at once: policies and their CEL, definitions and their conversion, the
chart, installing and leaving, and jobs from their creation to their end.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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
    releases = (*build.OTHERS, build.NEWEST.rpartition(".")[0])
    for release in releases:  # one after the other, since a build uses all cores
        subprocess.run([sys.executable, "-m", "testbed", "build"], env=_environment(release), check=True)
    with ThreadPoolExecutor() as runs:
        return int(any(runs.map(_run, releases)))


def _run(release: str) -> int:
    """The exit code of pytest for a release, whose lines are printed with the release before them."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", *(f"tests/{module}" for module in MODULES), *sys.argv[1:]]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=_environment(release), stdout=pipe, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(f"{release}  {line}", end="", flush=True)
    said = "passed" if not run.returncode else "FAILED"
    print(f"Kubernetes {release}: {said} in {time.monotonic() - began:.0f} s", flush=True)
    return run.returncode


def _environment(release: str) -> dict[str, str]:
    return {**os.environ, build.ASKED_FOR: release}


if __name__ == "__main__":
    sys.exit(main())
