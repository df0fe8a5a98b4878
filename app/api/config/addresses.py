"""Addresses to listen on, as Go writes them: `host:port`, `:port` for every interface, `0` for none."""

Address = tuple[str, int]

EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 -- what an address without a host means


def parse(text: str) -> Address | None:
    """Host and port; None for `0`. Raises ValueError, saying what would do."""
    if text == "0":
        return None
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("must be host:port, :port, or 0 for none")
    return host.removeprefix("[").removesuffix("]") or EVERY_INTERFACE, int(port)
