"""Configures logging: one event per line, as JSON for machines or coloured text for people.

Called once, at the start; a second call affects later events only.
"""

import logging
import sys

import orjson
import structlog


def set_up(*, level: str, form: str) -> None:
    """Send structlog's events to standard error. `form` is `json` or `console`.

    Raises ValueError for an unknown level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} is none of debug, info, warning, error")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
    ]
    if form == "console":
        structlog.configure(
            processors=[*shared, structlog.processors.TimeStamper(fmt="%H:%M:%S.%f"), structlog.dev.ConsoleRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(number),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            cache_logger_on_first_use=True,
        )
    else:
        structlog.configure(
            processors=[
                *shared,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(serializer=orjson.dumps),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(number),
            logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
            cache_logger_on_first_use=True,
        )
    # Libraries use the standard logging module: their warnings go to standard error too, as plain lines.
    logging.basicConfig(
        level=max(number, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
