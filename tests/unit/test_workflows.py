"""The workflow files of the forge: their linter finds nothing, and what they run is there."""

import re
import shutil
import subprocess

import pytest

from tests.documents import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def test_actionlint_finds_nothing() -> None:
    """Expressions, permissions, and the names of what later jobs need."""
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("actionlint is not installed (go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7)")
    answer = subprocess.run([actionlint, *map(str, WORKFLOWS)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_targets_that_workflows_make_exist() -> None:
    """And so does the script of continuous integration."""
    text = "\n".join(each.read_text() for each in WORKFLOWS)
    targets = set(re.findall(r"run: make ([\w-]+)", text))
    assert targets
    makefile = (ROOT / "Makefile").read_text()
    assert not [target for target in targets if f"\n{target}:" not in makefile]
    assert "bash .ci/run" in text
