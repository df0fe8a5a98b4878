"""The chart's values from Kueue's configuration, and what they lack: `turnstile config convert`."""

import subprocess
import sys

import pytest
import yaml

from tests.unit.config.files import BUILT, HEAD, INSTALLATION, OLD_HEAD
from turnstile.api.config.takeover import Takeover, take_over
from turnstile.api.errors import InvalidConfiguration


def taken(text: str) -> Takeover:
    """What can be taken over of a configuration."""
    return take_over(text, installation=INSTALLATION, frameworks=BUILT)


def config_map(**data: str) -> str:
    """Kueue's ConfigMap as kubectl prints it."""
    metadata = {"name": "kueue-manager-config", "namespace": "kueue-system"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def test_a_configuration_is_taken_over_as_it_is() -> None:
    """Every field, also those that have no effect here: these are warnings."""
    text = HEAD + "clientConnection: {qps: 50, burst: 100}\nintegrations: {frameworks: [batch/job, pod]}\n"
    found = taken(text)
    assert found.values()["config"] == yaml.safe_load(text)
    assert [each.path for each in found.without_effect] == ["clientConnection"]
    assert found.left_out == ()


@pytest.mark.parametrize("body", ["", "integrations: {}\n", "integrations: {frameworks: null}\n"])
def test_a_file_without_job_kinds_keeps_the_one_that_it_means(body: str) -> None:
    """The values name batch/job: the chart takes a `config` without job kinds for all of them."""
    found = taken(HEAD + body)
    assert found.values()["config"]["integrations"]["frameworks"] == ["batch/job"]
    assert (found.left_out, found.without_effect) == ((), ())


@pytest.mark.parametrize("head", [HEAD, OLD_HEAD], ids=["v1beta2", "v1beta1"])
def test_the_config_map_is_read_too(head: str) -> None:
    """As `kubectl get configmap kueue-manager-config -o yaml` prints it, in both versions of the file."""
    assert taken(config_map(**{"controller_manager_config.yaml": head})).values() == taken(head).values()


def test_all_namespaces_are_managed_as_kueue_does() -> None:
    """All but those of Kueue; a selector in the file says so itself."""
    assert taken(HEAD).values()["managedNamespaces"] == {"mode": "exclude", "exclude": ["kueue-system"]}
    assert "managedNamespaces" not in taken(HEAD + "managedJobsNamespaceSelector: {matchLabels: {team: a}}\n").values()


def test_certificates_of_cert_manager_stay_with_it() -> None:
    """Where Kueue did not make its own."""
    found = taken(HEAD + "internalCertManagement: {enable: false}\n").values()
    assert found["webhook"] == {"certs": {"mode": "certManager"}}


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("tls: {curvePreferences: [29, 23]}\n", "tls.curvePreferences: Python's ssl can be given one curve"),
        ("integrations: {frameworks: [batch/job, foo/bar]}\n", "integrations.frameworks[1]: foo/bar is not built"),
        ("featureGates: {LendingLimit: false}\n", "featureGates.LendingLimit: is on for good (it was off"),
        ("featureGates: {DynamicResourceAllocation: true}\n", "featureGates.DynamicResourceAllocation: is no gate"),
        (
            "featureGates: {ElasticJobsViaWorkloadSlicesWithTAS: true}\n",
            "growth of elastic jobs whose pods have places in a topology is not built yet",
        ),
        ("later: {of: 1}\n", "later: unknown field"),
    ],
)
def test_what_is_not_built_is_left_out_and_named(body: str, line: str) -> None:
    """With the line of the file and what it means; what remains holds."""
    found = taken(HEAD + body)
    [problem] = found.left_out
    assert line in str(problem)
    assert problem.line == 3
    assert problem.cure
    assert taken(yaml.safe_dump(found.values()["config"])).left_out == ()


@pytest.mark.parametrize(
    "body",
    [
        "pprofBindAddress: :8083\n",
        "leaderElection: {leaderElect: false}\n",
        "featureGates: {HierarchicalCohorts: true}\n",
        "namespace: kueue-system\n",
        "health: {readinessEndpointName: ready}\n",
    ],
)
def test_what_nothing_depends_on_is_left_out_with_a_warning(body: str) -> None:
    """It is not among what changes the cluster."""
    found = taken(HEAD + body)
    [warning] = found.without_effect
    assert warning.cure.startswith("nothing depends on it")
    assert found.left_out == ()


def test_several_things_at_once() -> None:
    """Also such that only show once others are left out; in the order of the file."""
    body = "unknown: 1\nmultiKueue: {gcInterval: 1m, unknown: 2}\n"
    found = taken(HEAD + body + "integrations:\n  frameworks:\n  - a/b\n  - pod\n  - c/d\n")
    assert [each.path for each in found.left_out] == [
        "unknown",
        "multiKueue.unknown",
        "integrations.frameworks[0]",
        "integrations.frameworks[2]",
    ]
    assert found.values()["config"]["integrations"]["frameworks"] == ["pod"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: Configuration\n", "apiVersion: is missing"),
        (HEAD + "fairSharing: {}\n", "fairSharing.preemptionStrategies"),
        (HEAD + "webhook: {port: 1}\nwebhook: {port: 2}\n", "is given twice"),
        (config_map(other="1"), "the ConfigMap has no controller_manager_config.yaml, but other"),
        ("[]", "is no mapping"),
    ],
    ids=["no version", "a field is missing", "twice", "another ConfigMap", "a list"],
)
def test_what_cannot_be_taken_over_is_an_error(text: str, complaint: str) -> None:
    """It names the field."""
    with pytest.raises(InvalidConfiguration) as caught:
        taken(text)
    assert any(complaint in str(each) for each in caught.value.problems)


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("clientConnection: {qps: 50}\n", 0, "warning: -:3: clientConnection: has no effect"),
        ("tls: {curvePreferences: [29, 23]}\n", 1, "left out: -:3: tls.curvePreferences: "),
        ("fairSharing: {}\n", 2, "error: -:3: fairSharing.preemptionStrategies: "),
    ],
)
def test_the_command_tells_by_its_exit_code(body: str, code: int, says: str) -> None:
    """The values go to standard output, unless there are none, and what is to be known of them beside it."""
    command = [sys.executable, "-m", "turnstile", "config", "convert", "-"]
    done = subprocess.run(command, input=HEAD + body, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert done.stderr.startswith(says)
    assert bool(done.stdout) is (code < 2)
