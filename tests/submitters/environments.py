"""Environments with other people's programs, which Turnstile never depends on: one for each file of `requirements`.

An environment is made once and kept outside the tree, under the hash of its pins and of the Python that it is for.
`requirements/NAME.in` says what is wanted, `requirements/NAME.txt` pins all that this needs:

    uv pip compile --python-version 3.11 tests/submitters/requirements/NAME.in -o tests/submitters/requirements/NAME.txt
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from testbed.build import kept

PINS: Final = Path(__file__).with_name("requirements")
_MADE: Final = ".made"
"""The file whose presence says that an environment is complete."""


def ensure(name: str) -> Path:
    """The folder of programs of an environment, which is made if it was not."""
    pins = PINS / f"{name}.txt"
    place = kept() / "submitters" / f"{name}-{_digest(pins)}"
    place.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / _MADE).exists():
            began = time.monotonic()
            print(f"making the environment {name} in {place}", file=sys.stderr, flush=True)
            _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(place))
            _uv("pip", "install", "--quiet", "--python", str(place / "bin" / "python"), "--requirement", str(pins))
            (place / _MADE).touch()
            print(f"made {name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return place / "bin"


def versions(name: str) -> dict[str, str]:
    """The pinned version of each package of an environment."""
    lines = (line.partition(" ")[0] for line in (PINS / f"{name}.txt").read_text().splitlines())
    return dict(line.split("==") for line in lines if "==" in line)


def _digest(pins: Path) -> str:
    python = f"{sys.version}{sys.base_prefix}"
    return hashlib.sha256(pins.read_bytes() + python.encode()).hexdigest()[:16]


def _uv(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv") or "uv"
    done = subprocess.run([uv, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"uv {' '.join(arguments)}\n{done.stderr}"
