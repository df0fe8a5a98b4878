"""A file says what it means, or is told line by line why it does not."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.config.files import BUILT, HEAD, INSTALLATION, faults, loaded, told
from turnstile.api.config import load
from turnstile.api.errors import InvalidConfiguration


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("leaderelection: {}", "line 3: leaderelection: unknown field (did you mean leaderElection?)"),
        (
            "webhook:\n  prot: 9443",
            "line 4: webhook.prot: unknown field (did you mean port?)",
        ),
        (
            "health:\n  colour: red",
            (
                "line 4: health.colour: unknown field "
                "(known here: healthProbeBindAddress, readinessEndpointName, livenessEndpointName)"
            ),
        ),
        (
            'manageJobsWithoutQueueName: "yes"',
            "line 3: manageJobsWithoutQueueName: must be true or false, not 'yes' (without quotes)",
        ),
        ("webhook: {port: '9443'}", "line 3: webhook.port: must be a whole number, not '9443' (without quotes)"),
        ("namespace: 7", "line 3: namespace: must be text, not 7 (put it in quotes)"),
        ("integrations: [pod]", "line 3: integrations: must be a mapping (write key: value)"),
        (
            "integrations:\n  frameworks: pod",
            "line 4: integrations.frameworks: must be a list, not 'pod' (write - before each item)",
        ),
        (
            "leaderElection:\n  leaseDuration: 15",
            "line 4: leaderElection.leaseDuration: must be a duration in text, for example 30s or 5m, not 15",
        ),
        (
            "admissionFairSharing:\n  usageHalfLifeTime: 7 days",
            (
                "line 4: admissionFairSharing.usageHalfLifeTime: is not a duration: write numbers with units, "
                "for example 30s, 5m or 1h30m, not '7 days'"
            ),
        ),
        (
            "resources:\n  transformations:\n  - input: cpu\n    outputs:\n      credits: many",
            "line 7: resources.transformations[0].outputs.credits: must be a quantity, for example 4, 250m or 16Gi",
        ),
        ("namespace: a\nnamespace: b", "line 4: namespace: is given twice, first on line 3 (keep one)"),
        ("clientConnection: {burst: 3000000000}", "line 3: clientConnection.burst: Input should be less than"),
    ],
)
def test_a_fault_is_told_with_its_line(body: str, fault: str) -> None:
    """Unknown fields, wrong types, wrong values and repetitions are named with path and line."""
    (found,) = told(body)
    assert found.startswith(fault)


def test_all_faults_are_told_at_once_in_order_of_lines() -> None:
    """One look at a file is enough to mend it."""
    found = faults("wrong: 1\nwebhook: {port: x}\nhealth: {healthProbeBindAddress: 1}")
    assert [fault.line for fault in found] == [3, 4, 5]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "apiVersion: is missing"),
        ("kind: Configuration\napiVersion: v1", "line 2: apiVersion: 'v1' is not known"),
        ("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Job", "line 2: kind: is 'Job' (write kind: Configuration)"),
        ("- a\n- b", "line 1: is no mapping"),
        ("a: [1\nb: 2", "line 2: is no YAML: "),
        (f"{HEAD}---\n{HEAD}", "line 3: is no YAML: expected a single document"),
        (f"{HEAD}webhook: &a\n  port: *a", "an alias of itself"),
        (HEAD + "x: &a [" + "1," * 10 + "]\ny: " + "[" * 200 + "]" * 200, "holds too much"),
        ("a: \x00", "is no YAML"),
        (HEAD + "#" * (1 << 20), "is larger than 1 MiB"),
        (f"{HEAD}? [a]\n: b", "line 3: a key is no text"),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, fault: str) -> None:
    """Another kind, another version, several documents, no YAML, or too much of it."""
    with pytest.raises(InvalidConfiguration) as caught:
        load(text, installation=INSTALLATION, frameworks=BUILT)
    assert any(fault in str(problem) for problem in caught.value.problems), caught.value


def test_aliases_that_multiply_are_cut_off() -> None:
    """A small file cannot become a large one."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (fault,) = faults("\n".join(lines))
    assert "holds too much" in fault.message


def test_null_counts_as_absent() -> None:
    """`field: null` and `field:` leave the default, as for Kubernetes."""
    assert loaded("webhook:\nnamespace: null\n").configuration.namespace == "turnstile-system"


def test_json_is_read_too() -> None:
    """JSON is YAML."""
    text = '{"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "own"}'
    assert load(text, installation=INSTALLATION, frameworks=BUILT).configuration.namespace == "own"


def test_merge_keys_are_followed() -> None:
    """`<<` puts another mapping's keys in, and one's own win without being called a repetition."""
    body = "webhook: &w {port: 1, host: a}\nhealth: {}\n"
    assert loaded(body).configuration.webhook.port == 1
    config = loaded("webhook:\n  <<: {port: 1, host: a}\n  port: 2\n").configuration
    assert (config.webhook.port, config.webhook.host) == (2, "a")


WORDS = st.sampled_from([
    "apiVersion: config.kueue.x-k8s.io/v1beta2", "kind: Configuration", "webhook", "port", ":", "-", " ", "\n", "  ",
    "1", "[",
    "]", "{", "}", '"', "&a", "*a", "<<", "featureGates", "true", "null", "integrations", "frameworks", "pod",
    "5m", "é", "\t",
    "resources", "transformations", "leaderElection", "leaseDuration",
])  # fmt: skip


@settings(deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=40).map("".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in any other way than by telling what is wrong with it."""
    for head in ("", HEAD):
        with contextlib.suppress(InvalidConfiguration):
            load(head + text, installation=INSTALLATION, frameworks=BUILT)


@pytest.mark.parametrize(("written", "nanoseconds"), [("3000000000", 3 * 10**9), ("3s", 3 * 10**9)])
def test_the_cache_sync_timeout_is_a_number_of_nanoseconds(written: str, nanoseconds: int) -> None:
    """Kueue has a bare number in this one field; a duration in text is taken too."""
    controller = loaded(f"controller: {{cacheSyncTimeout: {written}}}").configuration.controller
    assert controller is not None
    assert controller.plain() == {"cacheSyncTimeout": nanoseconds}


@pytest.mark.parametrize("written", ["true", "1.5", str(2**63)])
def test_a_cache_sync_timeout_that_is_no_whole_number_is_refused(written: str) -> None:
    """Neither are fractions of a nanosecond, nor more than 64 bits hold."""
    (fault,) = told(f"controller: {{cacheSyncTimeout: {written}}}")
    assert fault.startswith("line 3: controller.cacheSyncTimeout: ")
