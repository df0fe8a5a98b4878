"""`python -m distribution.krew VERSION DIRECTORY --url URL`: packs the one-file plug-ins there for krew.

krew chooses by operating system and processor only, and a plug-in is for one version of Python besides. So each archive
has the plug-ins of every version that the directory has for its platform, and a program that starts the one that suits.
"""

import argparse
import gzip
import hashlib
import io
import re
import tarfile
from pathlib import Path
from typing import Final

import yaml

ROOT = Path(__file__).resolve().parents[1]
MANIFEST: Final = "turnstile.yaml"
"""krew wants the manifest named after the plug-in."""
PROGRAM: Final = "kubectl-turnstile"
CHOOSER = Path(__file__).with_name("chooser.py")
NAMES: Final = re.compile(r"kubectl-turnstile-(.+)-(linux|darwin|windows)-(amd64|arm64)-python(\d+\.\d+)\.pyz")


def main() -> None:
    """Write archives and manifest into the directory that has the plug-ins."""
    parser = argparse.ArgumentParser(prog="python -m distribution.krew", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--url", required=True, help="where the archives will be found")
    parser.add_argument("--homepage", default="", help="where people read about Turnstile; by default the URL")
    given = parser.parse_args()
    write(given.directory, given.version, url=given.url, homepage=given.homepage or given.url)


def write(directory: Path, version: str, *, url: str, homepage: str) -> None:
    """Write an archive for each platform that the directory has plug-ins of, and the manifest of all."""
    found: dict[tuple[str, str], dict[str, Path]] = {}
    for file in sorted(directory.glob("*.pyz")):
        name = NAMES.fullmatch(file.name)
        if name is not None and name[1] == version:
            found.setdefault((name[2], name[3]), {})[name[4]] = file
    platforms: list[dict[str, object]] = []
    for (system, machine), of_version in sorted(found.items()):
        archive = directory / f"kubectl-turnstile-{version}-{system}-{machine}.tar.gz"
        pack(archive, of_version)
        platforms.append({
            "selector": {"matchLabels": {"os": system, "arch": machine}},
            "uri": f"{url}/{archive.name}",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "bin": PROGRAM,
        })  # fmt: skip
    pythons = sorted({version for of_version in found.values() for version in of_version}, key=_number)
    text = yaml.safe_dump(manifest(version, homepage, platforms, pythons), sort_keys=False)
    (directory / MANIFEST).write_text(text)


def pack(archive: Path, of_version: dict[str, Path]) -> None:
    """Write the program that chooses, the plug-in of each version of Python, and the licence. The same files make the
    same archive."""
    members = [(PROGRAM, CHOOSER.read_bytes(), 0o755), ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644)]
    members += [(f"python{version}.pyz", file.read_bytes(), 0o755) for version, file in of_version.items()]
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as made,
    ):
        for name, content, mode in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            made.addfile(member, io.BytesIO(content))


def manifest(version: str, homepage: str, platforms: list[dict[str, object]], pythons: list[str]) -> dict[str, object]:
    """The manifest of the plug-in."""
    spec = {
        "version": f"v{version}",
        "homepage": homepage,
        "shortDescription": "Work with queues, quotas and waiting jobs",
        "description": "Lists queues and Workloads, shows quota and usage live, explains why a job waits\n"
        "and when it will start, and creates, stops and deletes queues.\n",
        "caveats": f"Needs Python {' or '.join(pythons)} in the PATH.\n",
        "platforms": platforms,
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "turnstile"},
        "spec": spec,
    }


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    main()
