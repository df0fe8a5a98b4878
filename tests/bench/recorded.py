"""What admission costs more while it is recorded and watched: Turnstile with its flight recorder and an open page of
`turnstile web`, which is a process of its own, turn about with Turnstile alone.
"""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from testbed.client import wait_until
from tests.bench.bed import Bed, bed
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading


@contextmanager
def recorded_bed() -> Iterator[Bed]:
    """A bed whose Turnstile records, and whose page is open in a browser."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "recorder.db")
        with bed(arguments=("--recorder", file)) as made, _open_page(made):
            yield made
        with reading(Location.of(file)) as reader:
            if not reader.newest():
                raise AssertionError("nothing was recorded")


@contextmanager
def _open_page(made: Bed) -> Iterator[None]:
    """`turnstile web`, and a reader who follows its first page."""
    cp = made.control_plane
    command = [Path(sys.executable).with_name("turnstile"), "web", "--port", "0", "--kubeconfig", cp.kubeconfig()]
    made.beside["web"] = process = cp.start_process("web", command)
    address = urlsplit(wait_until(lambda: process.tail().strip(), timeout=60, describe=lambda: "no address is printed"))
    with closing(HTTPConnection(str(address.hostname), address.port)) as page:
        page.request("GET", f"/?{address.query}")
        cookie = (page.getresponse().getheader("set-cookie") or "").partition(";")[0]
        page.close()
        page.request("GET", "/events?of=/", headers={"Cookie": cookie})
        answer = page.getresponse()
        if answer.status != 200:
            raise AssertionError(f"the page answers {answer.status}")
        threading.Thread(target=_drain, args=(answer.readline,), daemon=True).start()
        yield
        process.terminate()


def _drain(read: Callable[[], bytes]) -> None:
    try:
        while read():
            pass
    except (OSError, ValueError, AttributeError):
        return  # the page was closed


BEDS: Final[Mapping[str, Callable[[], AbstractContextManager[Bed]]]] = {"recorded": recorded_bed, "alone": bed}
