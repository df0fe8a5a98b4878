"""Controllers whose pods are created long after the job was stopped: something delays them on the API server.

Another program's webhook that does not answer delays each pod by its time limit, 10 seconds by default. Meanwhile the
controller has read the job as it was before the stop, and nothing in the cluster shows what it is about to make.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testbed import ControlPlane
from testbed.client import condition, resource_path
from tests.faults.crew import Crew
from tests.operators.rows import ROWS, Row
from tests.operators.trial import QUEUE, TIMEOUT, Trial, trial_of

LATE_SECONDS = 12.0
"""From the eviction until the pods are created that were asked for before."""
PACE_SECONDS = 1.0
"""For each pod of the victim, so that the first one runs before its controller has asked for the last one."""
QUIET_SECONDS = 3.0
"""All is over when nothing has changed for so long."""
KINDS = (
    *("job", "jobset", "raycluster", "rayjob", "appwrapper"),
    *("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob"),
)
"""Whose pods are not gated: nothing else keeps them from running."""


class SlowReviews(ThreadingHTTPServer):
    """A webhook that answers no review of the victim's pods until `answered` is set, and then each after a second."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Review)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.asked, self.answered = threading.Event(), threading.Event()


class _Review(BaseHTTPRequestHandler):
    server: SlowReviews

    def do_POST(self) -> None:
        """Allow what is reviewed, after a while."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        meta = review["request"]["object"]["metadata"]
        if (meta.get("name") or meta.get("generateName", "")).startswith("victim"):
            self.server.asked.set()
            self.server.answered.wait()
            threading.Event().wait(PACE_SECONDS)
        response = {"uid": review["request"]["uid"], "allowed": True}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def trial(control_plane: ControlPlane, crew: Crew, row: Row) -> Iterator[Trial]:
    """A queue with quota for one job of the row, in an empty namespace."""
    with trial_of(row, control_plane) as made:
        yield made


@pytest.fixture
def slow(control_plane: ControlPlane, trial: Trial, tmp_path: Path) -> Iterator[SlowReviews]:
    """Pods of the namespace are reviewed slowly."""
    control_plane.serving_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    with SlowReviews(tls) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = trial.scenario.named("slow")
        path = resource_path("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", name)
        control_plane.api.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [
                    {
                        "name": "slow.example.com",
                        "admissionReviewVersions": ["v1"],
                        "sideEffects": "None",
                        "timeoutSeconds": 30,
                        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": trial.scenario.namespace}},
                        "rules": [
                            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                        ],
                        "clientConfig": {
                            "url": f"https://127.0.0.1:{server.server_port}/",
                            "caBundle": base64.b64encode(control_plane.authority.read_bytes()).decode(),
                        },
                    }
                ],
            }
        )
        yield server
        server.answered.set()
        control_plane.api.delete(path)
        server.shutdown()


@pytest.mark.parametrize("row", [row.case for row in ROWS if row.name in KINDS])
def test_pods_that_come_long_after_the_stop_do_not_exceed_the_quota(trial: Trial, slow: SlowReviews) -> None:
    """The victim is evicted while its first pods are being created, and a Job that waits for its quota runs only when
    its controller has read of the stop, and has deleted what came late."""
    low, high = trial.scenario.priority_class("low", 10), trial.scenario.priority_class("high", 100)
    trial.create("victim", priority=low)
    trial.wait(slow.asked.is_set, timeout=TIMEOUT, describe=lambda: "no pod of the victim is created")
    labels = {"kueue.x-k8s.io/priority-class": high}
    trial.scenario.job("urgent", queue=QUEUE, cpu=str(trial.quota), labels=labels)
    trial.wait(
        lambda: all(condition(each, "Evicted").get("status") == "True" for each in trial.workloads("victim")),
        describe=lambda: "the victim is not evicted",
    )
    end = time.monotonic() + LATE_SECONDS
    trial.wait(lambda: time.monotonic() > end, describe=str)
    slow.answered.set()
    trial.scenario.wait_started("urgent", timeout=TIMEOUT)
    trial.wait(
        lambda: trial.sentry.runs == trial.quota and trial.sentry.quiet_for(QUIET_SECONDS),
        describe=lambda: "the pods of the Job do not run, or others come and go",
    )
    assert not trial.pods("victim")
