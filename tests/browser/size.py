"""`python -m tests.browser.size [WORKLOADS]`: how large and quick the page is with many Workloads in 1,000 queues.

The page is served by a process of its own, which creates a Workload every second; its name says when, so that the
browser can tell how old it is when it appears.
"""

import multiprocessing
import statistics
import sys
import time
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser import demo
from tests.browser.conftest import CHROMIUM, serve
from turnstile.process.memory import Collector

QUEUES = 1000
COHORTS = 10
NAMESPACES = 20
REQUESTS = {"cpu": "4", "memory": "4Gi"}
SHORT = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 4 more needed"
PATHS = {
    "overview": "/",
    "its last page": "/?page=20",
    "ClusterQueue": "/clusterqueues/queue-0001",
    "Workload": "/workloads/team-1/job-020001-x",
    "My jobs": "/workloads",
    "jobs of a namespace": "/workloads?namespace=team-1",
    "search": "/workloads?q=job-0200",
    "what if": "/what-if",
    "health": "/health",
}
UPDATES = 20
_PAINTED = """() => new Promise(painted => new PerformanceObserver(list => {
  for (const each of list.getEntriesByName("first-contentful-paint")) painted(each.startTime);
}).observe({ type: "paint", buffered: true }))"""
_WATCH = """() => {
  window.ages = [];
  new MutationObserver(() => {
    const made = document.querySelector('a[href*="made-"]')?.title.match(/made-([0-9]+)-/);
    if (made && window.last !== made[1]) { window.last = made[1]; window.ages.push(Date.now() - Number(made[1])); }
  }).observe(document.getElementById("main"), { childList: true, subtree: true });
}"""


def world(workloads: int) -> list[demo.Json]:
    """Ten Cohorts of 100 ClusterQueues; each has five Workloads that hold its quota, the others wait."""
    made: list[demo.Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}", "labels": {}}}
        for number in range(NAMESPACES)
    ]
    made.append(demo.named("ResourceFlavor", "default", spec={}))
    quota = demo.quotas(default={"cpu": "20", "memory": "80Gi"})
    for number in range(QUEUES):
        name = f"queue-{number:04}"
        made.append(demo.queue(name, quota, cohort=f"cohort-{number % COHORTS}"))
        made.append(demo.named("LocalQueue", name, f"team-{number % NAMESPACES}", spec={"clusterQueue": name}))
    for number in range(workloads):
        of = number % QUEUES
        where = (f"team-{of % NAMESPACES}", f"job-{number:06}-x", f"queue-{of:04}")
        if number < 5 * QUEUES:
            made.append(demo.runs(*where, f"queue-{of:04}", "default", requests=REQUESTS))
        else:
            made.append(demo.waits(*where, SHORT, requests=REQUESTS))
    return made


def _serve(workloads: int, pipe: Connection) -> None:
    objects = world(workloads)
    with contextmanager(serve)(objects) as served:
        pipe.send(served.address)
        pipe.recv()
        served.do(Collector().settle)  # as `turnstile web` does once everything was read
        while not pipe.poll(1.0):
            name = f"made-{time.time() * 1000:.0f}-x"
            served.put(demo.waits("team-0", name, "queue-0000", SHORT, requests=REQUESTS, priority=int(time.time())))


def main(workloads: int) -> None:
    """Measure and print."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(workloads, there))
    server.start()
    address = here.recv()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 850})
        page.goto(address)
        page.locator("#counts", has_text=f"{workloads - 5 * QUEUES:,}").wait_for(timeout=300_000)
        print(f"{'page':16}{'KB':>8}{'first paint ms':>16}")
        for name, path in PATHS.items():
            kilobytes = len(page.request.get(address + path).body()) / 1000
            paints = [_first_paint(page, address + path) for _ in range(5)]
            print(f"{name:16}{kilobytes:8.0f}{statistics.median(paints):16.0f}")
        page.goto(f"{address}/clusterqueues/queue-0000")
        page.locator("#status.live").wait_for()
        page.evaluate(_WATCH)
        here.send("create")
        while len(ages := page.evaluate("window.ages")) < UPDATES:
            time.sleep(0.5)
        here.send("stop")
        browser.close()
    print(f"from a change to the page: median {statistics.median(ages):.0f} ms, longest of {len(ages)} {max(ages)} ms")
    server.join(60)


def _first_paint(page: Any, address: str) -> float:
    page.goto(address)
    found: float = page.evaluate(_PAINTED)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
