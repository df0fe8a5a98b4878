"""Tells a user at a terminal what a command waits for, once that takes longer than a second."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from turnstile.cli.say import escaped

SECONDS: Final = 1.0
"""Nothing is said before."""
_CLEAR: Final = "\r\x1b[K"


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Say what is being done while the block takes its time, and take it back at its end.

    The block may call what it is given to say more exactly how far it is. Without a terminal nothing is said.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    lock = threading.Lock()
    text, shown = what, False

    def show(more: str = "") -> None:
        nonlocal text, shown
        with lock:
            text = more or text
            if shown or not more:
                shown = True
                sys.stderr.write(f"{_CLEAR}{escaped(text)} ...")
                sys.stderr.flush()

    timer = threading.Timer(SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        if shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
