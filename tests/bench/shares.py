"""Which part of the code the CPU of a process goes to, from a file of stacks: `python -m tests.bench.shares FILE`.

The file is what `py-spy record --gil --format raw --pid PID --output FILE` writes while a bench runs. With `--gil` only
moments count in which the process runs Python or holds its lock: waiting for the API server does not. A stack counts
for the innermost frame that belongs to a part, so that a parser of the standard library counts for who calls it.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final

PARTS: Final = {
    "HTTP client (aiohttp, yarl), URLs": r"aiohttp|yarl|multidict|urllib|kube/(wire|transport|sealed|retries)\.py",
    "TLS": r"ssl\.py",
    "webhook server": r"uvicorn|starlette|fastapi|app/turnstile/(http|webhooks)/",
    "decoding of objects": r"kube/(answers|decoding|raws)\.py|api/(workload|podshape|shared|meta)\.py",
    "engine": r"app/turnstile/engine/",
    "metrics": r"controllers/(metrics|workloadtimes|tallies|series)\.py",
    "which change wakes what": r"controllers/(wakes|frameworks|managed|runner)\.py|kube/workqueue\.py|jobs/registry",
    "decisions about Jobs and Workloads": r"app/turnstile/jobs/"
    r"|controllers/(jobreconciler|reconcile|matching|children|charges|workload|provisioning|inuse)",
    "status drafts and patches": r"controllers/(status|ownership|writes)\.py|api/(conditions|patch)\.py",
    "turns and locks of writes": r"kube/(gate|window|fairness)\.py|controllers/executor\.py|contextlib",
    "events": r"kube/events\.py",
    "watches and stores": r"kube/(reflector|intake|store)\.py",
    "scheduler, without the engine": r"controllers/(scheduler|ledgerfeed|waitreasons|leader)\.py",
    "statuses of queues": r"controllers/(queues|queuefigures|figures)\.py",
    "event loop (uvloop), sockets": r"asyncio/runners\.py",
}
"""Parts by the frames that belong to them."""


def shares(stacks: str) -> Counter[str]:
    """Samples by part, from lines of frames, the outermost first, and a number."""
    found: Counter[str] = Counter()
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        found[_part(frames.split(";"))] += int(count)
    return found


def _part(frames: list[str]) -> str:
    for frame in reversed(frames):
        for name, pattern in PARTS.items():
            if re.search(pattern, frame):
                return name
    return "others"


def main() -> None:
    """Print each part with its share, the largest first."""
    found = shares(Path(sys.argv[1]).read_text())
    for name, count in found.most_common():
        print(f"{100 * count / found.total():5.1f} %  {name}")


if __name__ == "__main__":
    main()
