"""The image of charts/Dockerfile without a container runtime and without its base: built by buildah, run by chroot.

The stand-in for the base is Debian's Python, arranged as the official image is: pip under /usr/local, no bytecode of
the standard library. mmdebstrap makes it once; it is kept in the cache, under a hash of what it is made from. Its
certificates are those of this machine, which may need them to reach PyPI. All of this needs root.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from testbed.build import kept
from testbed.client import Json
from testbed.errors import BuildError
from testbed.processes import ProcessGroup

SERVICE_ACCOUNT: Final = "/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod has the token of its service account (by way of the link /var/run)."""

BASE: Final = "localhost/stand-in:latest"
"""The stand-in in the store."""
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_SUITE: Final = "bookworm"
_PACKAGES: Final = "python3,python3-pip,ca-certificates"
_ARRANGE: Final = f"""
set -eu
packages=$1/usr/local/lib/python3.11/dist-packages
mkdir -p "$packages"
mv "$1"/usr/lib/python3/dist-packages/pip* "$packages"
mv "$1"/usr/bin/pip* "$1"/usr/local/bin
find "$1"/usr -name __pycache__ -prune -exec rm -rf {{}} +
cp {_CERTIFICATES} "$1"{_CERTIFICATES}
"""
_ENVIRONMENT: Final = (f"PIP_CERT={_CERTIFICATES}", f"SSL_CERT_FILE={_CERTIFICATES}", "PIP_BREAK_SYSTEM_PACKAGES=1")

_CONFINE: Final = f"""
root=$1 account=$2
shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
if [ -n "$account" ]; then
  mkdir -p "$root{SERVICE_ACCOUNT}"
  mount --bind -o ro "$account" "$root{SERVICE_ACCOUNT}"
fi
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs "$@"
"""


def why_not() -> str:
    """Why this machine cannot build and run the image; empty if it can."""
    if os.geteuid():
        return "building and running the image needs root"
    missing = [name for name in ("buildah", "mmdebstrap", "unshare", "setpriv", "chroot") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian: apt-get install buildah mmdebstrap)"
    if not _CERTIFICATES.exists():
        return f"{_CERTIFICATES} does not exist: install ca-certificates"
    mounting = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
    return f"this root may not mount: {mounted.stderr.strip()}" if mounted.returncode else ""


@dataclass(frozen=True, slots=True)
class Container:
    """A root file system from an image, and what the image says about its processes."""

    root: Path
    config: Json

    def command(
        self, *arguments: str, environment: Mapping[str, str] | None = None, account: Path | None = None
    ) -> list[str]:
        """The program of the image with other arguments, as the chart's pods start it: the image's user without
        capabilities, all files read-only but /tmp; `account` is a directory with the files of a service account."""
        variables = [*self.config["Env"], *(f"{name}={value}" for name, value in (environment or {}).items())]
        confine = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _CONFINE, "sh"]
        program = shutil.which("chroot") or "chroot"  # the variables change where it is looked for
        as_user = ["env", "-i", *variables, program, f"--userspec={self.config['User']}", "--groups=", str(self.root)]
        return [*confine, str(self.root), str(account or ""), *as_user, *self.config["Entrypoint"], *arguments]


class Images:
    """`with Images() as images:` a store of images in a temporary directory, with the base in it. Raises BuildError if
    there can be no base."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="turnstile-image-", dir=where_there_is_room()))
        self._watched = ProcessGroup(self._directory)
        settings = self._directory / "storage.conf"
        places = (f'{place} = "{self._directory / place}"' for place in ("graphroot", "runroot"))
        settings.write_text("\n".join(("[storage]", 'driver = "vfs"', *places)))
        self._environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(settings),
            "STORAGE_DRIVER": "vfs",
            "BUILDAH_ISOLATION": "chroot",
        }
        try:
            self._load_base()
        except BaseException:
            self._remove()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        self._watched.stop()
        shutil.rmtree(self._directory)

    def build(self, name: str, checkout: Path, **environment: str) -> None:
        """What `make image` does in a checkout, on the stand-in."""
        self._run(
            ["bash", "charts/image.sh", name, "--pull-never", "--build-arg", f"BASE={BASE}"],
            cwd=checkout,
            environment=environment,
        )

    def inspect(self, name: str) -> Json:
        """What is known of an image: `OCIv1` is its configuration."""
        found: Json = json.loads(self._run(["buildah", "inspect", "--type", "image", name]))
        return found

    def megabytes(self, name: str) -> float:
        """How large the files in all layers of an image are."""
        size, unit = self._run(["buildah", "images", "--noheading", "--format", "{{.Size}}", name]).split()
        assert unit == "MB"
        return float(size)

    def container(self, name: str) -> Container:
        """A root file system of its own from an image."""
        working = self._run(["buildah", "from", "--pull-never", name])
        return Container(Path(self._run(["buildah", "mount", working])), self.inspect(name)["OCIv1"]["config"])

    def save(self, name: str, archive: Path) -> None:
        """Write an image into a file that container runtimes import."""
        self._run(["buildah", "push", "--quiet", name, f"docker-archive:{archive}:{name}"])

    def build_of_program(self, name: str, program: Path, *command: str) -> None:
        """An image of one program that needs no libraries, and the command line that it is started with."""
        working = self._run(["buildah", "from", "scratch"])
        self._run(["buildah", "add", "--quiet", working, str(program), "/bin/"])
        self._run(["buildah", "config", "--entrypoint", json.dumps(command), working])
        self._run(["buildah", "commit", "--quiet", "--rm", working, name])

    def _load_base(self) -> None:
        working = self._run(["buildah", "from", "scratch"])
        self._run(["buildah", "add", "--quiet", working, str(stand_in()), "/"])
        variables = [part for variable in _ENVIRONMENT for part in ("--env", variable)]
        self._run(["buildah", "config", *variables, working])
        self._run(["buildah", "commit", "--quiet", "--rm", working, BASE])

    def _run(
        self, argv: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> str:
        return _run(argv, cwd=cwd, env={**self._environment, **(environment or {})})


def where_there_is_room() -> str | None:
    """The driver vfs copies all files for each step: 2 GB, which take minutes on a slow disk and seconds in memory."""
    memory = Path("/dev/shm")  # noqa: S108 -- only the directory of a private one
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 4 * 2**30 else None


def stand_in() -> Path:
    """The stand-in's files as an archive, made of Debian's packages if there is none yet (up to a minute)."""
    digest = hashlib.sha256(_CERTIFICATES.read_bytes())
    digest.update(repr((_SUITE, _PACKAGES, _ARRANGE)).encode())
    archive = kept() / "image" / f"{digest.hexdigest()[:16]}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".stand-in-", dir=archive.parent) as directory:
            made = Path(directory, "base.tar")
            hook = Path(directory, "hook")
            hook.write_text(_ARRANGE)
            options = ["--quiet", "--variant=minbase", f"--include={_PACKAGES}", f'--customize-hook=sh {hook} "$1"']
            _run(["mmdebstrap", *options, _SUITE, str(made)])
            made.replace(archive)
    return archive


def _run(argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=400
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(str(error)) from None
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise BuildError(f"{' '.join(argv)} failed with exit code {done.returncode}:\n{said}")
    return done.stdout.strip()
