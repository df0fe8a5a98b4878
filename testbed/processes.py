"""Processes that end with their starter: one process group, one watchdog, one log file each.

Knows nothing of Kubernetes. Never leaves a process behind: not on an error, not on Ctrl-C, not on SIGKILL of the
starter.
"""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.errors import ComponentFailed
from testbed.patience import Patience, stretch

_WATCHDOG = Path(__file__).with_name("watchdog.py")


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)


class Process:
    """One started program and its log file. Made by `ProcessGroup.start`."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self.asked_to_end = False
        """Whether it was sent a signal that ends it: otherwise it ended by itself."""
        self._popen = popen

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended already."""
        if self.poll() is None and number in _ENDING:
            self.asked_to_end = True
        self._popen.send_signal(number)

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP), and wait until all its threads stand still: connections stay open and
        nothing answers. Raises TimeoutError if it goes on for 10 seconds."""
        self.signal(signal.SIGSTOP)
        patience = Patience(10)
        while self.poll() is None and not self._stands_still():
            if patience.over:
                raise TimeoutError(f"{self.name} (process {self.pid}) runs {patience.waited:.0f} s after SIGSTOP")
            time.sleep(0.001)

    def _stands_still(self) -> bool:
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                state = (thread / "stat").read_text().rpartition(") ")[2][0]
            except FileNotFoundError:
                continue  # that thread has ended
            if state not in "TtZX":
                return False
        return True

    def resume(self) -> None:
        """Let a paused process go on."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._popen.wait()

    def terminate(self, *, timeout: float = 10) -> int:
        """SIGTERM and wait; SIGKILL after `timeout` seconds. Returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout=timeout)

    def wait(self, *, timeout: float) -> int:
        """Wait for the end; SIGKILL after `timeout` seconds, or longer on a machine that is not free. Returns the exit
        code."""
        try:
            return self._popen.wait(timeout * stretch())
        except subprocess.TimeoutExpired:
            self.kill()
            return self._popen.wait()

    def tail(self, lines: int = 40) -> str:
        """The last lines of its log."""
        try:
            with self.log.open(errors="replace") as file:
                return "".join(deque(file, maxlen=lines))
        except FileNotFoundError:
            return ""

    def require_running(self) -> None:
        """Raise `ComponentFailed` with the end of the log when the process has ended."""
        code = self.poll()
        if code is not None:
            raise ComponentFailed(f"{self.name} ended with exit code {code}; the end of {self.log}:\n{self.tail()}")


class ProcessGroup:
    """A group of processes under one watchdog.

    `directory` is removed by the watchdog if this process dies without `stop`; None keeps it.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG), str(os.getpid()), str(directory or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._members: list[Process] = []

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Process:
        """Start a program in the group; all its output is appended to `log`. `env` adds to our own environment."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            popen = subprocess.Popen(
                [str(argument) for argument in argv],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                process_group=self._watchdog.pid,
            )
        process = Process(name, popen, log)
        self._members.append(process)
        return process

    @property
    def pids(self) -> list[int]:
        """Ids of all members that run, the watchdog first."""
        return [self._watchdog.pid, *(member.pid for member in self._members if member.poll() is None)]

    def stop(self) -> None:
        """Kill all members at once and wait for them. May be called twice."""
        if self._watchdog.poll() is None:
            os.killpg(self._watchdog.pid, signal.SIGKILL)
        for member in self._members:
            member.kill()
        self._watchdog.wait()
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._members.clear()


def wait_until_gone(pids: Sequence[int], *, timeout: float) -> list[int]:
    """Wait until none of `pids` runs (a zombie counts as gone); returns those still running at the deadline."""
    patience = Patience(timeout)
    while left := [pid for pid in pids if _runs(pid)]:
        if patience.over:
            return left
        time.sleep(0.02)
    return []


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        # The state follows the command's name, which stands in parentheses and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()[:1] not in ("", "Z")
