"""Renders the chart with the test bed's helm: no cluster is needed."""

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed import build
from testbed.chart import with_image
from testbed.manifests import documents

CHART = Path(__file__).parents[3] / "charts" / "turnstile"
NAMESPACE = "turnstile-system"

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


@pytest.fixture(scope="session")
def helm() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs helm, once for the same arguments and the same files; the answer tells how it went."""
    program = build.ensure()["helm"]

    @functools.cache
    def ran(arguments: tuple[str, ...], _files: tuple[bytes, ...]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        files = (Path(argument) for argument in arguments)
        arguments = with_image(arguments)
        return ran(arguments, tuple(file.read_bytes() for file in files if file.is_file()))

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., "subprocess.CompletedProcess[str]"]) -> Render:
    """`render("--set", "webhook.replicas=3", release="x")`: what the chart would install, without CRDs, and without the
    hook that `helm uninstall` runs (`test_uninstall_hook.py`)."""
    options = ("--namespace", NAMESPACE, "--api-versions", "monitoring.coreos.com/v1", "--no-hooks")

    def rendered(*arguments: str, release: str = "turnstile") -> list[Manifest]:
        answer = helm("template", release, str(CHART), *options, *arguments)
        assert answer.returncode == 0, answer.stderr
        return documents(answer.stdout)

    return rendered
