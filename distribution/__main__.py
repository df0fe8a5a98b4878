"""`python -m distribution VERSION`: writes the files of a release into a directory, with their checksums.

Wheel and sdist, the packaged chart and its icon, install.yaml, the one-file kubectl plug-in, its krew manifest and the
SBOM. No address is in the tree: the files of a release are told theirs. Nothing is uploaded:
.github/workflows/release.yaml does that with these files.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from distribution import krew, plugin
from testbed import build

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "turnstile"
NAMESPACE = "turnstile-system"
ICON = "icon.svg"
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
    parser.add_argument("--url", default="", help="where the files will be found, for krew and the icon of the chart")
    parser.add_argument("--homepage", default="", help="where people read about Turnstile; by default the URL")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--only-plugin", action="store_true", help="make only the wheel and the one-file plug-in of it")
    parser.add_argument(
        "--dry-run", action="store_true", help="name an image and a URL that do not exist, if none is given"
    )
    given = parser.parse_args()
    if wrong := disagreeing(given.version):
        sys.exit("error: not version " + given.version + ": " + ", ".join(f"{file} has {has}" for file, has in wrong))
    if not (given.dry_run or given.only_plugin) and not (given.image and given.url):
        sys.exit("error: give IMAGE=REGISTRY/turnstile and URL=https://..., or DRY_RUN=1")
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        if old.is_file():
            old.unlink()
    url: str = given.url or "https://releases.invalid"
    if given.only_plugin:
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out))
        plugin.write(out, given.version, next(out.glob("*.whl")))
    else:
        make(given.version, given.image or NOWHERE, out, url=url, homepage=given.homepage or url)
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size:>10}  {file.relative_to(out)}")


def disagreeing(version: str) -> list[tuple[str, str]]:
    """The files that name another version, with the one that they name."""
    found = []
    for file, pattern in VERSIONS.items():
        named = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
        found += [(file, each) for each in named if each != version]
    return found


def make(version: str, image: str, out: Path, *, url: str, homepage: str) -> None:
    """Write all files of a release."""
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel", "--directory", str(out))
    helm = str(build.ensure()["helm"])
    package(helm, out, url=url, homepage=homepage)
    (out / "install.yaml").write_text(manifests(helm, image))
    plugin.write(out, version, next(out.glob("*.whl")))
    krew.write(out, version, url=url, homepage=homepage)
    sbom = [uv(), "export", "--quiet", "--frozen", "--offline", "--no-default-groups"]
    sbom += ["--extra", "server", "--extra", "otel"]
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


def package(helm: str, out: Path, *, url: str, homepage: str) -> None:
    """The chart with the addresses that only a release has, and its icon beside it."""
    shutil.copyfile(CHART / ICON, out / ICON)
    addresses = {"home": homepage, "sources": [homepage], "icon": f"{url}/{ICON}"}
    with tempfile.TemporaryDirectory() as directory:
        chart = Path(directory, CHART.name)
        shutil.copytree(CHART, chart)
        with (chart / "Chart.yaml").open("a") as file:
            file.write(yaml.safe_dump(addresses))
        run(helm, "package", str(chart), "--destination", str(out))


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
