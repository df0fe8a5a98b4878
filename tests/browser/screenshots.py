"""`python -m tests.browser.screenshots FOLDER` (`make screenshots`): pictures of the page for the documentation."""

import sys
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser import demo, recorded
from tests.browser.conftest import CHROMIUM, Served, serve

COLOURS = 256
"""A page has few: a palette makes files a third as large. Two rounds of k-means keep the colour of large areas."""


class Shot(NamedTuple):
    """One picture."""

    name: str
    path: str
    scheme: str = "light"
    width: int = 1280
    height: int = 1000
    awaits: tuple[str, ...] = ()
    """What comes to the page a while after it."""


EXPLAINED = (".remedies", ".likely time")
SHOTS = (
    Shot("page-overview", "/", height=1180),
    Shot("page-overview-dark", "/", scheme="dark", height=1180),
    Shot("page-queue", "/clusterqueues/language", height=900, awaits=(".starts time",)),
    Shot("page-workload", "/workloads/language/job-finetune-a3b77", height=1060, awaits=EXPLAINED),
    Shot("page-what-if", "/what-if?queue=robotics/simulation&pods=6&priority=10"
         "&requests=nvidia.com/gpu%3D1+cpu%3D12+memory%3D96Gi", height=800),
    Shot("page-usage", "/usage", height=900),
    Shot("page-timeline", "/workloads/robotics/job-preempted-1f0c3", height=880),
    Shot("page-health-dark", "/health", scheme="dark", height=820),
    Shot("page-telephone", "/workloads/language/job-finetune-a3b77", scheme="dark", width=390, height=1080,
         awaits=EXPLAINED),
)  # fmt: skip


def main(folder: Path) -> None:
    """Take them all."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory() as temporary,
        contextmanager(serve)(demo.world(), recorder=recorded.write(Path(temporary))) as served,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for shot in SHOTS:
            take(browser, served, shot, folder)
        browser.close()


def take(browser: Any, served: Served, shot: Shot, folder: Path) -> None:
    """Take one, once everything on the page is there."""
    context = browser.new_context(color_scheme=shot.scheme, viewport={"width": shot.width, "height": shot.height})
    page = context.new_page()
    page.goto(served.address + shot.path)
    for part in shot.awaits:
        page.locator(part).last.wait_for(timeout=60_000)
    page.evaluate("document.fonts.ready")
    picture = Image.open(BytesIO(page.screenshot()))
    few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    few.save(folder / f"{shot.name}.png", optimize=True)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
