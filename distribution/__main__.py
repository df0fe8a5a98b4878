"""`python -m distribution VERSION`: writes the files of a release into a directory, with their checksums.

Wheel and sdist, the packaged chart, install.yaml, the one-file kubectl plug-in with its krew manifest, and the SBOM.
Nothing is uploaded: .github/workflows/release.yaml does that with these files.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from distribution import plugin
from testbed import build

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "turnstile"
NAMESPACE = "turnstile-system"
NOWHERE = "registry.invalid/turnstile"
"""The image that a dry run names: no registry has this name."""
VERSIONS = {
    "app/turnstile/__init__.py": r'^__version__ = "(.+)"$',
    "pyproject.toml": r'^version = "(.+)"$',
    "charts/turnstile/Chart.yaml": r"^(?:version|appVersion): (.+)$",
}


def main() -> None:
    """Make the files, and print each with its size."""
    parser = argparse.ArgumentParser(prog="python -m distribution", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--image", default="", help="where the image was pushed, without the tag")
    parser.add_argument("--url", default="", help="where the files will be found, for krew")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--dry-run", action="store_true", help="name an image and a URL that do not exist, if none is given"
    )
    given = parser.parse_args()
    if wrong := disagreeing(given.version):
        sys.exit("error: not version " + given.version + ": " + ", ".join(f"{file} has {has}" for file, has in wrong))
    if not given.dry_run and not (given.image and given.url):
        sys.exit("error: give IMAGE=REGISTRY/turnstile and URL=https://..., or DRY_RUN=1")
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        if old.is_file():
            old.unlink()
    make(given.version, given.image or NOWHERE, given.url or "https://releases.invalid", out)
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size:>10}  {file.relative_to(out)}")


def disagreeing(version: str) -> list[tuple[str, str]]:
    """The files that name another version, with the one that they name."""
    found = []
    for file, pattern in VERSIONS.items():
        named = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
        found += [(file, each) for each in named if each != version]
    return found


def make(version: str, image: str, url: str, out: Path) -> None:
    """Write all files of a release."""
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel", "--directory", str(out))
    helm = str(build.ensure()["helm"])
    run(helm, "package", str(CHART), "--destination", str(out))
    (out / "install.yaml").write_text(manifests(helm, image))
    tool = plugin.write(out, version, next(out.glob("*.whl")))
    (out / "turnstile.krew.yaml").write_text(krew(version, url, [packed(tool)]))
    sbom = [uv(), "export", "--quiet", "--frozen", "--offline", "--no-default-groups", "--extra", "server"]
    run(
        *sbom,
        "--format",
        "cyclonedx1.5",
        "--preview-features",
        "sbom-export",
        "--output-file",
        str(out / "sbom.cdx.json"),
    )
    sums = [f"{digest(file)}  {file.name}" for file in sorted(out.iterdir()) if file.is_file()]
    (out / "SHA256SUMS").write_text("\n".join(sums) + "\n")


def manifests(helm: str, image: str) -> str:
    """All that the chart makes with its default values, for those who have no Helm: its namespace and its definitions
    first, and no hooks."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    options = ["--namespace", NAMESPACE, "--no-hooks", "--include-crds", "--set", f"image.repository={image}"]
    return yaml.safe_dump(namespace) + run(helm, "template", "turnstile", str(CHART), *options)


def packed(tool: Path) -> tuple[Mapping[str, str], Path]:
    """The plug-in as krew takes it, with the operating system and processor that it is for."""
    system, machine = tool.stem.split("-")[-3:-1]
    archive = tool.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz") as made:
        for file, name in ((tool, "kubectl-turnstile"), (ROOT / "LICENSE", "LICENSE")):
            made.add(file, name)
    return {"os": system, "arch": machine}, archive


def krew(version: str, url: str, archives: list[tuple[Mapping[str, str], Path]]) -> str:
    """The manifest of the plug-in for krew."""
    platforms = [
        {
            "selector": {"matchLabels": dict(labels)},
            "uri": f"{url}/{archive.name}",
            "sha256": digest(archive),
            "bin": "kubectl-turnstile",
        }
        for labels, archive in archives
    ]
    spec = {
        "version": f"v{version}",
        "homepage": url,
        "shortDescription": "Work with queues, quotas and waiting jobs",
        "description": "Lists queues and Workloads, shows quota and usage live, explains why a job waits\n"
        "and when it will start, and creates, stops and deletes queues.",
        "caveats": "Needs the version of Python that its file is named after.",
        "platforms": platforms,
    }
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "turnstile"},
    }
    return yaml.safe_dump({**manifest, "spec": spec}, sort_keys=False)


def digest(file: Path) -> str:
    """Its SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def uv() -> str:
    """The path of uv, of this environment or of the machine."""
    own = Path(sys.executable).with_name("uv")
    return str(own) if own.exists() else shutil.which("uv") or "uv"


def run(*command: str) -> str:
    """What a program prints; its complaint ends this one."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 -- our own words
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
