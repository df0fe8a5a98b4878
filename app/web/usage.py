"""Usage over time as a page shows it: the report of `turnstile usage`, worked out beside the event loop.

Read from what the flight recorder keeps, with the rights there of the person who started the page.
"""

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Final

from app.recorder.location import Location
from app.recorder.reading import reading
from app.recorder.report import Report, fields, point, report
from app.web.explanations import Beside

DEFAULTS: Final = {"by": "queue", "since": "7d", "until": "now", "namespace": "", "resource": "", "user_label": ""}
"""The fields of the form, as they are at first."""


async def usage(recorder: Location, beside: Beside, form: Mapping[str, str], now: datetime) -> Report:
    """What a filled form asks. Raises InvalidValue, naming the option of the command, and Unanswered."""
    names = fields(form["by"], form["user_label"])
    since, until = point("--since", form["since"], now), point("--until", form["until"], now)
    narrowed = {name: form[name] for name in ("namespace", "resource", "user_label")}

    def work() -> Iterator[Report]:
        with reading(recorder) as reader:
            yield report(reader, names, since, min(until, now), **narrowed)

    async with aclosing(beside.answers(work)) as answers:
        return await anext(answers)
