"""Kueue's scheduler harness: the runner that creates and finishes Workloads, and Kueue's own program for it.

`minimalkueue` is Kueue's controllers and scheduler without webhooks and job kinds. It holds itself to 50 requests a
second, and a release of Kueue to 300, so the source is edited to the limit of a release. The runner is edited to
give the program time to start: it takes queues that no program has seen yet for empty ones, and ends. This version is
newer than the Kueue that the test bed moves over from: the harness of v0.15 stores v1beta1, which loses the cohorts of
its queues.
"""

from pathlib import Path
from typing import Final

from testbed.build import Carried, Edit, Module, Tool

VERSION: Final = "v0.17.0"
"""As go.mod pins it."""
RUNNER: Final = "runner"
MINIMAL: Final = "minimalkueue"
CRDS: Final = "crds"
"""The carried folder with Kueue's CRDs."""
CONFIGS: Final = "configs"
"""The carried folder with the shapes that Kueue measures itself with."""
_MODULE: Final = "sigs.k8s.io/kueue"
_SCHEDULER: Final = "test/performance/scheduler"
_MAIN: Final = f"{_SCHEDULER}/{MINIMAL}/main.go"
HEAD_START: Final = "HEAD_START"
"""The environment variable that says how long the runner waits before it creates the first object."""
_FIRST_OBJECT: Final = "generationDoneCh := make(chan struct{})"
_HEAD_START: Final = (
    f'if wait, err := time.ParseDuration(os.Getenv("{HEAD_START}")); err == nil {{\n\t\ttime.Sleep(wait)\n\t}}'
)
_CRDS_PATH: Final = "CRDDirectoryPaths:     []string{*crdsPath},"
_PATIENCE: Final = "CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: 2 * time.Minute},"
"""On a busy machine the API server takes longer than the ten seconds that the runner gives it to serve the CRDs."""

HARNESS: Final = Module(
    Path(__file__).parent,
    tuple(Tool(name, f"{_MODULE}/{_SCHEDULER}/{name}") for name in (RUNNER, MINIMAL)),
    carried=(
        Carried(CRDS, _MODULE, "config/components/crd/bases"),
        Carried(CONFIGS, _MODULE, f"{_SCHEDULER}/configs"),
    ),
    edits=(
        Edit(_MODULE, _MAIN, "kubeConfig.QPS = 50", "kubeConfig.QPS = 300"),
        Edit(_MODULE, _MAIN, "kubeConfig.Burst = 100", "kubeConfig.Burst = 500"),
        Edit(_MODULE, f"{_SCHEDULER}/{RUNNER}/main.go", _FIRST_OBJECT, f"{_HEAD_START}\n\t{_FIRST_OBJECT}"),
        Edit(_MODULE, f"{_SCHEDULER}/{RUNNER}/main.go", _CRDS_PATH, f"{_CRDS_PATH}\n{_PATIENCE}"),
    ),
)
