"""Components can be killed, paused and brought back; what is stored stays."""

import pytest

from testbed import Api, ControlPlane, TestbedError, resource_path
from testbed.client import wait_until


def config_map(namespace: str) -> dict[str, object]:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": namespace}}


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_state_outlives_a_kill(control_plane: ControlPlane, api: Api, namespace: str, component: str) -> None:
    """A component killed and started again serves on the same port what was stored before."""
    created = api.create(config_map(namespace))
    control_plane.restart(component)
    assert api.get(api.path_of(created))["metadata"]["uid"] == created["metadata"]["uid"]


def test_killed_api_server_refuses_connections(control_plane: ControlPlane, api: Api) -> None:
    """While it is down nobody answers on its port, although the port stays reserved."""
    control_plane.kill("kube-apiserver")
    try:
        with pytest.raises(ConnectionError):
            api.get("/version")
    finally:
        control_plane.start("kube-apiserver")
    assert api.get("/version")["major"] == "1"


def test_paused_api_server_is_silent(control_plane: ControlPlane, api: Api) -> None:
    """A paused server accepts and never answers: the caller's own limit ends the call. Resumed, it goes on."""
    control_plane.pause("kube-apiserver")
    try:
        with pytest.raises(TimeoutError):
            api.request("GET", "/version", timeout=0.3)
    finally:
        control_plane.resume("kube-apiserver")
    assert api.get("/version")["major"] == "1"


def test_controllers_come_back(control_plane: ControlPlane, namespace: str, api: Api) -> None:
    """Work left while the controller manager was down is done when it is back."""
    control_plane.kill("kube-controller-manager")
    assert list(control_plane.ended()) == ["kube-controller-manager"]
    created = api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {
                "suspend": True,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "none"}]}},
            },
        }
    )
    control_plane.start("kube-controller-manager")
    api.wait_for(api.path_of(created), lambda job: job["status"].get("conditions"), timeout=30)


def test_starting_what_runs_is_refused(control_plane: ControlPlane) -> None:
    """Two of one kind would fight over the port."""
    with pytest.raises(ValueError, match="'etcd' is running: use restart"):
        control_plane.start("etcd")


def test_unknown_component_is_named(control_plane: ControlPlane) -> None:
    """The error lists what there is."""
    with pytest.raises(ValueError, match="'kubelet' is none of etcd, kube-apiserver"):
        control_plane.kill("kubelet")


def test_other_programs_run_in_the_group(control_plane: ControlPlane) -> None:
    """start_process puts the output in the log and the process among those that die with the bed."""
    process = control_plane.start_process("echo", ["/bin/sh", "-c", "echo to the log; exec sleep 60"])
    assert process.pid in control_plane.pids
    wait_until(lambda: "to the log" in process.tail(), timeout=10, describe=lambda: "nothing in the log")
    assert process.terminate() == -15
    with pytest.raises(TestbedError, match="echo ended with exit code -15"):
        process.require_running()


def test_namespace_path(control_plane: ControlPlane, api: Api) -> None:
    """A namespace is usable at once: its service account is there."""
    name = control_plane.namespace("mine", labels={"team": "a"})
    assert name.startswith("mine-")
    assert api.get(f"/api/v1/namespaces/{name}")["metadata"]["labels"]["team"] == "a"
    assert api.find(resource_path("v1", "serviceaccounts", "default", namespace=name)) is not None
    api.delete(f"/api/v1/namespaces/{name}")
