"""Words about the pods that operators make."""

from collections import Counter

from testbed import Api, resource_path
from testbed.client import wait_until


def wait_running(
    api: Api, namespace: str, wanted: dict[str, int], *, by: str, labels: str | None = None, timeout: float = 30
) -> None:
    """Until so many pods run for each value of the label `by`; `labels` narrows which pods are looked at."""
    seen: dict[str, int] = {}

    def look() -> bool:
        nonlocal seen
        pods = api.items(resource_path("v1", "pods", namespace=namespace), labels=labels)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        seen = dict(Counter(pod["metadata"]["labels"].get(by, "") for pod in running))
        return seen == wanted

    wait_until(look, timeout=timeout, describe=lambda: f"running by {by}: {seen} instead of {wanted}")


def wait_no_pods(api: Api, namespace: str, *, timeout: float = 30) -> None:
    """Until the namespace has no pod."""
    pods = resource_path("v1", "pods", namespace=namespace)
    api.wait_for(pods, lambda listed: not listed["items"], timeout=timeout, describe="no pod left")
