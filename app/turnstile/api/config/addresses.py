"""Addresses to listen on, as Go writes them: `host:port`, `:port` for every interface, `0` for none."""

from turnstile.api.numbers import clamped

Address = tuple[str, int]

EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 -- what an address without a host means


def parse(text: str) -> Address | None:
    """Host and port; None for `0`. Raises ValueError, saying what would do."""
    if text == "0":
        return None
    host, separator, port = text.rpartition(":")
    number = clamped(port) if separator else None
    if number is None or number > 65535:
        raise ValueError("must be host:port, :port, or 0 for none")
    return host.removeprefix("[").removesuffix("]") or EVERY_INTERFACE, number
