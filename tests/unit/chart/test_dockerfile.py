"""What charts/Dockerfile builds on."""

import re

from testbed.installation import ROOT


def test_the_base_is_pinned_by_its_digest() -> None:
    """Both stages are from one base, an argument of the build, whose default names a version and a digest."""
    lines = (ROOT / "charts" / "Dockerfile").read_text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${BASE}", "${BASE}"]
    (default,) = (line for line in lines if line.startswith("ARG BASE="))
    assert re.fullmatch(r"ARG BASE=\S+:3\.\d+\.\d+-\S+@sha256:[0-9a-f]{64}", default)
