"""What LocalQueues used still orders the line after a restart, which knows only what the API server has."""

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import AdmissionFairSharing

OPTIONS = Options(admission_fair_sharing=AdmissionFairSharing(usage_half_life=600.0, usage_sampling_interval=300.0))
SCOPE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
CHECKS = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
LINES = ("greedy", "modest")


class Server:
    """What the API server has, and a process that works by it."""

    def __init__(self, *, checks: bool) -> None:
        self.queue = b.queue("shared", {"default": {"cpu": 8}}, **SCOPE, **(CHECKS if checks else {}))
        self.lines = {name: b.local(name, "shared") for name in LINES}
        self.workloads: dict[str, b.Workload] = {}
        self.state = State(OPTIONS)
        self.start()

    def start(self, *, queue_last: bool = False) -> None:
        """A process that knows nothing but this."""
        self.state = State(OPTIONS)
        self.state.put_namespace("team", {})
        self.state.put_flavor(b.flavor())
        self.state.put_admission_check("budget", active=True)
        if not queue_last:
            self.state.put_cluster_queue(self.queue, b.NOW)
        for line in self.lines.values():
            self.state.put_local_queue(line, b.NOW)
        for workload in self.workloads.values():
            self.state.put_workload(workload, b.NOW)
        if queue_last:
            self.state.put_cluster_queue(self.queue, b.NOW)

    def create(self, name: str, line: str, *, cpu: int, second: int) -> None:
        """A new workload."""
        self.workloads[name] = b.workload(name, line, cpu=cpu, second=second)
        self.state.put_workload(self.workloads[name], b.NOW)

    def reserve(self, name: str, *, admitted_at: str = "") -> None:
        """The scheduler reserves quota, and the write is seen; admitted at once or later."""
        cycle(self.state, b.NOW)
        body = msgspec.to_builtins(b.reserved(self.workloads[name], self.state))
        for condition in body["status"]["conditions"]:
            if condition["type"] == "Admitted":
                condition["status"] = "True" if admitted_at else "False"
                condition["lastTransitionTime"] = admitted_at or b.STAMP
        self.workloads[name] = msgspec.convert(body, b.Workload)
        self.state.put_workload(self.workloads[name], b.NOW)

    def sample(self) -> None:
        """Time works on usage, and it is written into the status of the LocalQueues."""
        for name in LINES:
            self.state.sample_usage(f"team/{name}", b.NOW)
            self.write_status(name)

    def write_status(self, name: str) -> None:
        """What is known of the usage of a LocalQueue."""
        resources, _ = self.state.sharing.consumed(f"team/{name}")
        status = {
            "fairSharing": {
                "weightedShare": 0,
                "admissionFairSharingStatus": {"consumedResources": resources, "lastUpdate": b.STAMP},
            }
        }
        self.lines[name] = msgspec.convert(
            {**msgspec.to_builtins(self.lines[name]), "status": status}, type(self.lines[name])
        )

    def order(self) -> list[str]:
        """Who is next, of one more in each LocalQueue; the greedy one was there first."""
        self.create("greedy-next", "greedy", cpu=1, second=10)
        self.create("modest-next", "modest", cpu=1, second=20)
        return [key for key in self.state.questions.pending("shared") if key.endswith("next")]


GREEDY_FIRST = ["team/greedy-next", "team/modest-next"]
MODEST_FIRST = ["team/modest-next", "team/greedy-next"]


@pytest.mark.parametrize("queue_last", [False, True])
def test_a_reservation_that_waits_for_its_checks_counts_after_a_restart(queue_last: bool) -> None:
    """It is not in the usage that was written down, and counts as it did before."""
    server = Server(checks=True)
    server.create("first", "greedy", cpu=4, second=0)
    server.reserve("first")
    server.sample()
    before = server.state.sharing.usages["team/greedy"].penalties
    assert before
    server.start(queue_last=queue_last)
    assert server.state.sharing.usages["team/greedy"].penalties == before
    assert server.order() == MODEST_FIRST


def test_it_counts_once_when_it_is_admitted_at_last() -> None:
    """The penalty that was recalled becomes usage, as it would have without the restart."""
    server = Server(checks=True)
    server.create("first", "greedy", cpu=4, second=0)
    server.reserve("first")
    server.sample()
    server.start()
    held = b.with_conditions(server.workloads["first"], Admitted=("True", "Admitted"))
    server.state.put_workload(held, b.NOW)
    assert server.state.sharing.usages["team/greedy"].penalties == {}
    consumed, _ = server.state.sharing.consumed("team/greedy")
    server.state.put_workload(held, b.NOW)
    assert server.state.sharing.consumed("team/greedy")[0] == consumed != {}


def test_an_admission_after_the_last_sample_counts_after_a_restart() -> None:
    """The process ended before it wrote the usage down that it had settled."""
    server = Server(checks=False)
    server.sample()
    server.create("first", "greedy", cpu=4, second=0)
    server.reserve("first", admitted_at="2026-01-02T03:04:06Z")
    consumed, _ = server.state.sharing.consumed("team/greedy")
    server.start()
    have, _ = server.state.sharing.consumed("team/greedy")
    assert have.keys() == consumed.keys() == {"cpu"}
    assert server.order() == MODEST_FIRST


def test_an_admission_that_is_in_the_status_is_not_counted_twice() -> None:
    """What was settled before it was written down is in there."""
    server = Server(checks=False)
    server.create("first", "greedy", cpu=4, second=0)
    server.reserve("first", admitted_at=b.STAMP)
    server.write_status("greedy")
    consumed, _ = server.state.sharing.consumed("team/greedy")
    server.start()
    assert server.state.sharing.consumed("team/greedy")[0] == consumed


def test_without_what_was_written_down_the_line_is_by_age() -> None:
    """The order after a restart comes from the status: without it the one that used more goes first."""
    server = Server(checks=False)
    server.create("first", "greedy", cpu=4, second=0)
    server.reserve("first", admitted_at=b.STAMP)
    server.sample()
    server.workloads.clear()  # it is done and gone
    server.start()
    assert server.order() == MODEST_FIRST
    server.lines = {name: b.local(name, "shared") for name in LINES}
    server.workloads.clear()
    server.start()
    assert server.order() == GREEDY_FIRST
