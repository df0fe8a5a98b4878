"""The command lines that have the commands of `kueuectl`, as an administrator runs them in a terminal."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed import ControlPlane
from testbed.peers import KUEUE

PROGRAMS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "kueuectl": lambda: [str(KUEUE.ensure()["kueuectl"])],
    "kubectl-turnstile": lambda: [str(Path(sys.executable).with_name("kubectl-turnstile"))],
}
"""What to write before the command, by the name of the program."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command line on a control plane: `command` is what goes before its arguments."""

    control_plane: ControlPlane
    command: list[str]

    def run(self, *arguments: str, text: str = "", editor: str = "false") -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with `text` as its standard input and `editor` as the user's editor."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.control_plane.kubeconfig()),
            "HOME": str(self.control_plane.directory / "home"),
            "PATH": f"{self.control_plane.tools['kubectl'].parent}:{os.environ['PATH']}",
            "KUBE_EDITOR": editor,
        }
        return subprocess.run(
            [*self.command, *arguments],
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def __call__(self, *arguments: str, text: str = "", editor: str = "false") -> str:
        """What a command that must succeed prints."""
        done = self.run(*arguments, text=text, editor=editor)
        assert done.returncode == 0, f"{' '.join(arguments)}: exit code {done.returncode}: {done.stderr}"
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """What a command that must fail complains about."""
        done = self.run(*arguments)
        assert done.returncode != 0, f"{' '.join(arguments)} succeeded: {done.stdout}"
        return done.stderr

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """The rows of a table that a command prints, by column; columns are as wide as their title says."""
        title, *rows = self(*arguments).splitlines()
        names = [each for each in title.split("  ") if each.strip()]
        starts = [title.index(each) for each in names]
        ends = [*starts[1:], None]
        return [
            {name.strip(): row[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)}
            for row in rows
        ]
