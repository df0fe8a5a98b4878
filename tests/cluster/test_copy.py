"""The copy of the ledger of a running controller: what it foretells comes true, and admission does not notice it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client import resource_path, wait_until
from testbed.processes import Process
from tests.cluster.scenario import GROUP, Scenario, resource_groups
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster


class Asker:
    """Asks a running Turnstile."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self._folder = folder

    def what_if(self, queue: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """The fates of the Workloads, as lists, and the outlook."""
        answer = self._folder / "answer.json"
        (self._folder / "question.json").write_text(json.dumps(queue))
        self.process.signal(signal.SIGUSR1)
        wait_until(answer.exists, timeout=10, describe=lambda: f"no answer\n{self.process.tail(20)}")
        *fates, outlook = json.loads(answer.read_bytes())["parts"]
        answer.unlink()
        return fates, outlook


@pytest.fixture
def asker(turnstile: Turnstile, tmp_path: Path) -> Iterator[Asker]:
    """A Turnstile that can be asked, in place of the session's."""
    turnstile.stop()
    process = turnstile.installation.start(program=("tests.cluster.asking", str(tmp_path)))
    turnstile.installation.wait_ready(process)
    yield Asker(process, tmp_path)
    process.terminate()
    turnstile.start()


def test_more_quota_admits_those_that_were_foretold(scenario: Scenario, asker: Asker) -> None:
    """Nothing changes while it is asked; then the quota is changed, and what was said happens. And so once more."""
    flavor = scenario.flavor("plain")
    queue = scenario.queue("team", {flavor: {"cpu": "2"}})
    for number in range(4):
        scenario.job(f"job-{number}", queue="team", cpu="2")
        (scenario.wait_pending if number else scenario.wait_admitted)(f"job-{number}")
    jobs = {scenario.workload_of(f"job-{number}")["metadata"]["name"]: f"job-{number}" for number in range(1, 4)}
    for cpu in ("4", "6"):
        spec = {"namespaceSelector": {}, "resourceGroups": resource_groups({flavor: {"cpu": cpu}})}
        fates, outlook = asker.what_if({"metadata": {"name": queue}, "spec": spec})
        (admitted,) = [fate[0].partition("/")[2] for fate in fates if fate[2] == "admitted"]
        assert outlook[:3] == [1, 0, len(jobs) - 1]
        for name in jobs.values():
            scenario.wait_pending(name)
        scenario.patch_queue(queue, {"resourceGroups": resource_groups({flavor: {"cpu": cpu}})})
        scenario.wait_admitted(jobs.pop(admitted))
        for name in jobs.values():
            scenario.wait_pending(name)
    assert asker.process.tail(1000).count("copy.started") == 1
    path = resource_path(GROUP, "clusterqueues", queue)
    assert scenario.api.get(path)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "6"
