"""What the API server does not ask the webhooks about, and that it asks whenever a rule could refuse."""

import pytest

from testbed import ControlPlane
from testbed.errors import ApiError
from tests.cluster.scenario import Scenario, job

pytestmark = pytest.mark.cluster
PREFIX = "kueue.x-k8s.io"


@pytest.mark.parametrize(
    ("labels", "annotations", "template", "complaint"),
    [
        ({f"{PREFIX}/queue-name": "Not_A_Name"}, {}, {}, "RFC 1123 subdomain"),
        ({f"{PREFIX}/max-exec-time-seconds": "soon"}, {}, {}, "max-exec-time-seconds"),
        ({}, {f"{PREFIX}/job-min-parallelism": "9"}, {}, "should be between 0 and"),
        ({}, {f"{PREFIX}/prebuilt-workload-name": "Not_A_Name"}, {}, "RFC 1123 subdomain"),
        ({}, {}, {f"{PREFIX}/podset-unconstrained-topology": "perhaps"}, "must be a boolean value"),
    ],
)
def test_a_new_job_that_breaks_a_rule_is_refused(
    scenario: Scenario, labels: dict[str, str], annotations: dict[str, str], template: dict[str, str], complaint: str
) -> None:
    """Wherever the offending key stands: in a label, an annotation, or an annotation of the pods."""
    made = job("offending", namespace=scenario.namespace, queue="main", labels=labels)
    made["metadata"]["annotations"] = annotations
    made["spec"]["template"]["metadata"]["annotations"] = template
    with pytest.raises(ApiError, match=complaint):
        scenario.create(made)


def test_a_new_job_with_a_queue_name_alone_is_not_validated_by_us(
    control_plane: ControlPlane, scenario: Scenario
) -> None:
    """It is suspended by one call; a second one could only say yes."""

    def asked() -> int:
        metrics = control_plane.api.get("/metrics")
        lines = [line for line in metrics.splitlines() if line.startswith("apiserver_admission_webhook_request_total")]
        return sum(int(float(line.split()[-1])) for line in lines if 'name="vjob.kb.io"' in line)

    before = asked()
    made = scenario.job("plain", queue="main")
    assert made["spec"]["suspend"]
    assert asked() == before
