"""`make release` with DRY_RUN=1: every file of a release is made, and does what it is for."""

import hashlib
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import yaml

from distribution import krew
from testbed.manifests import documents
from tests.documents import ROOT
from turnstile import __version__

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]  # needs helm, which the test bed builds


def distribution(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run what `make release` runs."""
    command = [sys.executable, "-m", "distribution", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release."""
    out = tmp_path_factory.mktemp("release")
    answer = distribution(__version__, "--dry-run", "--out", str(out))
    assert answer.returncode == 0, answer.stderr
    return out


def only(made: Path, pattern: str) -> Path:
    """The one file of this pattern."""
    (found,) = made.glob(pattern)
    return found


def test_every_file_is_there_with_its_checksum(made: Path) -> None:
    """As `sha256sum --check` reads them."""
    lines = [line.split("  ") for line in (made / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in lines} == {each.name for each in made.iterdir()} - {"SHA256SUMS"}
    for digest, name in lines:
        assert hashlib.sha256((made / name).read_bytes()).hexdigest() == digest
    for pattern in ("*.whl", "turnstile_queue-*.tar.gz", f"turnstile-{__version__}.tgz", "sbom.cdx.json"):
        assert only(made, pattern)


def test_the_one_file_plug_in_works_alone(made: Path, tmp_path: Path) -> None:
    """Without an installed Turnstile; the first start unpacks it, later ones do not."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-I", str(only(made, "*.pyz"))]
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        answer = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, env=environment)
        seconds.append(time.monotonic() - began)
        assert answer.stdout == f"{__version__}\n", answer.stderr
    size = only(made, "*.pyz").stat().st_size / 2**20
    print(f"kubectl-turnstile: {size:.1f} MiB, first start {seconds[0]:.1f} s, then {seconds[1]:.1f} s")
    assert len(list((tmp_path / ".cache/kubectl-turnstile").iterdir())) == 1


def test_the_plug_in_reads_kubeconfigs_that_name_a_program(made: Path, tmp_path: Path) -> None:
    """The package for them is in it too, as users of EKS and GKE need it."""
    kubeconfig = tmp_path / "config"
    entry = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never"}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"exec": entry}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig.write_text(yaml.safe_dump(config))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}
    command = [sys.executable, "-I", str(only(made, "*.pyz")), "list", "clusterqueue"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert answer.returncode != 0
    assert "No module named" not in answer.stderr
    assert "error: kubeconfig: credentials of context 'x': " in answer.stderr


def test_install_yaml_is_the_chart_without_hooks(made: Path) -> None:
    """Its namespace is first, its definitions are in it, and no Job or Pod that only Helm would remove."""
    manifests = documents((made / "install.yaml").read_text())
    assert manifests[0] == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "turnstile-system"}}
    kinds = {each["kind"] for each in manifests}
    assert {"CustomResourceDefinition", "Deployment"} <= kinds
    assert not {"Job", "Pod"} & kinds
    images = {
        container["image"]
        for each in manifests
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    assert images == {f"registry.invalid/turnstile:{__version__}"}


def platforms(directory: Path) -> list[dict[str, object]]:
    """The platforms of the krew manifest."""
    manifest = yaml.safe_load((directory / "turnstile.yaml").read_text())
    assert manifest["metadata"]["name"] == "turnstile"
    assert manifest["spec"]["version"] == f"v{__version__}"
    found: list[dict[str, object]] = manifest["spec"]["platforms"]
    return found


def test_the_krew_manifest_is_of_the_archive(made: Path) -> None:
    """Its checksum, and the program in it."""
    (platform,) = platforms(made)
    archive = made / str(platform["uri"]).rpartition("/")[2]
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    with tarfile.open(archive) as members:
        assert members.getnames()[:2] == [platform["bin"], "LICENSE"]


def test_krew_gets_an_archive_for_each_platform_with_all_versions_of_python(made: Path, tmp_path: Path) -> None:
    """krew tells platforms apart by operating system and processor only."""
    plugin = only(made, "*.pyz")
    for name in ("linux-amd64-python3.11", "linux-amd64-python3.12", "darwin-arm64-python3.12"):
        (tmp_path / f"kubectl-turnstile-{__version__}-{name}.pyz").write_bytes(plugin.read_bytes())
    krew.write(tmp_path, __version__, url="https://releases.invalid", homepage="https://releases.invalid")
    selectors = [platform["selector"] for platform in platforms(tmp_path)]
    assert selectors == [
        {"matchLabels": {"os": "darwin", "arch": "arm64"}},
        {"matchLabels": {"os": "linux", "arch": "amd64"}},
    ]
    with tarfile.open(only(tmp_path, "*-linux-amd64.tar.gz")) as members:
        assert members.getnames() == ["kubectl-turnstile", "LICENSE", "python3.11.pyz", "python3.12.pyz"]


def test_the_plug_in_of_krew_starts_by_a_link(made: Path, tmp_path: Path) -> None:
    """As krew has it: the archive in a directory of its own, and a link to the program in the PATH."""
    (platform,) = platforms(made)
    with tarfile.open(made / str(platform["uri"]).rpartition("/")[2]) as members:
        members.extractall(tmp_path / "store", filter="data")
    link = tmp_path / "kubectl-turnstile"
    link.symlink_to(tmp_path / "store" / str(platform["bin"]))
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    answer = subprocess.run([link, "--version"], capture_output=True, text=True, check=False, env=environment)
    assert answer.stdout == f"{__version__}\n", answer.stderr
    (tmp_path / "store" / f"python{sys.version_info.major}.{sys.version_info.minor}.pyz").unlink()
    answer = subprocess.run([link, "--version"], capture_output=True, text=True, check=False, env=environment)
    assert "error: kubectl turnstile needs " in answer.stderr
    assert answer.returncode == 1


def test_the_chart_of_a_release_says_where_it_is_from(made: Path) -> None:
    """The tree promises no address; the packaged chart has those that the release was given, and the icon is a file."""
    assert not {"home", "sources", "icon"} & yaml.safe_load((ROOT / "charts/turnstile/Chart.yaml").read_text()).keys()
    with tarfile.open(only(made, f"turnstile-{__version__}.tgz")) as members:
        chart = yaml.safe_load(members.extractfile("turnstile/Chart.yaml") or b"")
        assert "turnstile/icon.svg" in members.getnames()
    home, icon = "https://releases.invalid", (made / "icon.svg").read_text()
    assert (chart["home"], chart["sources"], chart["icon"]) == (home, [home], f"{home}/icon.svg")
    assert icon.startswith("<svg ")


def test_a_version_that_the_files_do_not_have_is_refused() -> None:
    """Each file is named with the version that it has."""
    answer = distribution("99.0.0", "--dry-run")
    assert answer.returncode == 1
    for file in ("app/turnstile/__init__.py", "pyproject.toml", "charts/turnstile/Chart.yaml"):
        assert f"{file} has {__version__}" in answer.stderr


def test_a_real_release_names_its_image_and_where_its_files_are() -> None:
    """Only a dry run invents them."""
    answer = distribution(__version__)
    assert "give IMAGE=REGISTRY/turnstile and URL=https://..., or DRY_RUN=1" in answer.stderr
