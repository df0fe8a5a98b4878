"""The week before the tour: as full as a real one, and possible."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from testbed.past import DAYS, GPUS, aged, finished
from turnstile.api.workload import Workload
from turnstile.recorder.database import Database
from turnstile.recorder.facts import of_change
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading
from turnstile.recorder.reports import reports
from turnstile.recorder.scope import EVERYTHING

Json = dict[str, Any]

NOW = datetime(2026, 1, 8, 12, tzinfo=UTC)


def since(workload: Json, kind: str) -> datetime:
    """When a condition became true."""
    (found,) = (each for each in workload["status"]["conditions"] if each["type"] == kind)
    return datetime.fromisoformat(found["lastTransitionTime"])


def test_every_team_ran_jobs_all_week() -> None:
    """Each has enough run times for a forecast, and the first and the last day have some."""
    found = list(finished(NOW))
    for team in ("vision", "language", "speech"):
        ends = sorted(since(each, "Finished") for each in found if each["metadata"]["namespace"] == team)
        assert len(ends) > 20
        assert ends[0] < NOW - timedelta(days=DAYS - 1)
        assert NOW - timedelta(days=1) < ends[-1] < NOW


def test_never_more_gpus_than_there_are() -> None:
    """At each start the GPUs in use are those of the teams together at most."""
    runs = [
        (since(each, "Admitted"), since(each, "Finished"), each["spec"]["podSets"][0]["count"])
        for each in finished(NOW)
    ]
    for at, _, _ in runs:
        assert sum(gpus for begins, ends, gpus in runs if begins <= at < ends) <= GPUS


def test_names_and_uids_are_their_own() -> None:
    """No Workload takes the place of another."""
    found = [each["metadata"] for each in finished(NOW)]
    names = {(each["namespace"], each["name"]) for each in found}
    assert len({each["uid"] for each in found}) == len(names) == len(found)


def test_a_queue_is_a_week_old() -> None:
    """It has what an API server adds, and keeps its spec."""
    queue: Json = {"apiVersion": "g/v1", "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": {"cohortName": "b"}}
    old = aged(queue, NOW)
    assert old["metadata"]["creationTimestamp"] == "2026-01-01T12:00:00Z"
    assert old["spec"] == queue["spec"]


def test_usage_is_full(tmp_path: Path) -> None:
    """A leader that begins records the whole week: each team used GPUs for tens of hours."""
    place = Location(str(tmp_path / "recorder.sqlite"))
    database = Database(place, now=NOW.timestamp())
    for each in finished(NOW):
        database.store(list(of_change(None, Workload.decoder()(json.dumps(each).encode()), NOW.timestamp())))
    database.close()
    edges = ((NOW - timedelta(days=DAYS)).timestamp(), NOW.timestamp())
    with reading(place) as reader:
        (told,) = reports(reader, ["namespace"], edges, user_label="", scope=EVERYTHING, resource="nvidia.com/gpu")
    assert {row.keys["namespace"] for row in told.rows if row.used > 50} == {"vision", "language", "speech"}
