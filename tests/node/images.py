"""The images on the real node, and whether there can be any."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from testbed import image, realnode

TURNSTILE: Final = "localhost/turnstile:tested"
"""Of this checkout."""
BUSYBOX: Final = "localhost/busybox:tested"
"""A shell and its tools in /bin/busybox; without a command it waits to be ended, so it holds pods together too."""
ARCHIVES: Final = "NODE_IMAGES"
"""Names the folder of the archives."""


def why_not() -> str:
    """Why this machine cannot run the release on a real node; empty if it can."""
    if reason := realnode.why_not() or image.why_not():
        return reason
    busybox = shutil.which("busybox")
    if (
        busybox is None
        or b"INTERP" in subprocess.run(["readelf", "-l", busybox], capture_output=True, check=False).stdout
    ):
        return "no busybox that needs no libraries (Debian: apt-get install busybox-static)"
    return ""


def archives() -> list[Path]:
    """The archives of all images; none outside of `make test-node`."""
    folder = os.environ.get(ARCHIVES)
    return sorted(Path(folder).iterdir()) if folder else []
