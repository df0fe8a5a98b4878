"""Kueue's harness as the bench runs it: the shapes are those that Kueue measures itself with. Nothing is left over."""

import os
import subprocess
from pathlib import Path

import yaml

from tests.bench.harness import HOST, MARK, RACK, SHAPES, end_programs_of


def test_an_interrupted_run_leaves_no_servers(tmp_path: Path) -> None:
    """Although each is in a session of its own."""
    environment = {**os.environ, MARK: f"{tmp_path}/"}
    with subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True) as running:
        end_programs_of(tmp_path)
        assert running.wait(timeout=30) < 0


def test_the_shape_with_racks() -> None:
    """A third of each class asks for each kind of place; the sizes are those of the shape without racks."""
    shape = SHAPES["tas"]
    config = yaml.safe_load(yaml.safe_dump(shape.config("full")))
    assert [level["nodeLabel"] for level in config["topology"]["levels"]][1:] == [RACK, HOST]
    (cohort,) = config["cohorts"]
    (queues,) = cohort["queuesSets"]
    sets = [(each["workloads"][0]["className"], each["count"]) for each in queues["workloadsSets"]]
    assert sets[:3] == [("large-required", 17), ("large-preferred", 17), ("large-balanced", 16)]
    assert cohort["count"] * queues["count"] * sum(count for _, count in sets) == shape.workloads("full") == 15_000
    (small,) = queues["workloadsSets"][-1]["workloads"]
    assert (small["request"], small["podCount"], small["sliceSize"]) == ("500m", 2, 1)
