"""Whatever the values, the chart keeps these promises."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest, Render
from turnstile.jobs.naming import webhook_path
from turnstile.jobs.registry import ALL

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds

POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CASES = ["", *sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))]


@pytest.fixture(params=CASES, ids=[Path(name).stem or "defaults" for name in CASES], scope="module")
def manifests(request: pytest.FixtureRequest, render: Render) -> list[Manifest]:
    """The chart rendered with one of the value files beside it."""
    return render(*(("--values", str(CHART / "ci" / request.param)) if request.param else ()))


POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    """The manifests of these kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def webhooks(manifests: list[Manifest]) -> list[Manifest]:
    """Every entry of both webhook configurations."""
    configurations = of_kind(manifests, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    return [entry for configuration in configurations for entry in configuration["webhooks"]]


def rules(manifests: list[Manifest], *, ours: bool = False) -> Iterator[dict[str, Any]]:
    """Every rule about resources of every role; `ours` leaves out the roles meant for people."""
    for role in of_kind(manifests, "Role", "ClusterRole"):
        if not (ours and role["metadata"]["name"].endswith("-role")):
            # None of its own where others are gathered.
            yield from (rule for rule in role.get("rules", []) if "nonResourceURLs" not in rule)


def selects(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """A label selector, as far as the chart uses it."""
    selector = selector or {}
    equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "NotIn"
        equal = equal and labels.get(expression["key"]) not in expression["values"]
    return equal


def test_names_fit_where_a_label_must(manifests: list[Manifest]) -> None:
    """Names have at most 63 characters, and no two objects of one kind share one."""
    seen = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests]
    assert max(len(name) for _, name in seen) <= 63
    assert len(seen) == len(set(seen))


def test_namespaced_objects_are_in_the_release_namespace(manifests: list[Manifest]) -> None:
    """Nothing is put anywhere else, or left to the caller's default namespace."""
    cluster_wide = (
        "APIService", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "FlowSchema",
        "PriorityLevelConfiguration", *POLICIES
    )  # fmt: skip
    for manifest in manifests:
        if manifest["metadata"]["name"].endswith("-auth-reader"):
            assert manifest["metadata"]["namespace"] == "kube-system", "where the role is that it binds"
            continue
        if manifest["kind"] in cluster_wide or manifest["kind"].endswith("WebhookConfiguration"):
            continue
        assert manifest["metadata"]["namespace"] == NAMESPACE, manifest["kind"]


def test_pods_meet_the_restricted_standard(manifests: list[Manifest]) -> None:
    """Non-root, read-only root, no capability, no escalation, the runtime's seccomp profile."""
    for deployment in of_kind(manifests, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"].get("runAsUser", 65532) > 0, "a number, or the platform's"
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys()
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


def test_roles_name_what_they_allow(manifests: list[Manifest]) -> None:
    """No wildcard in any role, and none of ours may read Secrets or Leases it is not named in."""
    for rule in rules(manifests):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
    for rule in rules(manifests, ours=True):
        if "secrets" in rule["resources"]:
            assert len(rule["resourceNames"]) == 1
            assert "create" not in rule["verbs"]
        if "leases" in rule["resources"] and rule["verbs"] != ["create"]:
            assert rule.get("resourceNames")
        if "admissionregistration.k8s.io" in rule["apiGroups"]:
            assert len(rule["resourceNames"]) == 1
            assert "delete" not in rule["verbs"]


def test_accounts_that_tenants_reach_only_read(manifests: list[Manifest]) -> None:
    """The processes that requests of tenants reach cannot change anything; the reviews they create are questions."""
    questions = {"tokenreviews", "subjectaccessreviews"}
    for role in of_kind(manifests, "Role", "ClusterRole"):
        if role["metadata"]["name"].endswith(("-webhook", "-page")):
            for rule in role["rules"]:
                assert set(rule["verbs"]) <= {"get", "list", "watch"} or set(rule["resources"]) <= questions


def test_system_and_own_namespace_are_never_intercepted(manifests: list[Manifest]) -> None:
    """kube-system and the release's namespace are spared even when somebody labels them for management."""
    plurals = {"workloads", *(each.kind.PLURAL for each in ALL)}
    namespaced = [entry for entry in webhooks(manifests) if entry["rules"][0]["resources"][0] in plurals]
    served = {entry["rules"][0]["resources"][0] for entry in namespaced}  # a configuration may enable some kinds only
    assert {"jobs", "workloads"} <= served
    assert len(namespaced) == 2 * len(served)
    for entry in namespaced:
        for name in ("kube-system", NAMESPACE):
            labels = {"kubernetes.io/metadata.name": name, "kueue-managed": "true"}
            assert not selects(entry["namespaceSelector"], labels), entry["name"]


def test_a_call_is_short_and_without_side_effects(manifests: list[Manifest]) -> None:
    """At most five seconds, dry runs included, every served version, no DELETE, no CONNECT, no wildcard."""
    for entry in webhooks(manifests):
        assert 1 <= entry["timeoutSeconds"] <= 5
        assert entry["sideEffects"] == "None"
        assert entry["matchPolicy"] == "Equivalent"
        assert entry["admissionReviewVersions"] == ["v1"]
        (rule,) = entry["rules"]
        assert set(rule["operations"]) <= {"CREATE", "UPDATE"}
        assert "*" not in rule["resources"] + rule["apiGroups"] + rule["apiVersions"]


def test_entries_carry_kueues_names_and_paths(manifests: list[Manifest]) -> None:
    """Named and routed as Kueue's are, which has no webhook of WorkloadPriorityClasses."""
    paths = {
        entry["name"]: re.sub(
            r"^https://[^/]+", "", entry["clientConfig"].get("url", "") or entry["clientConfig"]["service"]["path"]
        )
        for entry in webhooks(manifests)
    }
    kinds = {
        **{each.kind.KIND.lower(): webhook_path(each.kind) for each in ALL},
        **{
            kind: f"kueue-x-k8s-io-v1beta2-{kind}"
            for kind in ("clusterqueue", "cohort", "resourceflavor", "workload", "workloadpriorityclass")
        },
    }
    assert {"mjob.kb.io", "vpod.kb.io", "vcohort.kb.io"} <= paths.keys()
    assert paths == {
        f"{verb[0]}{kind}.kb.io": f"/{verb}-{path}"
        for verb in ("mutate", "validate")
        for kind, path in kinds.items()
        if (verb, kind) != ("mutate", "cohort") and f"{verb[0]}{kind}.kb.io" in paths  # some kinds may be off
    }


def test_a_budget_for_every_role_with_spare_replicas(manifests: list[Manifest]) -> None:
    """More than one replica: a budget that still lets broken pods be evicted. One: none, or a drain would hang."""
    budgets = {budget["metadata"]["name"]: budget["spec"] for budget in of_kind(manifests, "PodDisruptionBudget")}
    deployments = of_kind(manifests, "Deployment")
    assert budgets.keys() == {d["metadata"]["name"] for d in deployments if d["spec"]["replicas"] > 1}
    for deployment in deployments:
        budget = budgets.get(deployment["metadata"]["name"])
        if budget is not None:
            assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
            assert budget["selector"] == deployment["spec"]["selector"]


def test_selectors_find_the_pods(manifests: list[Manifest]) -> None:
    """Every Service, and every spreading constraint, selects pods that some Deployment makes."""
    templates = [deployment["spec"]["template"] for deployment in of_kind(manifests, "Deployment")]
    for service in of_kind(manifests, "Service"):
        found = [t for t in templates if service["spec"]["selector"].items() <= t["metadata"]["labels"].items()]
        assert len(found) == 1, service["metadata"]["name"]
        ports = {port["name"] for container in found[0]["spec"]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for template in templates:
        for constraint in template["spec"]["topologySpreadConstraints"]:
            assert constraint["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_policies_hold_where_jobs_are_held(manifests: list[Manifest]) -> None:
    """Each policy is bound once, denies, and applies to the namespaces in which the webhooks are called."""
    policies, bindings = (of_kind(manifests, kind) for kind in POLICIES)
    assert [each["metadata"]["name"] for each in policies] == [each["spec"]["policyName"] for each in bindings]
    selector = next(each["namespaceSelector"] for each in webhooks(manifests) if each["name"] == "mpod.kb.io")
    for policy, binding in zip(policies, bindings, strict=True):
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert binding["spec"]["matchResources"] == {"namespaceSelector": selector}


def test_turnstile_may_start_and_release_pods_under_the_policies(manifests: list[Manifest]) -> None:
    """The policies leave out the account that the controller runs as."""
    account = next(d for d in of_kind(manifests, "ServiceAccount") if d["metadata"]["name"].endswith("-controller"))
    user = f"system:serviceaccount:{NAMESPACE}:{account['metadata']['name']}"
    for policy in of_kind(manifests, "ValidatingAdmissionPolicy"):
        (exempt,) = [each for each in policy["spec"]["matchConditions"] if each["name"] == "not-exempt"]
        assert f'"{user}"' in exempt["expression"]
