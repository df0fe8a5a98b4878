"""A user's desk: a folder with the files that a page has its reader write, and the programs that the page is about."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.patience import Patience
from tests.cluster.reader import TASKS, Reader
from tests.cluster.scenario import GROUP, Scenario
from tests.documents import steps
from tests.submitters import environments

T = TypeVar("T")
OTHER: Final = "by-label"
"""The LocalQueue of the tests."""
QUEUE_NAME: Final = re.compile(r"""(queue-name"?: "?|local_queue=")default("?)""")
RUNS: Final = "Running"
FILLER: Final = "filler-"
FILE: Final = re.compile(r"# (\S+\.\w+)\n")
GATE: Final = "kueue.x-k8s.io/admission"


def named(text: str) -> str:
    """A block of a page with the queue of the tests in the place of `default`, which a job gets that names none: so a
    label that does not arrive is seen."""
    return QUEUE_NAME.sub(rf"\g<1>{OTHER}\g<2>", text)


class Begun:
    """A command that was begun and goes on beside the test."""

    def __init__(self, process: "subprocess.Popen[str]", command: str, log: Path) -> None:
        self._process = process
        self._command = command
        self._log = log

    @property
    def printed(self) -> str:
        """All that it has printed so far."""
        return self._log.read_text(errors="replace")

    def goes_on(self) -> bool:
        """Whether it has not ended; it must not have failed."""
        assert not self._process.poll(), f"exit code {self._process.poll()}: {self._command}\n{self.printed}"
        return self._process.poll() is None

    def end(self, *, seconds: float = 90) -> str:
        """Wait until it has ended with success; what it printed."""
        patience = Patience(seconds)
        while True:
            try:
                code = self._process.wait(1)
            except subprocess.TimeoutExpired:
                assert not patience.over, f"goes on after {patience.waited:.0f} s: {self._command}\n{self.printed}"
            else:
                assert code == 0, f"exit code {code}: {self._command}\n{self.printed}"
                return self.printed

    def stop(self) -> None:
        """End it, with all that it has started, if it goes on."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(60)


class Desk(Reader):
    """Reads a page of docs/tasks with the programs of an environment, in a folder where the page's files are.

    A block that begins with a comment like `# train.py` is the file of that name.
    """

    def __init__(
        self,
        page: str,
        control_plane: ControlPlane,
        folder: Path,
        *,
        environment: str,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.programs = environments.ensure(environment)
        super().__init__(page, control_plane, directory=folder, programs=[self.programs])
        self.folder = folder
        self._begun: list[Begun] = []
        self._environment |= {"HOME": str(folder), **(variables or {})}
        for kind, text in steps(TASKS / page):
            if found := FILE.match(text):
                (folder / found[1]).parent.mkdir(parents=True, exist_ok=True)
                (folder / found[1]).write_text(named(text))
                self._steps = [step for step in self._steps if step != (kind, text)]
            else:
                assert kind != "python", f"{page}: a block of Python does not begin with the name of its file"

    def variable(self, name: str, value: str) -> None:
        """Set a variable of the environment for all commands after this."""
        self._environment[name] = value

    def succeeds(self, command: str) -> bool:
        """Whether a command does not fail."""
        try:
            self.run(command)
        except AssertionError:
            return False
        return True

    def begin(self, command: str = "") -> Begun:
        """Begin the page's next block, or this command, and do not wait for its end."""
        if not command:
            _, command = self._steps.pop(0)
        log = self.folder / f"begun-{len(self._begun)}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", f"exec {command}" if "\n" not in command.strip() else command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._begun.append(Begun(process, command, log))
        return self._begun[-1]

    def leave(self) -> None:
        """End what goes on, with all that it has started."""
        for each in self._begun:
            each.stop()


class Queue:
    """The queue of team-a, which is full until it is opened, and what waits and runs in the namespace."""

    def __init__(self, control_plane: ControlPlane, team: Scenario) -> None:
        self.control_plane = control_plane
        self.team = team
        self.api = team.api
        self._fillers = 0
        self._filled = ""
        self.submitter: Begun | None = None
        """Whoever submits and waits, and must not fail while the test waits."""
        team.local_queue(OTHER, "team-a")
        self.fill()

    def wait(self, look: Callable[[], T], *, describe: Callable[[], str], timeout: float = 30) -> T:
        """Wait for something true, as long as the submitter does not fail."""

        def looked() -> T:
            if self.submitter is not None:
                self.submitter.goes_on()
            return look()

        return wait_until(looked, timeout=timeout, describe=describe)

    def pods(self, labels: str) -> list[Json]:
        """The pods with these labels."""
        return self.api.items(resource_path("v1", "pods", namespace=self.team.namespace), labels=labels)

    def wait_gated(self, labels: str, count: int = 1) -> None:
        """Until so many pods with these labels wait at Turnstile's gate, with Workloads that have no quota."""

        def look() -> bool:
            gates = [{gate["name"] for gate in pod["spec"].get("schedulingGates", ())} for pod in self.pods(labels)]
            return len(gates) == count and all(GATE in found for found in gates)

        self.wait(look, describe=lambda: f"gates of {labels}: {self.pods(labels)}")
        for pod in self.pods(labels):
            self.team.wait_pending(pod["metadata"]["name"], kind="Pod", timeout=30)

    def wait_jobs_suspended(self, labels: str = "", count: int = 1) -> list[str]:
        """Until so many Jobs with these labels wait, suspended and without pods; their names."""

        def look() -> list[Json]:
            jobs = self.jobs(labels)
            return jobs if len(jobs) == count and all(job["spec"].get("suspend") for job in jobs) else []

        found = self.wait(look, describe=lambda: f"Jobs with {labels}: {self.jobs(labels)}")
        names = [job["metadata"]["name"] for job in found]
        for name in names:
            self.team.wait_pending(name, timeout=30)
            assert not self.team.pods_of(name)
        return names

    def jobs(self, labels: str = "") -> list[Json]:
        """The Jobs with these labels, without those that fill the queue and that of the page about queues."""
        found = self.api.items(resource_path("batch/v1", "jobs", namespace=self.team.namespace), labels=labels)
        return [job for job in found if not job["metadata"]["name"].startswith((FILLER, "hello"))]

    def fill(self) -> None:
        """A Job takes all 40 CPUs of the queue: nothing else is admitted until it is opened."""
        self._make_filler()
        self.team.wait_admitted(self._filled, timeout=60)

    def fill_next(self) -> None:
        """A Job for all 40 CPUs is next in the queue: when what runs has ended, nothing else is admitted."""
        self._make_filler()
        self.team.wait_pending(self._filled, timeout=60)

    def _make_filler(self) -> None:
        self._fillers += 1
        self._filled = f"{FILLER}{self._fillers}"
        self.team.job(self._filled, queue="default", cpu="40")

    def open(self) -> None:
        """End the Job that keeps the queue full."""
        self.team.delete_job(self._filled)

    def wait_runs(self, labels: str, count: int = 1) -> list[Json]:
        """Until so many pods with these labels run."""

        def look() -> list[Json]:
            found = [pod for pod in self.pods(labels) if pod["status"].get("phase") == RUNS]
            return found if len(found) == count else []

        return self.wait(look, describe=lambda: f"running pods of {labels}: {self.pods(labels)}")

    def end(self, labels: str) -> None:
        """Let the processes of the pods with these labels end with success."""
        assert self.control_plane.end_pods(self.team.namespace, labels=labels)

    def wait_finished(self, name: str, *, kind: str) -> None:
        """Until the Workload of a job has finished with success."""

        def succeeded(workload: Json) -> bool:
            return condition(workload, "Finished").get("reason") == "Succeeded"

        self.team.wait_workload(name, succeeded, kind=kind, timeout=30)

    def wait_workload_gone(self, kind: str) -> None:
        """Until the namespace has no Workload of a job of that kind."""
        path = resource_path(GROUP, "workloads", namespace=self.team.namespace)

        def gone() -> bool:
            owners = [owner for each in self.api.items(path) for owner in each["metadata"].get("ownerReferences", ())]
            return all(owner["kind"] != kind for owner in owners)

        self.wait(gone, describe=lambda: f"a Workload of a {kind} is left", timeout=60)
