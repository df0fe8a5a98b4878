"""A bundle has what a bug report needs, and of other tenants no name."""

import io
import json
import re
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.controllers import worlds
from tests.unit.engine import builders as b
from tests.unit.recorder.lives import T0, life, recorded
from turnstile.api.core import Namespace
from turnstile.engine import Options
from turnstile.insight import documents
from turnstile.insight.explain import explain
from turnstile.insight.snapshot import Snapshot
from turnstile.recorder.database import Database
from turnstile.recorder.facts import Fact
from turnstile.recorder.location import Location
from turnstile.release.bundle import Parts, archive, record
from turnstile.release.pseudonyms import Pseudonyms

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECRET = re.compile("eve|mallory|spies|covert|heist", re.IGNORECASE)
"""What the names of the other tenant have in common."""


def parts(tmp_path: Path) -> Parts:
    """A cluster of two tenants, `team` and `eve`, who borrow from each other, with a recorder."""
    snapshot = Snapshot()
    for name, labels in (("team", {"team": "ours"}), ("eve", {"team": "spies", "kueue-managed": "true"})):
        snapshot.put(worlds.decode(Namespace, {"metadata": {"name": name, "labels": labels}}))
    snapshot.put(b.flavor())
    snapshot.put(b.cohort("all"))
    selects = {"namespaceSelector": {"matchLabels": {"team": "spies"}}}
    snapshot.put(b.queue("ours", {"default": {"cpu": 4}}, cohort="all"))
    snapshot.put(b.queue("mallory", {"default": {"cpu": 4}}, cohort="all", **selects))
    snapshot.put(b.local("main", "ours"))
    snapshot.put(b.local("covert", "mallory", "eve"))
    snapshot.put(b.workload("mine", cpu=9))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "heist", "uid": "j", "controller": True}
    held = b.changed(
        b.held("job-heist", "mallory", {"cpu": "3"}),
        metadata={
            "namespace": "eve", "uid": "7d", "ownerReferences": [owner], "labels": {"plan": "covert-heist"},
            "annotations": {"note": "by eve"},
        },
        spec={"queueName": "covert"},
    )  # fmt: skip
    snapshot.put(held)
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "recorder.db"
    database = Database(Location.of(str(path)), now=T0)
    detail = {"outcome": "preempting", "cluster_queue": "ours", "preempts": [["u", "eve/heist-of-old", "InCohort"]]}
    told = Fact("uid-w", "tried", T0, 0, "t", True, "Pending", "waits for mallory", detail)
    database.store([*recorded(life()), told])
    database.close()
    found = Parts(
        snapshot, configuration={"namespaces": ["eve"]}, salt="of the cluster", metrics='a{namespace="eve"} 1\n'
    )
    record(found, Location.of(str(path)), "team")
    return found


def files(data: bytes) -> dict[str, str]:
    """The files of an archive by name."""
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for each in tar.getmembers():
            file = tar.extractfile(each)
            assert file is not None
            found[Path(each.name).name] = file.read().decode()
    return found


class TestABundle:
    @pytest.fixture
    def packed(self, tmp_path: Path) -> dict[str, str]:
        """Its files."""
        with_file = parts(tmp_path)
        return files(archive(with_file, "team", NOW, with_other_tenants=False))

    def test_names_no_other_tenant(self, packed: dict[str, str]) -> None:
        """In no file; nor its queue, Workloads, jobs and labels."""
        shown = {name: SECRET.findall(text) for name, text in packed.items()}
        assert {name: words for name, words in shown.items() if words} == {}
        assert len(packed) == 6

    def test_shows_the_tenant_who_reports(self, packed: dict[str, str]) -> None:
        """And what belongs to the cluster."""
        objects = json.loads(packed["objects.json"])["items"]
        names = {each["metadata"]["name"] for each in objects}
        assert {"team", "default", "all", "ours", "main", "mine"} <= names
        assert [each["workload"]["name"] for each in json.loads(packed["timelines.json"])] == ["w"]

    def test_decides_the_same(self, packed: dict[str, str], tmp_path: Path) -> None:
        """What is short, and by how much, is as in the cluster."""

        def told(snapshot: Snapshot) -> Any:
            answer = explain(snapshot, Options(), b.NOW, "team/mine", sees=lambda _: True)
            return answer.sentence, [(each.flavor, each.available, each.nominal) for each in answer.blockers]

        again = documents.parse(packed["objects.json"], "bundle").snapshot
        assert told(again) == told(parts(tmp_path / "other").snapshot)

    def test_with_the_other_tenants(self, tmp_path: Path) -> None:
        """If that is asked for, the names are as they are."""
        packed = files(archive(parts(tmp_path), "team", NOW, with_other_tenants=True))
        assert "covert-heist" in packed["objects.json"]
        assert json.loads(packed["about.json"])["pseudonyms"] == 0

    def test_says_what_is_missing(self, tmp_path: Path) -> None:
        """Who reads the report knows what was not read, and why."""
        found = parts(tmp_path)
        found.missing["metrics"] = "403 Forbidden"
        packed = files(archive(found, "team", NOW, with_other_tenants=False))
        assert json.loads(packed["about.json"])["missing"] == {"metrics": "403 Forbidden"}


class TestPseudonyms:
    def test_are_the_same_in_one_cluster_and_others_in_another(self) -> None:
        """Two reports can be compared; the name cannot be guessed without the salt."""
        first, again, other = Pseudonyms("a"), Pseudonyms("a"), Pseudonyms("b")
        for each in (first, again, other):
            each.add("namespace", ["eve"])
        assert first.text("eve") == again.text("eve") != other.text("eve")
        assert first.text("eve").startswith("namespace-")

    def test_replace_whole_words(self) -> None:
        """In paths and sentences, and no part of another word."""
        made = Pseudonyms("a")
        made.add("namespace", ["eve"])
        hidden = made.text("eve")
        assert made.text("every eve/w and /all/eve. An eve-2") == f"every {hidden}/w and /all/{hidden}. An eve-2"

    def test_leave_keys_of_objects_alone(self) -> None:
        """A namespace may be called `spec`."""
        made = Pseudonyms("a")
        made.add("namespace", ["spec"])
        assert made.of({"spec": ["spec"]}) == {"spec": [made.text("spec")]}

    def test_are_not_made_of_what_is_kept(self) -> None:
        """A flavor may have the name of a namespace."""
        made = Pseudonyms("a", kept=["spot"])
        made.add("namespace", ["spot", "", "default"])
        assert len(made) == 0
