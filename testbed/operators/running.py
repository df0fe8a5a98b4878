"""An operator on a control plane: its objects installed, its processes beside the cluster."""

import http.client
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from testbed.client import Json, resource_path, unverified_tls, wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError, TestbedError
from testbed.operators.description import Operator, Places, Program
from testbed.operators.manifests import Manifests, at_loopback, callers, read, through_services
from testbed.ports import lent_port
from testbed.processes import Process

_DEFINITIONS = ("apiextensions.k8s.io/v1", "customresourcedefinitions")


class RunningOperator:
    """`RunningOperator(cp, OPERATORS["jobset"]).start()` installs and starts it, building it when that was not done.

    Its processes die with the control plane; the output of the first is in `log`.
    """

    def __init__(self, control_plane: ControlPlane, operator: Operator) -> None:
        self.operator = operator
        self._control_plane = control_plane
        self._toolbox = operator.ensure()
        self._processes: dict[str, Process] = {}
        directory = control_plane.directory / "operators" / operator.name
        # Below $TMPDIR, where a program looks for its certificate that cannot be told where it is.
        certificates = directory / "k8s-webhook-server" / "serving-certs"
        webhook, api, *health = (lent_port() for _ in range(2 + len(operator.programs)))
        self._places = {
            program.name: Places(directory, certificates, webhook, number, api)
            for program, number in zip(operator.programs, health, strict=True)
        }
        control_plane.serving_certificate(certificates)
        self._manifests: Manifests = read(self._rendered())

    @property
    def places(self) -> Places:
        """What its first process was given."""
        return self._places[self.operator.name]

    # ---------------------------------------------------------------- the processes

    @property
    def process(self) -> Process:
        """The first process as last started."""
        if self.operator.name not in self._processes:
            raise TestbedError(f"operator {self.operator.name} was not started")
        return self._processes[self.operator.name]

    @property
    def log(self) -> Path:
        """What the first process printed, of all its starts."""
        return self._control_plane.log(self.operator.name)

    def tail(self, lines: int = 40) -> str:
        """What its processes printed last."""
        return "\n".join(f"--- {name}\n{process.tail(lines)}" for name, process in self._processes.items())

    def start(self, *, timeout: float = 60) -> None:
        """Install it, if that was not done, start it, and wait until it is ready; does nothing while it runs."""
        stopped = [program for program in self.operator.programs if not self._runs(program.name)]
        if not stopped:
            return
        if not self._processes:
            self.install()
        # Nobody holds them: there is one replica, and a new process would wait for the Lease of the last to run out.
        self._control_plane.api.delete(
            resource_path("coordination.k8s.io/v1", "leases", namespace=self._manifests.namespace)
        )
        for program in stopped:
            self._launch(program)
        self.wait_ready(timeout=timeout)

    def _runs(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def _launch(self, program: Program) -> None:
        places = self._places[program.name]
        # A day: somebody may look at what a test stopped for.
        credentials = self._control_plane.service_account_kubeconfig(
            self._manifests.namespace, self._manifests.service_account(program.deployment), seconds=86400
        )
        command: list[str | Path] = [self.operator.binary(program, self._toolbox), *program.arguments(places)]
        directory = str(places.directory)
        environment = {"KUBECONFIG": str(credentials), "HOME": directory, "TMPDIR": directory}
        self._processes[program.name] = self._control_plane.start_process(
            program.name, command, env={**environment, **program.environment(places)}, cwd=places.directory
        )

    def stop(self) -> None:
        """SIGTERM, and wait for the end. Its objects stay, and so its webhooks refuse what they are asked about."""
        for process in self._processes.values():
            process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        for process in self._processes.values():
            process.kill()

    def wait_ready(self, *, timeout: float = 60) -> None:
        """Until it says that it is ready, and has a handler for every webhook: some are added after that."""
        missing = ""

        def look() -> bool:
            nonlocal missing
            for process in self._processes.values():
                process.require_running()
            missing = self._missing()
            return not missing

        wait_until(look, timeout=timeout, describe=lambda: f"{missing} is not answered\n{self.tail(20)}")

    def _missing(self) -> str:
        """The first address that does not answer as it should."""
        for program in self.operator.programs:
            health = f"http://127.0.0.1:{self._places[program.name].health_port}{program.ready}"
            if _status(health) != 200:
                return health
        paths = self._called() if self.operator.own_certificates else self._manifests.webhook_paths()
        webhooks = (f"https://127.0.0.1:{self.places.webhook_port}{path}" for path in paths)
        return next((url for url in webhooks if _status(url) in (0, 404)), "")

    def _called(self) -> list[str]:
        """The paths of its webhooks as they stand in the cluster, once it has written its own authority there."""
        stored = [self._control_plane.api.get(self._control_plane.api.path_of(made)) for made in self._reviewers()]
        found = [caller["clientConfig"] for made in stored for caller in callers(made)]
        trusted = [config["service"].get("path", "/") for config in found if config.get("caBundle")]
        return trusted if len(trusted) == len(found) else ["/has-not-written-its-authority"]

    def _reviewers(self) -> list[Json]:
        return [document for document in self._manifests.others if callers(document)]

    # ---------------------------------------------------------------- its objects

    def release(self) -> list[Json]:
        """All its objects as they fit this control plane, with its Deployments, which `install` leaves out."""
        manifests = self._manifests
        documents = (*manifests.definitions, *manifests.objects, *manifests.others, *manifests.deployments)
        return [self._here(document) for document in documents]

    def _rendered(self) -> str:
        carried, kustomization = self.operator.manifests(self._toolbox), self.operator.kustomization
        if isinstance(kustomization, str):
            return self._control_plane.kubectl("kustomize", str(carried / kustomization))
        # A kustomization refers to files at its own place and below only.
        copy = self.places.directory / "manifests"
        shutil.copytree(carried, copy)
        (copy / "kustomization.yaml").write_text(yaml.safe_dump(kustomization(self.places)))
        return self._control_plane.kubectl("kustomize", str(copy))

    def install(self) -> None:
        """Apply all its objects: CRDs first, webhook configurations last, for they refuse until it runs."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._manifests.namespace}}
        self._control_plane.api.apply(namespace)
        self.install_definitions()
        for document in sorted(self._manifests.others, key=lambda document: "webhooks" in document):
            self._apply(document)

    @property
    def definitions(self) -> list[str]:
        """The names of its CRDs."""
        return [document["metadata"]["name"] for document in self._manifests.definitions]

    def install_definitions(self) -> None:
        """Apply its CRDs, wait until every version of each is served, and apply the objects of these kinds.

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
        self._wait_discovered()
        for document in self._manifests.objects:
            self._apply(document)

    def _wait_discovered(self, *, timeout: float = 30) -> None:
        """Programs that start ask which kinds there are, and are told a moment later than the kinds are served."""

        def look() -> bool:
            return set(self.definitions) <= set(self._control_plane.kubectl("api-resources", "--output=name").split())

        wait_until(look, timeout=timeout, describe=lambda: f"{self.definitions} are not all discovered")

    def _wait_served(self, path: str, *, timeout: float = 30) -> None:
        why: object = None

        def look() -> bool:
            nonlocal why
            try:
                self._control_plane.api.get(path)
            except ApiError as error:
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

    def clear(self, namespace: str) -> None:
        """Delete all objects of its kinds in a namespace, without waiting for it; what they own goes after them."""
        for document in self._manifests.definitions:
            spec = document["spec"]
            if spec["scope"] == "Namespaced":
                version = next(version["name"] for version in spec["versions"] if version["storage"])
                path = resource_path(f"{spec['group']}/{version}", spec["names"]["plural"], namespace=namespace)
                self._control_plane.api.delete(path)

    def _apply(self, document: Json) -> None:
        self._control_plane.api.apply(self._here(document))

    def _here(self, document: Json) -> Json:
        """A document with its webhooks called at the process beside the cluster."""
        port = self.places.webhook_port
        if self.operator.own_certificates:
            return through_services(document, port=port, services=self._manifests.services())
        return at_loopback(document, port=port, authority=self._control_plane.authority.read_bytes())


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
