"""Runs a command where it may change the network, the mounts and the cgroups, and nothing of that is left afterwards.

    python -m testbed.apart COMMAND...

The command gets namespaces of its own: of the network (a loopback, and a link that leads nowhere, with the address
ADDRESS), of mounts (the folders in which a node keeps its state are in memory, and the kernel's settings that are not
of the network are read-only), and of processes. When the command ends, or the process that started it, the kernel ends
all processes in there, and with them all links, rules and mounts. Only the cgroup is removed by hand. Needs root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ADDRESS: Final = "172.31.0.1"
"""Of the node, in its own network alone."""
_VARIABLE: Final = "TESTBED_CGROUP"
_PREFIX: Final = "turnstile-testbed-"
_KERNEL_SETTINGS: Final = (
    "vm/overcommit_memory=1",
    "vm/panic_on_oom=0",
    "kernel/panic=10",
    "kernel/panic_on_oops=1",
    "kernel/keys/root_maxkeys=1000000",
    "kernel/keys/root_maxbytes=25000000",
)
"""What kubelet insists on. It reads them so in there; the kernel's own, which are the machine's, stay as they are."""
_ARRANGE: Final = f"""
for folder in /run /var/lib /var/log; do mount -t tmpfs tmpfs $folder; done
for settings in kernel vm; do mount --bind -o ro /proc/sys/$settings /proc/sys/$settings; done
for setting in {" ".join(_KERNEL_SETTINGS)}; do
  told=$(mktemp /run/setting-XXXX)
  echo "${{setting#*=}}" > "$told"
  mount --bind -o ro "$told" "/proc/sys/${{setting%=*}}"
done
ip link set lo up
ip link add node0 type bridge
ip address add {ADDRESS}/32 dev node0
ip link set node0 up
ip route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
"$@"
exit $?
"""
_UNSHARE: Final = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip


def why_not() -> str:
    """Why this machine cannot do it; empty if it can."""
    if os.geteuid():
        return "namespaces of the network and cgroups need root"
    missing = [name for name in ("unshare", "setpriv", "ip") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian: apt-get install util-linux iproute2)"
    tried = subprocess.run(
        [*_UNSHARE, "ip", "link", "add", "node0", "type", "bridge"], capture_output=True, text=True, check=False
    )
    return f"this root may make no network of its own: {tried.stderr.strip()}" if tried.returncode else ""


def cgroup() -> str:
    """The name of the cgroup for what the command starts, below the root of each hierarchy; empty outside."""
    return os.environ.get(_VARIABLE, "")


def run(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> int:
    """Run a command apart and return its exit code. After Ctrl-C the command has 20 s to end by itself.

    From the main thread only: SIGTERM becomes SystemExit, so that the cgroup is removed then too.
    """
    signal.signal(signal.SIGTERM, _terminated)
    hierarchies = _hierarchies()
    for hierarchy in hierarchies:
        for left_over in hierarchy.glob(f"{_PREFIX}*"):
            if not Path("/proc", left_over.name.removeprefix(_PREFIX)).exists():
                _remove(left_over)
    name = f"{_PREFIX}{os.getpid()}"
    variables = {**os.environ, **(environment or {}), _VARIABLE: name}
    try:
        for hierarchy in hierarchies:
            (hierarchy / name).mkdir()
        process = subprocess.Popen([*_UNSHARE, "sh", "-euc", _ARRANGE, "sh", *command], env=variables)
        try:
            return process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)  # the terminal has told the command too
            raise
        finally:
            process.kill()
            process.wait()
    finally:
        for hierarchy in hierarchies:
            _remove(hierarchy / name)


def _hierarchies() -> list[Path]:
    """The roots of all cgroups: one of version 2, or several of version 1."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(where) for _, where, kind, *_ in mounts if kind in ("cgroup", "cgroup2")]


def _remove(directory: Path) -> None:
    """Remove a cgroup and those below it, once the processes in them are gone."""
    deadline = time.monotonic() + 30
    while directory.exists():
        for path, _, _ in os.walk(directory, topdown=False):
            try:
                Path(path).rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.05)


def _terminated(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(run(sys.argv[1:]))
    sys.exit(128 + signal.SIGINT)
