"""Fixtures for tests of the image: built once a session, with a root file system from it, and both roles in that."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testbed import ControlPlane
from testbed.client import Json
from testbed.errors import BuildError
from testbed.image import SERVICE_ACCOUNT, Container, Images, why_not
from testbed.installation import NAMESPACE, ROOT
from testbed.processes import Process
from tests.cluster.deployed import Deployed, deploy

IMAGE = "localhost/turnstile:tested"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A build takes up to a minute, and the base half a minute when it is made the first time."""
    for item in items:
        item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def images() -> Iterator[Images]:
    """The image of this checkout, by the name IMAGE."""
    if reason := why_not():
        pytest.skip(reason)
    try:
        store = Images()
    except BuildError as error:
        pytest.skip(f"the base cannot be made of Debian's packages: {error}")
    with store:
        store.build(IMAGE, ROOT)
        yield store


@pytest.fixture(scope="session")
def container(images: Images) -> Container:
    """A root file system from the image."""
    return images.container(IMAGE)


@pytest.fixture(scope="session")
def deployed(container: Container, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Both Deployments of the chart, run from the image as a kubelet would: by their arguments and variables alone."""

    def start(cp: ControlPlane, spec: Json, arguments: Sequence[str]) -> Process:
        name = f"turnstile-{spec['containers'][0]['name']}-0"
        return start_pod(container, tmp_path_factory.mktemp(name), cp, name, spec, arguments)

    with deploy(start) as found:
        yield found


def start_pod(
    container: Container, account: Path, cp: ControlPlane, name: str, spec: Json, arguments: Sequence[str]
) -> Process:
    """Start a pod of the chart from the image: its one container with these arguments, its variables and the files of
    its service account, which are put into the directory `account`."""
    (found,) = spec["containers"]
    user = spec["securityContext"]
    assert container.config["User"] == f"{user['runAsUser']}:{user['runAsGroup']}"
    mounts = [mount["mountPath"] for mount in found["volumeMounts"] if mount["mountPath"] != f"/var{SERVICE_ACCOUNT}"]
    assert mounts == ["/tmp"]
    _write_account(account, cp, spec["serviceAccountName"])
    server = urlsplit(cp.server)
    fields = {"metadata.namespace": NAMESPACE, "metadata.name": name}
    environment = {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
        **{each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in found.get("env", ())},
    }
    return cp.start_process(name, container.command(*arguments, environment=environment, account=account))


def _write_account(directory: Path, cp: ControlPlane, name: str) -> None:
    """The files that a pod of this service account has."""
    (directory / "token").write_text(cp.service_account_token(NAMESPACE, name))
    (directory / "ca.crt").write_text(cp.authority.read_text())
    (directory / "namespace").write_text(NAMESPACE)
    directory.chmod(0o755)
