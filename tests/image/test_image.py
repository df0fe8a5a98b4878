"""What is in the image, and that a second build is equal to the first."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from testbed.image import BASE, Container, Images
from testbed.installation import ROOT
from tests.image.conftest import IMAGE
from turnstile import __version__

OURS_AT_MOST = 125.0
"""Megabytes of the files that the image adds to its base."""

CONFINED = """
import importlib.metadata, json, os, pathlib, sys
import turnstile.main
modules = [module for module in sys.modules.values() if getattr(module, "__cached__", None)]
status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
def writable(directory):
    try:
        pathlib.Path(directory, "probe").write_text("")
    except OSError as error:
        return error.strerror
    return True
print(json.dumps({
    "user": [os.getuid(), os.getgid(), os.getgroups()],
    "capabilities": status["CapEff"],
    "no new privileges": status["NoNewPrivs"],
    "writable": {each: writable(each) for each in ("/opt/turnstile", "/run", "/tmp")},
    "modules": len(modules),
    "without bytecode": [module.__name__ for module in modules if not os.path.exists(module.__cached__)],
    "installed": {each.name: each.version for each in importlib.metadata.distributions(path=[
        path for path in sys.path if path.startswith("/opt/turnstile")])},
}))
"""


def run(container: Container, *arguments: str) -> str:
    """What the image's program prints."""
    done = subprocess.run(container.command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def inside(container: Container) -> dict[str, Any]:
    """What a Python of the image finds when it is started as the chart's pods are."""
    python = replace(container, config={**container.config, "Entrypoint": ["python"]})
    found: dict[str, Any] = json.loads(run(python, "-c", CONFINED))
    return found


def test_the_program_answers(container: Container) -> None:
    """`turnstile --help` lists the commands, and `turnstile --version` prints the version of the sources."""
    assert "serve" in run(container, "--help")
    assert run(container, "--version").strip() == __version__


def test_processes_have_no_rights(inside: dict[str, Any]) -> None:
    """The user is 65532, without capabilities and a way to get any; only /tmp can be written."""
    assert inside["user"] == [65532, 65532, []]
    assert (int(inside["capabilities"], 16), inside["no new privileges"]) == (0, "1")
    assert inside["writable"] == {
        "/opt/turnstile": "Read-only file system",
        "/run": "Read-only file system",
        "/tmp": True,
    }


def test_every_module_has_its_bytecode(inside: dict[str, Any]) -> None:
    """No module is compiled at a start, of the standard library neither: its bytecode could not be kept."""
    assert inside["modules"] > 500
    assert inside["without bytecode"] == []


def test_tools_of_the_build_are_not_in_it(container: Container) -> None:
    """No pip and no uv, and no cache of any tool."""
    found = [
        os.path.relpath(path, container.root)
        for path in container.root.rglob("*")
        if re.fullmatch(r"uvx?|pip[\d.]*|uv-.*|pip-.*|\.cache|ensurepip|wheels", path.name)
    ]
    assert found == []


def test_the_list_of_components_is_what_is_installed(container: Container, inside: dict[str, Any]) -> None:
    """/opt/turnstile/sbom.cdx.json has each installed package in its version, and besides only what Windows needs."""
    sbom = json.loads((container.root / "opt/turnstile/sbom.cdx.json").read_text())
    listed = {each["name"]: each for each in [*sbom["components"], sbom["metadata"]["component"]]}
    installed = {name.lower().replace("_", "-"): version for name, version in inside["installed"].items()}
    assert {name: listed[name]["version"] for name in installed} == installed
    for name in listed.keys() - installed.keys():
        (marker,) = (each["value"] for each in listed[name]["properties"] if each["name"] == "uv:package:marker")
        assert "win32" in marker, name


def test_its_labels_say_what_it_is(images: Images, container: Container) -> None:
    """The labels of the OCI: title, licence, version, revision, base."""
    labels = container.config["Labels"]
    prefix = "org.opencontainers.image."
    assert {name.removeprefix(prefix) for name in labels if name.startswith(prefix)} == {
        "title", "description", "licenses", "version", "revision", "base.name",
    }  # fmt: skip
    assert labels[f"{prefix}version"] == __version__
    assert labels[f"{prefix}base.name"] == BASE


def test_it_is_small(images: Images, capsys: pytest.CaptureFixture[str]) -> None:
    """What the image adds to its base stays under a figure, which is printed."""
    whole, base = images.megabytes(IMAGE), images.megabytes(BASE)
    with capsys.disabled():
        print(f"\nimage: {whole:.0f} MB, {whole - base:.0f} MB of which over its base, a stand-in")
    assert whole - base <= OURS_AT_MOST


def test_a_second_build_is_equal(images: Images, tmp_path: Path) -> None:
    """Of the same sources with other times and modes, in another place, with the revision and the time that the image
    names: the image has the same id, and so the same layers."""
    first = images.inspect(IMAGE)
    tmp_path.joinpath("charts").mkdir()
    for name in (
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "uv.lock",
        ".dockerignore",
        "charts/Dockerfile",
        "charts/image.sh",
    ):
        tmp_path.joinpath(name).write_bytes((ROOT / name).read_bytes())
    shutil.copytree(ROOT / "app", tmp_path / "app", copy_function=shutil.copyfile)
    for path in tmp_path.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    images.build(
        "localhost/turnstile:again",
        tmp_path,
        REVISION=first["OCIv1"]["config"]["Labels"]["org.opencontainers.image.revision"],
        SOURCE_DATE_EPOCH=str(int(datetime.fromisoformat(first["OCIv1"]["created"]).timestamp())),
    )
    again = images.inspect("localhost/turnstile:again")
    assert again["OCIv1"]["rootfs"]["diff_ids"] == first["OCIv1"]["rootfs"]["diff_ids"]
    assert again["FromImageID"] == first["FromImageID"]
