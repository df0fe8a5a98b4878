"""What the garbage collector would have to find, because reference counting does not free it."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

OURS = ("turnstile.", "aiohttp.", "uvicorn.", "uvloop.", "httptools.")


@contextmanager
def cycles() -> Iterator[Counter[str]]:
    """While the block lasts, nothing is collected. Then the counter has the garbage of types of ours, and of the
    libraries of the network, that only the collector finds, by the name of the type."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
        found.update(kind for kind in kinds if kind.startswith(OURS))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
