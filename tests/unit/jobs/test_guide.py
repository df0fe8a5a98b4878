"""docs/guides/new-kind.md, followed to the letter in a copy of the repository, makes a kind that keeps the contract."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import guide
from tests.documents import ROOT

NEEDED: Final = ("app", "charts", "docs", "tests", "testbed", "examples", "pyproject.toml", "Makefile")
LEFT_OUT: Final = shutil.ignore_patterns(
    "__pycache__", "*.png", "attacks", "bench", "browser", "faults", "image", "node", "peers"
)
LINE: Final = "    FlinkBatches(),\n"
REGISTRY: Final = "app/turnstile/jobs/registry.py"
IMPORT: Final = "from turnstile.jobs.kinds.flinkbatch import FlinkBatches\n"
CHOSEN: Final = "flink or every_kind or second_opinion"
TESTS: Final = (
    "tests/unit/jobs/test_contract.py",
    "tests/unit/jobs/test_pods_ready.py",
    "tests/unit/jobs/test_supports.py",
    "tests/unit/webhooks/test_every_kind.py",
    "tests/unit/webhooks/test_golden.py",
    "tests/unit/controllers/test_pods_ready_of_every_kind.py",
)


class Tree:
    """A copy of the repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in NEEDED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=LEFT_OUT)
            else:
                shutil.copy(source, root / name)

    def follow(self) -> list[str]:
        """Do what the guide says by hand; return the files that were written."""
        written = guide.files()
        for name, text in written.items():
            (self.root / name).write_text(text)
        registry = self.root / REGISTRY
        assert LINE in guide.GUIDE.read_text()
        text = registry.read_text()
        first = text.index("from turnstile.jobs.kinds")
        text = text[:first] + IMPORT + text[first:]
        registry.write_text(re.sub(r"(^_KINDS: .*\n)", lambda found: found[1] + LINE, text, flags=re.MULTILINE))
        return [REGISTRY, *written]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy, with its package and tests instead of those of the repository."""
        environment = {**os.environ, "PYTHONPATH": f"{self.root / 'app'}:{self.root}"}
        return subprocess.run(
            [sys.executable, *command], cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """The copy with the new kind, and with what `make generate` makes of it."""
    tree = Tree(tmp_path_factory.mktemp("repository"))
    assert len(tree.follow()) == 3
    for command in generated():
        done = tree.run(*command)
        assert done.returncode == 0, done.stderr
    yield tree
    shutil.rmtree(tree.root)


def generated() -> list[list[str]]:
    """The commands of `make generate` that know job kinds."""
    recipe = re.search(r"^generate:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    lines = recipe[1].replace("\\\n", " ").splitlines()
    commands = [line.strip().removeprefix("@$(PY)").split() for line in lines]
    return [each for each in commands if each[1].startswith(("turnstile.jobs.", "tests.unit.", "tests.modules"))]


def test_three_files_are_written_by_hand_and_the_rest_is_generated(tree: Tree) -> None:
    """The chart, the pages, the names of the configuration file and the reviews have the kind."""
    for name in (
        "charts/turnstile/files/kinds.yaml",
        "docs/reference/kinds.md",
        "docs/reference/modules.md",
        "app/turnstile/api/config/kinds.py",
        "tests/unit/webhooks/golden/flinkbatch.jsonl",
    ):
        assert "flinkbatch" in (tree.root / name).read_text().lower(), name


@pytest.mark.timeout(900)
def test_the_new_kind_keeps_the_contract(tree: Tree) -> None:
    """All tests of kinds run for it, without one of them being told of it."""
    done = tree.run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "flink or every_kind or second_opinion", *TESTS
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 20
