"""`python -m testbed.tour [--once]`: a real control plane, Turnstile on it, and teams that share GPUs and CPUs.

This is `make run`. It installs the chart, restores a week of history, starts `turnstile serve` and `turnstile web`,
applies examples file by file, checks every promise it makes on the way, and asks the command line about a Job that
waits; then it stays until Ctrl-C, so that people can look at the page and try things. With `--once` it ends with 0 when
all promises were kept, else with 1; promises that were not kept are always named. It imports nothing of `turnstile`:
Turnstile runs as a user would run it, with the rights the chart gives it.
"""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

import yaml

from testbed import ControlPlane, TestbedError, build, past
from testbed.acts import A100, LEFT, ON_DEMAND, RACK, RACKED, SPOT, acts, invariants
from testbed.board import Board
from testbed.client import wait_until
from testbed.components import RUN_FOR
from testbed.installation import NAMESPACE, ROOT, Installation
from testbed.processes import Process
from testbed.promises import Act, Promise, Question
from testbed.snapshot import GPU, Json, Snapshot, read
from testbed.stand_ins import StandIns

PREVIEW = (
    "You are about to see five teams share a cluster: GPUs that one lends and takes back, a Job that waits and why,"
    " preemption, a gang on one rack, and a dashboard with a week of usage. It takes about two minutes; Ctrl-C ends it."
)
EXAMPLES = ROOT / "examples"
LOOK_EVERY = 0.25
READY_WITHIN = 60
APART = 1.1
"""Seconds between acts: queues are in the order of creation, which Kubernetes remembers in whole seconds."""
ANSWER_WITHIN = 60
"""Seconds for a command that is asked something; on an idle machine it takes one or two."""
POD_SECONDS = 10
"""How long a pod runs that does not say it itself: nothing runs on a simulated node."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour. The exit code is 1 when a promise was not kept, 130 when interrupted before the end."""
    parser = argparse.ArgumentParser(prog="python -m testbed.tour", description="Turnstile on a real control plane.")
    parser.add_argument(
        "--once", action="store_true", help="end after the tour, with 1 if anything in it did not happen"
    )
    parser.add_argument("--promises", action="store_true", help="list at the end how each promise went")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    board = Board()
    tour = Tour(board)
    try:
        with board:
            tour.run(once=chosen.once, details=chosen.promises)
    except KeyboardInterrupt:
        board.say("stopped; nothing is left running")
        return tour.exit_code if tour.ended else 130
    except TestbedError as error:
        board.say(str(error), style="bold red")
        return 1
    return tour.exit_code


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


class Tour:
    """One tour: the acts, and how their promises went."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.acts = acts()
        self.invariants = invariants()
        self.ended = False
        self._plays = False
        self._applied = 0.0

    @property
    def promises(self) -> list[Promise | Question]:
        """All promises, and what questions promise, in the order of the tour."""
        found: list[Promise | Question] = []
        for act in self.acts:
            found += act.promises
            found += act.questions
        return found

    @property
    def exit_code(self) -> int:
        """0 when the tour came to its end and everything happened."""
        kept = all(promise.kept for promise in self.promises)
        held = all(invariant.holds for invariant in self.invariants)
        return 0 if self.ended and kept and held else 1

    def run(self, *, once: bool, details: bool = False) -> None:
        """From nothing to the check list, in which each promise is listed with `details`; then, unless `once`, until
        interrupted."""
        say = self.board.say
        say(PREVIEW, style="bold")
        build.ensure(say)
        say("starting a control plane (the first time it is built: some minutes)")
        with ControlPlane(report=say, pod_seconds=POD_SECONDS, audit=True) as cp:
            self._refusals = Refusals(cp.audit_log)
            self._add_nodes(cp)
            self._stand_ins = StandIns(cp.api)
            recorder = cp.directory / "recorder.sqlite"
            turnstile, page = self._start_turnstile(cp, recorder)
            try:
                for act in self.acts:
                    self._play(act, cp, turnstile)
                self.ended = True
                self.board.check_list(self.promises, self.invariants, details=details)
                if not once:
                    self._stay(cp, turnstile, page, recorder)
            finally:
                turnstile.terminate()

    def _add_nodes(self, cp: ControlPlane) -> None:
        for number in (1, 2):
            cp.add_node(f"on-demand-{number}", labels=ON_DEMAND, cpu=8, memory="32Gi")
            cp.add_node(f"spot-{number}", labels=SPOT, taints=["capacity=spot:NoSchedule"], cpu=4, memory="16Gi")
            cp.add_node(f"gpu-{number}", labels=A100, cpu=16, memory="128Gi", extra={GPU: 4})
            for rack in ("r1", "r2", "r3"):
                cp.add_node(f"{rack}-{number}", labels={**RACKED, RACK: rack}, cpu=8, memory="32Gi")
        self.board.say(
            "twelve simulated nodes are ready: two with four GPUs each, two on-demand, two spot (tainted), and two on"
            " each of three racks"
        )

    def _start_turnstile(self, cp: ControlPlane, recorder: Path) -> tuple[Process, str]:
        """Turnstile, ready, and the address of its page."""
        say = self.board.say
        say("installing Turnstile's chart, and a week of history for three teams")
        installation = Installation(cp)
        installation.install()
        self._restore_week(cp)
        turnstile = installation.start(arguments=("--recorder", str(recorder)))
        server = self._start_page(cp, recorder)
        began = time.monotonic()
        installation.wait_ready(turnstile, timeout=READY_WITHIN)
        page = self._address_of(server)
        say(f"Turnstile is ready after {time.monotonic() - began:.1f} s, under the chart's service account")
        say(f"turnstile web shows it all at {page}", style="bold")
        return turnstile, page

    def _restore_week(self, cp: ControlPlane) -> None:
        """The queues of the first act as if they were a week old, and the Workloads that ran in them."""
        now = datetime.now(UTC)
        for namespace in _documents("gpus/01-teams.yaml"):
            cp.api.apply(namespace)
        queues = [each for each in _documents("gpus/02-queues.yaml") if each["kind"] != "ResourceFlavor"]
        past.restore(cp.etcd, [*(past.aged(each, now) for each in queues), *past.finished(now)])

    def _start_page(self, cp: ControlPlane, recorder: Path) -> Process:
        command = [sys.executable, "-m", "turnstile", "web", "--port", "0", "--kubeconfig", str(cp.kubeconfig())]
        command += ["--recorder", str(recorder)]
        return cp.start_process("page", command, cwd=ROOT)

    def _address_of(self, server: Process) -> str:
        """The address of the page, as it is printed once the page is served."""
        found: list[str] = []

        def listens() -> bool:
            server.require_running()
            found[:] = re.findall(r"http://\S+", server.tail())
            return bool(found)

        wait_until(listens, timeout=READY_WITHIN, describe=lambda: f"no address was printed:\n{server.tail()}")
        return found[0]

    def _ask(self, question: Question, cp: ControlPlane) -> None:
        """Ask what a person would ask in a terminal, and show the answer."""
        began = time.monotonic()
        command = [sys.executable, "-m", "turnstile", *question.arguments, "--kubeconfig", str(cp.kubeconfig())]
        asked = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False, process_group=0
        )
        self.board.answer(" ".join(("turnstile", *question.arguments)), asked.stdout + asked.stderr)
        question.answered(asked.stdout, code=asked.returncode, seconds=time.monotonic() - began)

    def _play(self, act: Act, cp: ControlPlane, turnstile: Process) -> None:
        """Apply what the act brings and watch until each of its promises has come true or run out of time."""
        self.board.say(act.title, style="bold")
        if act.stand_ins and not self._plays:
            self._stand_ins.install()
            self._plays = True
        time.sleep(max(0.0, self._applied + APART - time.monotonic()))
        for document in [*(document for name in act.files for document in _documents(name)), *act.objects]:
            cp.api.apply(_timed(document))
        self._applied = time.monotonic()
        due = list(act.promises)
        while True:
            turnstile.require_running()
            snapshot, now = self._look(cp), time.monotonic()
            for invariant in self.invariants:
                invariant.look(snapshot)
            for promise in due:
                promise.look(snapshot, now)
            self.board.show(snapshot)
            for promise in [promise for promise in due if promise.is_over(now)]:
                due.remove(promise)
                self._told(promise)
            if not due:
                break
            time.sleep(LOOK_EVERY)
        for question in act.questions:
            self._ask(question, cp)
            self._told(question)

    def _told(self, promise: Promise | Question) -> None:
        (self.board.kept if promise.kept else self.board.broken)(promise)

    def _stay(self, cp: ControlPlane, turnstile: Process, page: str, recorder: Path) -> None:
        """Keep everything up, and the table true, until interrupted."""
        for document in LEFT:
            cp.api.apply(_timed(document))
            time.sleep(APART)
        tools = [] if shutil.which("kubectl") else [cp.tools["kubectl"].parent]
        path = ":".join(str(folder) for folder in (Path(sys.executable).parent, *tools))
        self.board.invite(
            [
                f"export KUBECONFIG={cp.kubeconfig()}",
                f"export TURNSTILE_RECORDER={recorder}",
                f"export PATH=$PATH:{path}",
                "kubectl get workloads --all-namespaces",
                "kubectl describe clusterqueue team-a",
                "kubectl -n team-a create job mine --image=busybox:1.37 -- sleep 5",
                "turnstile explain job/label -n speech",
                "turnstile when job/label -n speech",
                "turnstile what-if --drop job/simulation -n team-a",
                "turnstile explain job/wide -n research",
                "turnstile timeline job/pretrain -n vision",
                "turnstile usage --by namespace --resource nvidia.com/gpu",
            ],
            page=page,
            log=turnstile.log,
        )
        while True:
            turnstile.require_running()
            self.board.show(self._look(cp))
            time.sleep(LOOK_EVERY)

    def _look(self, cp: ControlPlane) -> Snapshot:
        """Read the cluster once."""
        if self._plays:
            self._stand_ins.play()
        kueue = "/apis/kueue.x-k8s.io/v1beta2"
        return read(
            jobs=cp.api.items("/apis/batch/v1/jobs"),
            pods=cp.api.items("/api/v1/pods"),
            workloads=cp.api.items(f"{kueue}/workloads"),
            local_queues=cp.api.items(f"{kueue}/localqueues"),
            cluster_queues=cp.api.items(f"{kueue}/clusterqueues"),
            nodes=cp.api.items("/api/v1/nodes"),
            others=self._stand_ins.objects if self._plays else (),
            refused=self._refusals.read(),
        )


class Refusals:
    """Requests of Turnstile's service accounts that were forbidden, from the API server's audit log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0
        self._seen: dict[str, None] = {}

    def read(self) -> list[str]:
        """All so far, each once."""
        with self._log.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            if b'"code":403' in line and NAMESPACE.encode() in line:
                entry = json.loads(line)
                if entry["user"]["username"].startswith(f"system:serviceaccount:{NAMESPACE}:"):
                    self._seen[f"{entry['verb']} {entry['requestURI']}"] = None
        return list(self._seen)


def _documents(name: str) -> list[Json]:
    """The documents of a file of the examples."""
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def _timed(document: Json) -> Json:
    """The document with its own `sleep` told to the simulated nodes, which run nothing."""
    pod = document["spec"]["template"] if document["kind"] == "Job" else document if document["kind"] == "Pod" else None
    if pod is None:
        return document
    seconds = pod["spec"]["containers"][0]["command"][1]
    pod.setdefault("metadata", {}).setdefault("annotations", {})[RUN_FOR] = f"{seconds}s"
    return document


if __name__ == "__main__":
    sys.exit(main())
