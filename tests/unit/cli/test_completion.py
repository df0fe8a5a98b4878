"""Shells complete the commands of `turnstile`, each by what `turnstile completion` prints for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent
ASKED = {
    "bash": """
source <(turnstile completion bash)
COMP_WORDS=(turnstile list work) COMP_CWORD=2
_turnstile_completion turnstile
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
compdef() { true }
_arguments() { print -r -- "$@" }
source <(turnstile completion zsh)
words=(turnstile list work) CURRENT=3
_turnstile_completion
""",
    "fish": """
turnstile completion fish | source
complete --do-complete 'turnstile list work'
""",
}
"""What a shell does when Tab is pressed after `turnstile list work`, as far as it goes without a terminal."""


@pytest.mark.parametrize("shell", ASKED)
def test_a_command_is_completed(shell: str, tmp_path: Path) -> None:
    """`list work` becomes `list workload`."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run([shell, "-c", ASKED[shell]], env=environment, capture_output=True, text=True, check=False)
    assert "workload" in done.stdout, done.stderr
    assert "clusterqueue" not in done.stdout


def test_kubectl_is_answered_in_its_own_way() -> None:
    """Completions a line, and then that they are no files."""
    command = [PROGRAMS / "kubectl_complete-turnstile", "create", "clusterqueue", "--queuing-strategy", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "BestEffortFIFO\nStrictFIFO\n:4\n"
