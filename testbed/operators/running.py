"""An operator on a control plane: its objects installed, its process beside the cluster."""

import http.client
import urllib.error
import urllib.request
from pathlib import Path

from testbed.client import Json, resource_path, unverified_tls, wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError, TestbedError
from testbed.operators.description import Operator, Places
from testbed.operators.manifests import Manifests, at_loopback, read
from testbed.ports import ReservedPort
from testbed.processes import Process

_DEFINITIONS = ("apiextensions.k8s.io/v1", "customresourcedefinitions")


class RunningOperator:
    """`RunningOperator(cp, OPERATORS["jobset"]).start()` installs and starts it, building it when that was not done.

    The process dies with the control plane; its output is in `log`.
    """

    def __init__(self, control_plane: ControlPlane, operator: Operator) -> None:
        self.operator = operator
        self._control_plane = control_plane
        self._toolbox = operator.ensure()
        self._process: Process | None = None
        self._manifests: Manifests = read(control_plane.kubectl("kustomize", str(operator.manifests(self._toolbox))))
        directory = control_plane.directory / "operators" / operator.name
        with ReservedPort() as webhook, ReservedPort() as health:  # given back at once: operators do not share ports
            self.places = Places(directory, directory / "certificates", webhook.number, health.number)
        control_plane.serving_certificate(self.places.certificates)

    # ---------------------------------------------------------------- the process

    @property
    def process(self) -> Process:
        """The process as last started."""
        if self._process is None:
            raise TestbedError(f"operator {self.operator.name} was not started")
        return self._process

    @property
    def log(self) -> Path:
        """What it printed, of all its starts."""
        return self._control_plane.log(self.operator.name)

    def start(self, *, timeout: float = 60) -> None:
        """Install it, if that was not done, start it, and wait until it is ready; does nothing while it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is None:
            self.install()
        # A day: somebody may look at what a test stopped for.
        credentials = self._control_plane.service_account_kubeconfig(
            self._manifests.namespace, self._manifests.service_account, seconds=86400
        )
        command: list[str | Path] = [self._toolbox[self.operator.name], *self.operator.arguments(self.places)]
        environment = {"KUBECONFIG": str(credentials), "HOME": str(self.places.directory)}
        self._process = self._control_plane.start_process(
            self.operator.name, command, env=environment, cwd=self.places.directory
        )
        self.wait_ready(timeout=timeout)

    def stop(self) -> None:
        """SIGTERM, and wait for the end. Its objects stay, and so its webhooks refuse what they are asked about."""
        self.process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def wait_ready(self, *, timeout: float = 60) -> None:
        """Until it says that it is ready, and has a handler for every webhook: some are added after that."""
        missing = ""

        def look() -> bool:
            nonlocal missing
            self.process.require_running()
            missing = self._missing()
            return not missing

        wait_until(look, timeout=timeout, describe=lambda: f"{missing} is not answered\n{self.process.tail(20)}")

    def _missing(self) -> str:
        """The first address that does not answer as it should."""
        health = f"http://127.0.0.1:{self.places.health_port}{self.operator.ready}"
        if _status(health) != 200:
            return health
        webhooks = (f"https://127.0.0.1:{self.places.webhook_port}{p}" for p in self._manifests.webhook_paths())
        return next((url for url in webhooks if _status(url) in (0, 404)), "")

    # ---------------------------------------------------------------- its objects

    def install(self) -> None:
        """Apply all its objects: CRDs first, webhook configurations last, for they refuse until it runs."""
        self.install_definitions()
        for document in sorted(self._manifests.others, key=lambda document: "webhooks" in document):
            self._apply(document)

    @property
    def definitions(self) -> list[str]:
        """The names of its CRDs."""
        return [document["metadata"]["name"] for document in self._manifests.definitions]

    def install_definitions(self) -> None:
        """Apply its CRDs and wait until every version of each is served.

        The garbage collector learns of a new kind only within half a minute: until then what objects of the kind own
        outlives them.
        """
        for document in self._manifests.definitions:
            self._apply(document)
        for document in self._manifests.definitions:
            spec = document["spec"]
            for version in spec["versions"]:
                if version["served"]:
                    self._wait_served(resource_path(f"{spec['group']}/{version['name']}", spec["names"]["plural"]))

    def _wait_served(self, path: str, *, timeout: float = 30) -> None:
        why: object = None

        def look() -> bool:
            nonlocal why
            try:
                self._control_plane.api.get(path)
            except ApiError as error:  # 404 before it is there, 429 while its storage begins
                why = error
                return False
            return True

        wait_until(look, timeout=timeout, describe=lambda: f"{path} is not served: {why}")

    def remove_definitions(self, *, timeout: float = 30) -> None:
        """Delete its CRDs, with all objects of these kinds, and wait until they are gone.

        What those owned may stay until the kind is back: without it the garbage collector cannot look up owners.
        """
        paths = [resource_path(*_DEFINITIONS, name) for name in self.definitions]
        for path in paths:
            self._control_plane.api.delete(path)
        for path in paths:
            self._control_plane.api.wait_gone(path, timeout=timeout)

    def _apply(self, document: Json) -> None:
        authority = self._control_plane.authority.read_bytes()
        self._control_plane.api.apply(at_loopback(document, port=self.places.webhook_port, authority=authority))


def _status(url: str) -> int:
    """The HTTP status of a GET, 0 when nobody answers. Whom the certificate names is the API server's business."""
    try:
        with urllib.request.urlopen(url, context=unverified_tls(), timeout=2) as answer:  # noqa: S310 - an address of ours
            status: int = answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, http.client.HTTPException):
        return 0
    return status
