"""Makes `kubectl-turnstile` as one file: a zip of Turnstile and the packages that its commands need.

Packages with compiled parts cannot be imported from a zip, so the file unpacks itself into the user's cache when it is
first started. It is for one operating system, processor and version of Python, which its name says.
"""

import platform
import stat
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT_PACKAGE = "turnstile-queue"
LEFT_OUT = ("tests/", "test/", "__pycache__/")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
TIME = (2020, 1, 1, 0, 0, 0)
"""The time of all members, so that the same packages make the same file."""
START = Path(__file__).with_name("start.py")


def write(out: Path, version: str, wheel: Path) -> Path:
    """Write the file; Turnstile itself comes from the wheel, all else from this environment."""
    system, machine = platform.system().lower(), MACHINES.get(platform.machine(), platform.machine())
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    made = out / f"kubectl-turnstile-{version}-{system}-{machine}-{python}.pyz"
    with made.open("wb") as file:
        file.write(f"#!/usr/bin/env {python}\n".encode())
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            add(archive, "__main__.py", START.read_bytes())
            add(archive, "python", python.removeprefix("python").encode())
            with zipfile.ZipFile(wheel) as own:
                for name in sorted(own.namelist()):
                    add(archive, f"site/{name}", own.read(name))
            for name in sorted(packages(ROOT_PACKAGE) - {ROOT_PACKAGE}):
                for path, content in files(name):
                    add(archive, f"site/{path}", content)
    made.chmod(made.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return made


def add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a member that does not tell when it was made."""
    member = zipfile.ZipInfo(name, TIME)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    archive.writestr(member, content)


def packages(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """A package and all that it needs here."""
    found: set[str] = set()
    left = [(name, extras)]
    while left:
        each, wanted = left.pop()
        if each in found:
            continue
        found.add(each)
        for text in distribution(each).requires or ():
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in ("", *sorted(wanted))]
            if requirement.marker is None or any(requirement.marker.evaluate(one) for one in environments):
                left.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return found


def files(name: str) -> Iterator[tuple[str, bytes]]:
    """The files of an installed package but for scripts, tests and bytecode, in order."""
    for path in sorted(distribution(name).files or (), key=str):
        text = path.as_posix()
        if text.startswith("..") or any(part in f"{text}/" for part in LEFT_OUT) or text.endswith(".pyc"):
            continue
        yield text, Path(str(path.locate())).read_bytes()
