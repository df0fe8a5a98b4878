"""Kills a process group when whoever started it is gone, however it went.

Run as a script: `python -I -S watchdog.py STARTER DIRECTORY` with a pipe as standard input. The starter, a process id,
holds the other end; when it ends, even by SIGKILL, the kernel closes that end, and the watchdog kills its whole process
group, itself included, and removes DIRECTORY (unless it is empty text). Should a forked copy of the starter keep the
pipe open, the watchdog sees within a second that its parent has changed.

It leads the group, so there is no list of processes to keep and no moment in which a new one is forgotten; unlike
PR_SET_PDEATHSIG it does not depend on the thread that started it, and it works on macOS. It must import next to
nothing: its start is part of every start of the bed.
"""

import os
import select
import shutil
import signal
import sys
import time


def main() -> None:
    """Wait for the end of standard input, then kill and clean up."""
    starter, directory = int(sys.argv[1]), sys.argv[2]
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    while os.getppid() == starter and not (select.select([0], [], [], 1)[0] and not os.read(0, 4096)):
        pass
    group = os.getpgrp()
    if os.fork() != 0:
        signal.pause()  # killed below, with the rest of the group
    os.setpgid(0, 0)
    os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            break
        time.sleep(0.01)
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
