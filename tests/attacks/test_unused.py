"""What has had no running pod for 30 minutes gives its quota back (`controller.unusedAfter` of the chart). With
`waitForPodsReady`, which is off unless the configuration file has it, what never gets ready pods gives its
quota back."""

from collections.abc import Iterator

import pytest

from tests.attacks.conftest import Tenant, tenant_of
from tests.turnstile import Turnstile

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, pod]}
waitForPodsReady:
  timeout: 2s
  requeuingStrategy: {backoffLimitCount: 0}
"""


@pytest.fixture(scope="module")
def impatient(attacked: Turnstile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turnstile]:
    """Turnstile gives each Workload two seconds to have its pods ready, once."""
    file = tmp_path_factory.mktemp("etc") / "config.yaml"
    file.write_text(FILE)
    attacked.restart("--config", str(file))
    yield attacked
    attacked.stop()


@pytest.fixture
def tenant(impatient: Turnstile) -> Iterator[Tenant]:
    """A tenant with `edit` in a fresh managed namespace."""
    with tenant_of(impatient) as made:
        yield made


def test_by_a_pod_with_a_gate_of_its_own(tenant: Tenant) -> None:
    """Create a Pod with a scheduling gate of the tenant's, which stays when the Pod is admitted."""
    tenant.pod("a", cpu="2", spec={"schedulingGates": [{"name": "example.com/never"}]})
    tenant.world.wait_admitted("a", kind="Pod")
    tenant.within_quota()


def test_by_a_job_that_nobody_runs(tenant: Tenant) -> None:
    """Create a Job that names a controller which does not exist: it is resumed, and never gets pods."""
    body = tenant.job_body("a")
    body["spec"]["managedBy"] = "example.com/nobody"
    tenant.api.create(body)
    tenant.world.wait_started("a")
    tenant.within_quota()
