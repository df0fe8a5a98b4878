"""Commands for the terminal that do what is on the screen, to be copied. Names are quoted: a dump may have any."""

import shlex
from collections.abc import Iterator

from turnstile.api.workload import Workload
from turnstile.web.queues import Entry


def of_workload(entry: Entry) -> Iterator[tuple[str, str]]:
    """Commands about a Workload, each with its purpose."""
    where = f"-n {shlex.quote(entry.namespace)}"
    target = shlex.quote(f"{entry.kind.lower()}/{entry.job}")
    if entry.state in ("pending", "inactive", "reserved"):
        yield "Why it waits", f"kubectl turnstile explain {target} {where}"
    if entry.state == "pending":
        yield "When it starts", f"kubectl turnstile when {target} {where}"
    if entry.state in ("admitted", "leaving") and entry.kind != Workload.KIND:
        yield "Its pods", f"kubectl turnstile list pods --for {target} {where}"
