"""What `helm uninstall` runs first: the Job, and an account that has exactly the rights that it needs."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.manifests import documents
from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest, Render

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds

FILES = sorted((CHART / "ci").glob("*-values.yaml"))
CASES = ["", *(path.name for path in FILES if "uninstall: {enabled: false}" not in path.read_text())]
HOOK = "helm.sh/hook"


@pytest.fixture(scope="module")
def hook(helm: Callable[..., "subprocess.CompletedProcess[str]"]) -> Callable[..., list[Manifest]]:
    """`hook("--set", "x=y")`: the objects of the hook."""

    def rendered(*arguments: str) -> list[Manifest]:
        answer = helm("template", "turnstile", str(CHART), "--namespace", NAMESPACE, *arguments)
        assert answer.returncode == 0, answer.stderr
        return [
            each
            for each in documents(answer.stdout)
            if each["metadata"].get("annotations", {}).get(HOOK) == "pre-delete"
        ]

    return rendered


Hook = Callable[..., list[Manifest]]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one object of a kind."""
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


def allowed(role: Manifest, resource: str, verb: str) -> set[str]:
    """The names of objects that a role lets one do something with; a star for all."""
    return {
        name
        for rule in role["rules"]
        if resource in rule["resources"] and verb in rule["verbs"]
        for name in rule.get("resourceNames", ["*"])
    }


@pytest.mark.parametrize("values", CASES, ids=[Path(name).stem or "defaults" for name in CASES])
def test_it_may_remove_what_the_chart_registers_and_nothing_else(render: Render, hook: Hook, values: str) -> None:
    """Each webhook configuration and policy by its name; no wildcard, no Secret, and nothing is created."""
    arguments = ("--values", str(CHART / "ci" / values)) if values else ()
    manifests = hook(*arguments)
    assert {each["metadata"]["annotations"][HOOK] for each in manifests} == {"pre-delete"}
    role, local = only(manifests, "ClusterRole"), only(manifests, "Role")
    for rule in role["rules"] + local["rules"]:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert "secrets" not in rule["resources"]
        assert {"create", "update", "watch"}.isdisjoint(rule["verbs"])
        assert "delete" not in rule["verbs"] or rule["resourceNames"]
    for each in render(*arguments):
        if each["apiVersion"].startswith("admissionregistration.k8s.io/"):
            resource = {"y": "ies"}.get(each["kind"][-1], each["kind"][-1] + "s")
            plural = each["kind"].lower()[:-1] + resource
            assert each["metadata"]["name"] in allowed(role, plural, "delete")
    definitions = {path.stem for path in (CHART / "crds").glob("*.yaml")}
    assert allowed(role, "customresourcedefinitions", "patch") == definitions


def test_its_pod_meets_the_restricted_standard(hook: Hook) -> None:
    """As those of the Deployments do."""
    pod = only(hook(), "Job")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_values_keep_pending_jobs_or_leave_the_hook_out(hook: Hook) -> None:
    """`uninstall.pendingJobs` and `uninstall.enabled`; also where an upgrade reuses values that do not have these."""
    (container,) = only(hook("--set", "uninstall.pendingJobs=keep"), "Job")["spec"]["template"]["spec"]["containers"]
    assert container["args"][container["args"].index("--pending") + 1] == "keep"
    assert hook("--set", "uninstall.enabled=false") == []
    assert hook("--set", "uninstall=null") == []
