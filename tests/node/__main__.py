"""`python -m tests.node [arguments of pytest]`: makes the images, and runs the tests of a real node, apart.

They run in namespaces of their own (`testbed/apart.py`), without the machine's network. So all that comes from package
registries is made before: the programs of the node, the image of this checkout, and one of busybox.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from testbed import apart, image, realnode
from testbed.image import Images
from testbed.installation import ROOT
from tests.node.images import ARCHIVES, BUSYBOX, TURNSTILE, why_not

COMMAND = (sys.executable, "-m", "pytest", "tests/node", *sys.argv[1:])


def main() -> int:
    """The exit code of pytest. Where there can be no node, it skips the tests and says why."""
    if why_not():
        return subprocess.call(COMMAND)
    realnode.MODULE.ensure()
    with (
        Images() as images,
        tempfile.TemporaryDirectory(prefix="turnstile-node-", dir=image.where_there_is_room()) as archives,
    ):
        images.build(TURNSTILE, ROOT)
        busybox = Path(shutil.which("busybox") or "busybox")
        images.build_of_program(
            BUSYBOX, busybox, "/bin/busybox", "sh", "-c", "trap exit TERM; /bin/busybox sleep infinity & wait"
        )
        for name in (TURNSTILE, BUSYBOX):
            images.save(name, Path(archives, f"{name.rpartition('/')[2].partition(':')[0]}.tar"))
        return apart.run(COMMAND, environment={ARCHIVES: archives})


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(128 + signal.SIGINT)
