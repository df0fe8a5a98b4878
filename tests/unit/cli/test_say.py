"""Everything that the command line prints goes one way, on which control characters are escaped."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.documents import ROOT
from turnstile.cli.say import escaped

ALLOWED = {
    ("say.py", "typer.echo"),
    ("progress.py", "sys.stderr.write"),  # its own escapes, around an escaped text
    ("bundle.py", "sys.stdout.buffer.write"),  # an archive
    ("podlogs.py", "sys.stdout.buffer.write"),  # logs, escaped for a terminal
}
WAYS_OUT = ("typer.echo", "typer.secho", "click.echo", "print", "sys.stdout.write", "sys.stderr.write")
BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 8)
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("job \x1b[31mred\x1b[0m", "job \\u001b[31mred\\u001b[0m"),
        ("\x9b2J\x07\r\x7f", "\\u009b2J\\u0007\\u000d\\u007f"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("a\u200bb\u2066c\u2028d", "a\\u200bb\\u2066c\\u2028d"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("\ud83d alone", "\\ud83d alone"),
        ("two\nlines\tand a tab: größer, 日本, 😀", "two\nlines\tand a tab: größer, 日本, 😀"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    """Those that move the cursor, colour, hide or turn text; nothing else."""
    assert escaped(text) == shown


def test_json_stays_what_it_was() -> None:
    """A program that reads it gets the same texts."""
    value = {"message": "\x9b2J \u202e \x7f \U000e0041 ok"}
    assert json.loads(escaped(json.dumps(value, ensure_ascii=False))) == value


def test_there_is_one_way_out() -> None:
    """No module of the command line prints by itself."""
    found = set()
    for path in (ROOT / "app" / "turnstile" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (*WAYS_OUT, "sys.stdout.buffer.write"):
                found.add((path.name, ast.unparse(node.func)))
    assert found - ALLOWED == set()


def turnstile(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command with at most 400 MB of address space beyond what it needs to start."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({2 << 30}, {2 << 30}))"
    run = f"{limit}; from turnstile.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", run, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_manifest_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    """Its names and queues are printed as they are spelled in JSON."""
    file = tmp_path / "job.json"
    meta = {"name": "a\x1b[2Jb", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "q\u202e"}}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1\x9b"}}}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
    other = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "main"}}
    others = [{**other, "metadata": {"name": "main", "namespace": "team"}}, job]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": others}))
    done = turnstile("lint", "-f", str(file))
    assert "\\u001b[2J" in done.stdout + done.stderr
    assert escaped(done.stdout + done.stderr) == done.stdout + done.stderr


@pytest.mark.parametrize("command", [("lint", "-f"), ("preflight", "-f")])
def test_aliases_are_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Nine lines of YAML that stand for a hundred million values are an error of one line."""
    file = tmp_path / "bomb.yaml"
    file.write_text(f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: a}}\nspec:\n{indent(BILLION, '  ')}")
    done = turnstile(*command, str(file))
    assert done.returncode == 2
    assert "has an alias of YAML" in done.stderr
