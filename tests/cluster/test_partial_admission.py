"""A Job that may run with fewer pods is started with them, whatever its webhook asks, and stays open to edits."""

from collections.abc import Iterator

import pytest

from testbed.client import Api, Json
from testbed.installation import RELEASE
from tests.cluster.scenario import Scenario, job, job_path
from turnstile.api import names

PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture
def asked_always(api: Api, scenario: Scenario) -> Iterator[None]:
    """The webhook of Jobs is asked about every write in this namespace, Turnstile's too, as in Kueue's installation."""
    installed = api.get(f"{PATH}/{RELEASE}-validating-webhook-configuration")
    (hook,) = (each for each in installed["webhooks"] if each["name"] == "vjob.kb.io")
    hook = {key: value for key, value in hook.items() if key != "matchConditions"}
    hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": scenario.namespace}}
    name = scenario.named("asked-always")
    api.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [hook],
        }
    )
    yield
    api.delete(f"{PATH}/{name}")


def partial(namespace: str, **spec: object) -> Json:
    """A Job of three pods that makes do with one."""
    body = job("train", namespace=namespace, queue="main", pods=3)
    body["metadata"]["annotations"] = {names.JOB_MIN_PARALLELISM: "1"}
    body["spec"].update(spec)
    return body


@pytest.mark.usefixtures("asked_always")
def test_a_job_admitted_at_its_minimum_starts_runs_and_can_be_labelled(api: Api, scenario: Scenario) -> None:
    """Its parallelism is what was admitted then, and an edit of its labels is none of that."""
    flavor = scenario.flavor("plain", labels={"pool": "plain"})
    scenario.queue("main", {flavor: {"cpu": 1}})
    scenario.create(partial(scenario.namespace))
    started = scenario.wait_started("train")
    assert started["spec"]["parallelism"] == 1
    path = job_path(scenario.namespace, "train")
    api.wait_for(path, lambda j: j["status"].get("ready") == 1, describe="runs")

    api.patch(path, {"metadata": {"labels": {"team": "blue"}}})
    workload = scenario.workload_of("train")
    api.patch(api.path_of(workload), {"spec": {"active": False}})
    stopped = api.wait_for(path, lambda j: j["spec"]["parallelism"] == 3, describe="stopped, with its own parallelism")
    assert stopped["spec"]["suspend"] is True
