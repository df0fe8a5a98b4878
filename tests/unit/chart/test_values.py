"""What the values of the chart do, and what it says to wrong ones."""

import json
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.unit.chart.conftest import CHART, NAMESPACE, Manifest, Render
from turnstile.api.config import load, of_release
from turnstile.api.kinds import KINDS
from turnstile.cli import commands
from turnstile.jobs.registry import ALL
from turnstile.process.configured import job_kinds
from turnstile.release.narrowing import POLICIES

pytestmark = pytest.mark.cluster  # needs helm, which the test bed builds

ELECTION = ("--lease-duration", "--renew-deadline", "--retry-period")

Helm = Callable[..., "subprocess.CompletedProcess[str]"]


def turnstile(*arguments: str) -> Result:
    """What the program answers to arguments with which it asks no cluster and serves nothing."""
    return CliRunner().invoke(commands.create(run=never, clock=never, serving=never), arguments)


def never(*_: Any) -> Any:
    """Called where nothing may be done."""
    raise AssertionError("something was done")


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """The one manifest of that kind and name."""
    (found,) = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("values", ["", *sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))])
def test_lint_is_content(helm: Helm, values: str) -> None:
    """`helm lint --strict` finds nothing."""
    answer = helm("lint", "--strict", str(CHART), *(("--values", str(CHART / "ci" / values)) if values else ()))
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("webhok.port=1", "additional properties 'webhok' not allowed"),
        ("webhook.certs.mod=self", "additional properties 'mod' not allowed"),
        ("webhook.timeoutSeconds=6", "/webhook/timeoutSeconds"),
        ("webhook.url=http://127.0.0.1:9443", "/webhook/url"),
        ("managedNamespaces.mode=all", "/managedNamespaces/mode"),
        ("controller.replicas=0", "/controller/replicas"),
        ("image.digest=latest", "/image/digest"),
        ("managedNamespaces.label=kueue-managed", "/managedNamespaces/label"),
        ("webhook.certs.mode=existing", "webhook.certs.secretName: name the Secret"),
        ("config.namespace=other", "config.namespace: other is not the release's namespace turnstile-system"),
        ("config.internalCertManagement.enable=false", "contradicts webhook.certs.mode self"),
        ("controller.recorder.day=3", "additional properties 'day' not allowed"),
    ],
)
def test_a_wrong_value_is_refused_by_name(helm: Helm, setting: str, complaint: str) -> None:
    """An unknown, impossible or missing value stops the install and is named."""
    answer = helm("template", "turnstile", str(CHART), "--namespace", NAMESPACE, "--set", setting)
    assert answer.returncode != 0
    assert complaint in answer.stderr


def test_the_schema_knows_exactly_the_values() -> None:
    """Every value of values.yaml is in the schema and the other way round."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
        assert schema["properties"].keys() == values.keys(), path
        for key, value in values.items():
            inner = schema["properties"][key]
            if isinstance(value, dict) and value and "properties" in inner and key != "resources":
                compare(inner, value, f"{path}.{key}")

    compare(schema, values, "")


def test_the_schema_describes_every_value() -> None:
    """Editors and `helm` front ends show what each value is for, in a sentence."""

    def undescribed(schema: dict[str, Any], path: str) -> list[str]:
        inner = schema.get("properties", {})
        lacking = [f"{path}{name}" for name, each in inner.items() if not each.get("description", "").endswith(".")]
        return lacking + [found for name, each in inner.items() for found in undescribed(each, f"{path}{name}.")]

    assert undescribed(json.loads((CHART / "values.schema.json").read_text()), "") == []


def test_definitions_of_the_release_are_complete(render: Render) -> None:
    """With crds.render they say which versions are served and who converts, and stay when the release goes."""
    rendered = render("--set", "crds.render=true,api.serveV1beta1Workloads=false")
    found = {m["spec"]["names"]["kind"]: m for m in rendered if m["kind"] == "CustomResourceDefinition"}
    assert len(found) == len(list((CHART / "crds").glob("*.yaml")))
    assert {m["metadata"]["annotations"]["helm.sh/resource-policy"] for m in found.values()} == {"keep"}
    unserved = {kind for kind, m in found.items() if not all(each["served"] for each in m["spec"]["versions"])}
    assert unserved == {"Workload"}
    converted = {kind for kind, m in found.items() if m["spec"]["conversion"]["strategy"] == "Webhook"}
    assert converted == {kinds.stored.KIND for kinds in KINDS if kinds.converted} - {"Workload"}
    service = found["ClusterQueue"]["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
    names = {"name": "turnstile-webhook-service", "namespace": NAMESPACE, "path": "/convert", "port": 443}
    assert service == names


def test_opt_in_names_the_label(render: Render) -> None:
    """By default only labelled namespaces are managed."""
    manifests = render("--set", "managedNamespaces.label=example.com/batch=yes")
    configuration = named(manifests, "MutatingWebhookConfiguration", "turnstile-mutating-webhook-configuration")
    selector = next(e for e in configuration["webhooks"] if e["name"] == "mjob.kb.io")["namespaceSelector"]
    assert selector["matchLabels"] == {"example.com/batch": "yes"}


def test_exclusion_lists_names(render: Render) -> None:
    """In exclude mode every namespace is managed but the named ones, kube-system and our own."""
    manifests = render("--set", "managedNamespaces.mode=exclude,managedNamespaces.exclude={monitoring,kube-system}")
    configuration = named(manifests, "ValidatingWebhookConfiguration", "turnstile-validating-webhook-configuration")
    selector = next(e for e in configuration["webhooks"] if e["name"] == "vpod.kb.io")["namespaceSelector"]
    assert selector == {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "turnstile-system", "monitoring"],
            }
        ]
    }


def test_a_url_takes_the_place_of_service_and_pods(render: Render) -> None:
    """With webhook.url the API server calls that host, and the release starts no webhook of its own."""
    manifests = render("--set", "webhook.url=https://127.0.0.1:9443/", "--set", "controller.enabled=false")
    assert not [m for m in manifests if m["kind"] in {"Deployment", "Service", "PodDisruptionBudget"}]
    configuration = named(manifests, "MutatingWebhookConfiguration", "turnstile-mutating-webhook-configuration")
    urls = {entry["name"]: entry["clientConfig"] for entry in configuration["webhooks"]}
    assert urls["mjob.kb.io"] == {"url": "https://127.0.0.1:9443/mutate-batch-v1-job"}


def test_a_controller_in_the_cluster_certifies_the_host_of_the_url(render: Render) -> None:
    """The leader makes the certificate, so it must know under which name the webhook outside is called."""
    given = arguments(render("--set", "webhook.url=https://dev.example.com:9443"), "controller")
    assert given[given.index("--webhook-host") + 1] == "dev.example.com"


def test_own_certificates_start_from_an_empty_secret(render: Render) -> None:
    """The Secret has no data field and the webhooks no caBundle, so an upgrade leaves the leader's writes alone."""
    manifests = render()
    secret = named(manifests, "Secret", "turnstile-webhook-server-cert")
    assert not {"data", "stringData"} & secret.keys()
    for kind in ("Mutating", "Validating"):
        name = f"turnstile-{kind.lower()}-webhook-configuration"
        assert all(
            "caBundle" not in e["clientConfig"]
            for e in named(manifests, f"{kind}WebhookConfiguration", name)["webhooks"]
        )


def test_another_release_name_moves_every_name(render: Render) -> None:
    """Two installs cannot collide: every cluster-wide name starts with the release's, but for the APIServices, whose
    names Kubernetes gives."""
    for manifest in render(release="blue"):
        if manifest["kind"] == "APIService":
            continue
        assert manifest["metadata"]["name"].startswith("blue-turnstile-")


def arguments(manifests: list[Manifest], role: str) -> list[str]:
    """The command line of a role."""
    deployment = named(manifests, "Deployment", f"turnstile-{role}")
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_processes_and_webhooks_manage_the_same_namespaces(render: Render) -> None:
    """What the API server sends is what the processes hold themselves to."""
    for role in ("controller", "webhook"):
        chosen = arguments(render(), role)
        assert chosen[chosen.index("--managed-namespace-label") + 1] == "kueue-managed=true"
        excluding = arguments(render("--values", str(CHART / "ci" / "exclude-values.yaml")), role)
        assert "--managed-namespace-label" not in excluding
        assert [excluding[i + 1] for i, flag in enumerate(excluding) if flag == "--exclude-namespace"] == [
            "monitoring",
            "ingress-nginx",
        ]


def test_certificates_of_others_are_mounted_not_made(render: Render) -> None:
    """With cert-manager, the webhook reads files and the controller leaves Secret and caBundle alone."""
    manifests = render("--set", "webhook.certs.mode=certManager")
    assert "--no-manage-certificates" in arguments(manifests, "controller")
    assert "--tls-cert" in arguments(manifests, "webhook")
    pod = named(manifests, "Deployment", "turnstile-webhook")["spec"]["template"]["spec"]
    sources = [each for volume in pod["volumes"] for each in volume.get("projected", {}).get("sources", ())]
    secrets = [each["secret"]["name"] for each in sources if "secret" in each]
    assert secrets == [named(manifests, "Certificate", "turnstile-webhook")["spec"]["secretName"]]
    rules = [rule for m in manifests if m["kind"] == "Role" for rule in m["rules"]]
    assert not [rule for rule in rules if "secrets" in rule["resources"]]


@pytest.mark.parametrize("values", ["exclude-values.yaml", "cert-manager-values.yaml"])
def test_the_program_knows_every_argument(render: Render, values: str) -> None:
    """What the chart passes is what `turnstile serve` takes; the default values are tried in tests/cluster."""
    manifests = render("--values", str(CHART / "ci" / values))
    both = [*arguments(manifests, "controller"), *arguments(manifests, "webhook")[1:]]
    # --help after an unknown option is still an error, after a known one it is help.
    answer = turnstile(*both, "--help")
    assert answer.exit_code == 0, answer.stderr


def visible(manifests: list[Manifest]) -> list[str]:
    """Kinds and names of what belongs to the visibility API."""
    names = ("visibility", "pending-workloads")
    found = [f"{each['kind']}/{each['metadata']['name']}" for each in manifests]
    return sorted(name for name in found if any(word in name for word in names))


def test_the_visibility_api_is_registered_and_may_be_read(render: Render) -> None:
    """By default: both versions, the Service of the controller's pods, and Kueue's roles."""
    manifests = render()
    assert visible(manifests) == [
        "APIService/v1beta1.visibility.kueue.x-k8s.io",
        "APIService/v1beta2.visibility.kueue.x-k8s.io",
        "ClusterRole/turnstile-pending-workloads-cq-viewer-role",
        "ClusterRole/turnstile-pending-workloads-lq-viewer-role",
        "RoleBinding/turnstile-visibility-server-auth-reader",
        "Service/turnstile-visibility-server",
    ]
    service = named(manifests, "APIService", "v1beta2.visibility.kueue.x-k8s.io")["spec"]["service"]
    assert service == {"name": "turnstile-visibility-server", "namespace": NAMESPACE, "port": 443}
    assert "0.0.0.0:8082" in arguments(manifests, "controller")
    policy = named(manifests, "NetworkPolicy", "turnstile-controller")
    assert [{"port": 8082, "protocol": "TCP"}] in [rule["ports"] for rule in policy["spec"]["ingress"]]


@pytest.mark.parametrize(
    "setting",
    [
        "visibility.enabled=false",
        "featureGates.VisibilityOnDemand=false",
        "config.featureGates.VisibilityOnDemand=false",
        "controller.enabled=false",
    ],
)
def test_an_api_that_is_not_served_is_not_registered(render: Render, setting: str) -> None:
    """While a registered API is not available no namespace is deleted to the end."""
    manifests = render("--set", setting)
    assert visible(manifests) == []
    text = str(manifests)
    assert "apiservices" not in text
    assert "--visibility-bind" not in text


def test_the_port_of_the_file_is_the_port_of_the_visibility_api(render: Render) -> None:
    """`visibilityServer` of the configuration takes the place of `visibility.port`."""
    manifests = render("--set", "config.visibilityServer.bindPort=9082")
    assert "0.0.0.0:9082" in arguments(manifests, "controller")
    ports = named(manifests, "Deployment", "turnstile-controller")["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert {"name": "visibility", "containerPort": 9082, "protocol": "TCP"} in ports


def test_the_visibility_api_has_the_certificate_of_the_webhook(render: Render) -> None:
    """Whoever makes it: for the names of both Services, read by the controller's pods, its bundle in APIServices."""
    manifests = render("--set", "webhook.certs.mode=certManager")
    hosts = named(manifests, "Certificate", "turnstile-webhook")["spec"]["dnsNames"]
    assert f"turnstile-visibility-server.{NAMESPACE}.svc" in hosts
    assert "--tls-cert" in arguments(manifests, "controller")
    service = named(manifests, "APIService", "v1beta1.visibility.kueue.x-k8s.io")
    injected = service["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == f"{NAMESPACE}/turnstile-webhook"
    assert "apiservices" not in str(manifests)

    manifests = render(
        *(
            part
            for each in ("mode=existing", "secretName=own", "caBundle=LS0t")
            for part in ("--set", f"webhook.certs.{each}")
        )
    )
    assert named(manifests, "APIService", "v1beta1.visibility.kueue.x-k8s.io")["spec"]["caBundle"]
    assert "--tls-key" in arguments(manifests, "controller")


def test_the_times_of_the_election_are_values(render: Render) -> None:
    """Those of Kueue by default; a time that the config has takes the place of that one, and of no other."""

    def given(*values: str) -> list[str]:
        found = arguments(render(*values), "controller")
        return [found[found.index(flag) + 1] for flag in ELECTION if flag in found]

    assert given() == ["15", "10", "2"]
    quick = [f"controller.leaderElection.{each}" for each in ("leaseDuration=4", "renewDeadline=3", "retryPeriod=0.4")]
    assert given("--set", ",".join(quick)) == ["4", "3", "0.4"]
    assert given("--set", "config.leaderElection.leaseDuration=20s") == ["10", "2"]
    assert given("--set", "config.leaderElection.leaderElect=true") == ["15", "10", "2"]


def test_the_lease_is_asked_for_at_a_priority_of_its_own(render: Render) -> None:
    """By default, matched before the other requests of the same account."""
    schemas = [m for m in render() if m["kind"] == "FlowSchema"]
    levels = {m["metadata"]["name"]: m["spec"]["priorityLevelConfiguration"]["name"] for m in schemas}
    assert levels == {"turnstile-requests": "workload-high", "turnstile-leader-election": "leader-election"}
    of_lease, others = sorted(schemas, key=lambda m: m["spec"]["matchingPrecedence"])
    assert of_lease["metadata"]["name"] == "turnstile-leader-election"
    assert others["metadata"]["name"] == "turnstile-requests"
    assert not [m for m in render("--set", "flowSchema.enabled=false") if m["kind"] == "FlowSchema"]


CONFIG = CHART / "ci" / "config-values.yaml"


def test_without_config_there_is_no_file(render: Render) -> None:
    """Flags alone, no ConfigMap, no further volume."""
    manifests = render()
    assert not [m for m in manifests if m["kind"] == "ConfigMap"]
    assert "--config" not in arguments(manifests, "controller")


def test_config_becomes_a_file_that_both_roles_read(render: Render) -> None:
    """A ConfigMap, mounted as a directory so that changes arrive, and the flag."""
    manifests = render("--values", str(CONFIG))
    data = yaml.safe_load(named(manifests, "ConfigMap", "turnstile-config")["data"]["config.yaml"])
    assert (data["apiVersion"], data["kind"]) == ("config.kueue.x-k8s.io/v1beta2", "Configuration")
    for role in ("controller", "webhook"):
        chosen = arguments(manifests, role)
        assert chosen[chosen.index("--config") + 1] == "/etc/turnstile/config.yaml"
        pod = named(manifests, "Deployment", f"turnstile-{role}")["spec"]["template"]["spec"]
        (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == "/etc/turnstile"]
        assert "subPath" not in mount


def test_a_file_of_the_chart_holds(render: Render, tmp_path: Path) -> None:
    """What the chart writes passes `turnstile config check`."""
    file = tmp_path / "config.yaml"
    file.write_text(named(render("--values", str(CONFIG)), "ConfigMap", "turnstile-config")["data"]["config.yaml"])
    answer = turnstile("config", "check", str(file))
    assert (answer.exit_code, answer.stderr) == (0, "")


def test_another_file_makes_new_pods(render: Render) -> None:
    """Most of a file is read once, so its checksum is on the pods."""

    def checksum(*arguments: str) -> str:
        deployment = named(render("--values", str(CONFIG), *arguments), "Deployment", "turnstile-controller")
        text: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        return text

    assert checksum() == checksum("--set", "controller.logLevel=debug")
    assert checksum() != checksum("--set", "config.manageJobsWithoutQueueName=false")


def test_namespaces_of_the_file_are_those_of_the_webhooks(render: Render) -> None:
    """The selector of the file takes the place of managedNamespaces, in the webhooks and for the processes."""
    manifests = render("--values", str(CONFIG))
    assert "--managed-namespace-label" not in arguments(manifests, "controller")
    configuration = named(manifests, "MutatingWebhookConfiguration", "turnstile-mutating-webhook-configuration")
    selector = next(e for e in configuration["webhooks"] if e["name"] == "mjob.kb.io")["namespaceSelector"]
    assert selector["matchLabels"] == {"team": "research"}
    assert selector["matchExpressions"][0]["values"] == ["kube-system", "turnstile-system"]


def test_kinds_that_are_not_enabled_are_not_intercepted(render: Render) -> None:
    """Without `pod` among the frameworks no pod is sent to us, unless a kind needs it whose pods are queued."""

    def entries(*arguments: str) -> set[str]:
        kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        return {e["name"] for m in render(*arguments) if m["kind"] in kinds for e in m["webhooks"]}

    without = entries("--set", "config.integrations.frameworks={batch/job}")
    assert entries("--set", "config.integrations.frameworks={batch/job,pod}") - without == {"mpod.kb.io", "vpod.kb.io"}
    parents = entries("--set", "config.integrations.frameworks={deployment}")
    assert {"mdeployment.kb.io", "mpod.kb.io"} < parents
    assert "mjob.kb.io" not in parents
    assert entries("--set", "config.manageJobsWithoutQueueName=false") == entries()
    assert parents < entries("--values", str(CONFIG)) < entries()


def test_a_gate_enables_its_kind(render: Render) -> None:
    """The API server asks about the kind, and both roles get the flag; with a configuration file the gate is there."""
    spark = "featureGates.SparkApplicationIntegration=true"

    def entries(*arguments: str) -> set[str]:
        kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        return {e["name"] for m in render(*arguments) if m["kind"] in kinds for e in m["webhooks"]}

    assert entries("--set", spark) - entries() == {"msparkapplication.kb.io", "vsparkapplication.kb.io"}
    for manifest in render("--set", spark):
        if manifest["kind"] == "Deployment":
            (container,) = manifest["spec"]["template"]["spec"]["containers"]
            flag = container["args"].index("--feature-gates")
            assert container["args"][flag + 1] == "SparkApplicationIntegration=true"


def test_jobs_of_other_controllers_may_be_read_and_get_the_status_of_their_copies(render: Render) -> None:
    """As the configuration names their kinds; so may ClusterProfiles be read with their gate."""
    names = ["Workflow.v1alpha1.argoproj.io", "Policy.v1.example.com", "Sweep.v1.example.com"]
    file = [f"config.multiKueue.externalFrameworks[{index}].name={each}" for index, each in enumerate(names)]
    file.append("config.multiKueue.externalFrameworks[2].plural=sweepware")
    gate = "config.featureGates.MultiKueueClusterProfile=true"
    given = [part for each in (*file, gate) for part in ("--set", each)]
    roles = [each for each in render(*given) if each["kind"] in ("ClusterRole", "Role")]
    rules = [rule for each in roles if each["metadata"]["name"] == "turnstile-controller" for rule in each["rules"]]
    found = {(rule["apiGroups"][0], each): rule["verbs"] for rule in rules for each in rule["resources"]}
    read = ["get", "list", "watch"]
    for group, plural in (("argoproj.io", "workflows"), ("example.com", "policies"), ("example.com", "sweepware")):
        assert (found[group, plural], found[group, f"{plural}/status"]) == (read, ["patch"])
    assert found["multicluster.x-k8s.io", "clusterprofiles"] == read


def policies(manifests: list[Manifest]) -> set[str]:
    """The names of the admission policies."""
    return {each["metadata"]["name"] for each in manifests if each["kind"] == "ValidatingAdmissionPolicy"}


def test_the_policies_of_the_chart_are_those_that_preflight_knows(render: Render) -> None:
    """Preflight names each that a release lacks, so it has to know them all."""
    assert policies(render()) == {f"turnstile-{each}" for each in POLICIES}


@pytest.mark.parametrize(
    "value",
    [
        "config.objectRetentionPolicies.workloads.afterFinished=1h",
        "config.integrations.labelKeysToCopy={team}",
        "config.integrations.frameworks=null",
    ],
)
def test_config_is_laid_over_what_the_other_values_say(render: Render, value: str) -> None:
    """A `config` that names no job kinds takes none away, nor the policies that are made for them, and keeps
    `featureGates`: the file says all that holds, so that Kueue's default for a file without them does not."""
    gates = (
        "featureGates.PriorityBoost=true,featureGates.PartialAdmission=false,config.featureGates.PriorityBoost=false"
    )
    bare, laid = render(), render("--set", f"{value},{gates}")
    entries = [
        {e["name"] for m in each if m["kind"] == "MutatingWebhookConfiguration" for e in m["webhooks"]}
        for each in (bare, laid)
    ]
    assert (entries[1], policies(laid)) == (entries[0], policies(bare))
    file = named(laid, "ConfigMap", "turnstile-config")["data"]["config.yaml"]
    loaded = load(file, installation=of_release("turnstile", NAMESPACE), frameworks=[each.framework for each in ALL])
    assert job_kinds(loaded).enabled == job_kinds(None).enabled
    assert {"PriorityBoost", "PartialAdmission"}.isdisjoint(loaded.gates)
    assert loaded.warnings == ()


def test_a_gate_beside_config_enables_its_kind(render: Render) -> None:
    """`featureGates` counts as much as gates in `config` do."""
    other = "config.objectRetentionPolicies.workloads.afterFinished=1h,featureGates.SparkApplicationIntegration=true"
    file = yaml.safe_load(named(render("--set", other), "ConfigMap", "turnstile-config")["data"]["config.yaml"])
    assert "sparkoperator.k8s.io/sparkapplication" in file["integrations"]["frameworks"]


def test_config_may_manage_every_job(render: Render) -> None:
    """With manageJobsWithoutQueueName in the file every pod of a managed namespace is asked about."""
    file = "config.manageJobsWithoutQueueName=true,config.integrations.frameworks={batch/job,pod}"
    configuration = named(
        render("--set", file), "MutatingWebhookConfiguration", "turnstile-mutating-webhook-configuration"
    )
    pods = next(entry for entry in configuration["webhooks"] if entry["name"] == "mpod.kb.io")
    assert "matchConditions" not in pods


def test_policies_can_be_left_out(render: Render) -> None:
    """An API server that is older than they are gets none."""
    manifests = render("--set", "admissionPolicies.enabled=false")
    assert not [each for each in manifests if each["kind"].startswith("ValidatingAdmissionPolicy")]


def test_each_write_is_judged_by_one_policy(render: Render) -> None:
    """So that whoever is refused reads one message."""
    rules = [
        (group, resource, operation)
        for policy in render()
        if policy["kind"] == "ValidatingAdmissionPolicy"
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group, resource, operation in product(rule["apiGroups"], rule["resources"], rule["operations"])
    ]
    assert ("", "pods", "UPDATE") in rules
    assert len(set(rules)) == len(rules)


def test_pods_are_guarded_for_each_enabled_kind_that_makes_pods(render: Render, tmp_path: Path) -> None:
    """Also for a kind that the configuration file describes, unless it makes none."""
    entry = {"framework": "example.com/a", "group": "example.com", "version": "v1", "kind": "A", "plural": "as"}
    integrations = {
        "frameworks": ["batch/job", "kubeflow.org/mpijob", "jobset.x-k8s.io/jobset"],
        "customKinds": [
            {**entry, "podSets": []},
            {**entry, "framework": "example.com/b", "kind": "B", "podSets": [], "makes": ["Job.batch"]},
        ],
    }
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"config": {"integrations": integrations}}))
    policy = named(render("--values", str(values)), "ValidatingAdmissionPolicy", "turnstile-pods")
    expressions = [each["expression"] for each in policy["spec"]["validations"]]
    assert sum('["apps/StatefulSet","kubeflow.org/MPIJob","example.com/A"]' in each for each in expressions) == 1


def test_other_controllers_of_jobs_may_create_their_pods(render: Render) -> None:
    """Whoever runs Jobs with another `managedBy` is listed beside the Job controller."""
    user = "system:serviceaccount:jobs:other"
    manifests = render("--set", f"admissionPolicies.jobControllers={{{user}}}")
    policy = named(manifests, "ValidatingAdmissionPolicy", "turnstile-pods")
    expressions = [each["expression"] for each in policy["spec"]["validations"]]
    assert sum(each.endswith(f'|| request.userInfo.username in ["{user}"]') for each in expressions) == 2


def test_the_recorder_is_on_when_asked(render: Render) -> None:
    """Its file is on a volume of the controller's pods, and commands in the pod find it."""
    controller = named(render("--set", "controller.recorder.enabled=true"), "Deployment", "turnstile-controller")
    (container,) = controller["spec"]["template"]["spec"]["containers"]
    assert container["args"][container["args"].index("--recorder-mib") + 1] == "1024"
    assert {"name": "TURNSTILE_RECORDER", "value": "/var/lib/turnstile/recorder.db"} in container["env"]
    assert {"name": "recorder", "mountPath": "/var/lib/turnstile"} in container["volumeMounts"]
    assert {"name": "recorder", "emptyDir": {}} in controller["spec"]["template"]["spec"]["volumes"]


def test_the_recorder_in_a_database_has_its_url_from_a_secret(render: Render) -> None:
    """No argument shows it. The controller may reach the database, and certificates of the Secret are mounted."""
    values = (
        "enabled=true",
        "decisions=true",
        "postgres.secretName=history",
        "postgres.secretKey=uri",
        "postgres.port=6432",
    )
    options = [part for value in values for part in ("--set", f"controller.recorder.{value}")]
    manifests = render(*options, "--set", "networkPolicy.egress=true")
    (container,) = named(manifests, "Deployment", "turnstile-controller")["spec"]["template"]["spec"]["containers"]
    assert {each for each in container["args"] if each.startswith("--recorder")} == {
        "--recorder-days",
        "--recorder-decisions",
    }
    reference = {"secretKeyRef": {"name": "history", "key": "uri"}}
    assert {"name": "TURNSTILE_RECORDER", "valueFrom": reference} in container["env"]
    mount = {"name": "recorder", "mountPath": "/etc/turnstile-recorder", "readOnly": True}
    assert mount in container["volumeMounts"]
    egress = named(manifests, "NetworkPolicy", "turnstile-controller")["spec"]["egress"]
    assert {"ports": [{"port": 6432, "protocol": "TCP"}]} in egress
    webhook = named(manifests, "Deployment", "turnstile-webhook")
    assert "history" not in str(webhook)


def test_a_claim_of_the_recorder_is_for_one_pod(helm: Helm, render: Render) -> None:
    """Two pods would write to one file, or wait for one volume for ever."""
    claim = (
        "--set", "controller.recorder.enabled=true", "--set", "controller.recorder.volume.emptyDir=null",
        "--set", "controller.recorder.volume.persistentVolumeClaim.claimName=kept",
    )  # fmt: skip
    answer = helm("template", "turnstile", str(CHART), "--namespace", NAMESPACE, *claim)
    assert "set controller.replicas to 1" in answer.stderr
    controller = named(render(*claim, "--set", "controller.replicas=1"), "Deployment", "turnstile-controller")
    assert controller["spec"]["strategy"] == {"type": "Recreate"}
