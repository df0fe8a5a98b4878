"""The account of a manager on a worker cluster."""

import base64
from pathlib import Path

import pytest
import yaml

from tests.cluster.command import turnstile
from turnstile.api.errors import InvalidValue
from turnstile.controllers.multikueue.kubeconfigs import checked
from turnstile.jobs.registry import ALL
from turnstile.release.workeraccount import kubeconfig, manifests


def rules(*arguments: str) -> dict[tuple[str, str], set[str]]:
    """The verbs of each resource that the role of a worker has."""
    code, text, _ = turnstile("worker", "role", *arguments)
    assert code == 0
    (role,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "ClusterRole"]
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_it_may_send_every_kind_that_can_be_sent() -> None:
    """And may change none of these jobs, but for the size of elastic ones."""
    found = rules()
    for each in ALL:
        verbs = found.get((each.kind.GROUP, each.kind.PLURAL))
        send = {"create", "list", "watch", "delete", *({"patch"} if each.copies and each.copies.size else ())}
        assert verbs == (send if each.copies is not None else None)


def test_it_may_send_kinds_of_other_controllers_by_the_plural_that_is_named() -> None:
    """Else by the one that Kubernetes would guess; text that is no plural is refused."""
    found = rules("--external", "Sweep.v1.example.com=sweepware", "--external", "Policy.v1.example.com")
    assert found["example.com", "sweepware"] == found["example.com", "policies"] == found["jobset.x-k8s.io", "jobsets"]
    code, _, error = turnstile("worker", "role", "--external", "Sweep.v1.example.com=Sweep/Ware")
    assert code == 2
    assert "kind.version.group=plural" in error


def test_it_reads_no_secrets() -> None:
    """Queues only if it is asked to."""
    assert not {resource for _, resource in rules()} & {"secrets", "clusterqueues", "*"}
    assert rules("--with-queues")["kueue.x-k8s.io", "clusterqueues"] == {"list", "watch"}


def test_a_manager_with_kueue_may_read_each_object_and_replace_workloads() -> None:
    """Kueue reads a copy before it decides, and takes its finalizer off a Workload by an update."""
    found, ours = rules("--for-kueue", "--with-queues"), rules("--with-queues")
    assert found["kueue.x-k8s.io", "workloads"] == ours["kueue.x-k8s.io", "workloads"] | {"get", "update"}
    assert found["kueue.x-k8s.io", "workloads/status"] == {"patch", "update"}
    assert found["kueue.x-k8s.io", "clusterqueues"] == {"get", "list", "watch"}
    assert found["batch", "jobs"] == ours["batch", "jobs"] | {"get", "update"}
    assert found["jobset.x-k8s.io", "jobsets"] == ours["jobset.x-k8s.io", "jobsets"] | {"get"}


def test_its_parts_name_each_other() -> None:
    """Account, role and binding have one name."""
    account, role, binding = manifests(ALL, name="east", namespace="there")
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "east"
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert binding["subjects"][0]["namespace"] == account["metadata"]["namespace"] == "there"


def test_its_kubeconfig_is_one_that_a_manager_takes(tmp_path: Path) -> None:
    """Everything is in it, also if the administrator's names files."""
    authority = tmp_path / "ca.crt"
    authority.write_bytes(b"certificate")
    found = kubeconfig({"certificate-authority": str(authority)}, server="https://east.example:6443", token="t")
    config = checked(yaml.safe_dump(found).encode())
    (entry,) = config["clusters"]
    assert base64.b64decode(entry["cluster"]["certificate-authority-data"]) == b"certificate"


def test_a_server_that_is_not_verified_is_not_handed_on() -> None:
    """The manager would refuse the kubeconfig."""
    with pytest.raises(InvalidValue, match="certificate-authority"):
        kubeconfig({}, server="https://east.example:6443", token="t")
