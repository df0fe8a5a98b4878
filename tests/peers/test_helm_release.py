"""A Kueue that Helm installed: its queues outlive the release once Helm has forgotten it, and Helm can take it back."""

from pathlib import Path

import pytest

from testbed import ControlPlane, resource_path
from testbed.client import wait_until
from testbed.errors import ApiError, TestbedError
from testbed.installation import CHART
from testbed.peers import KUEUE
from testbed.peers.kueue import CHART as KUEUES_CHART
from tests.cluster.reader import Reader
from tests.peers.moving import PAGE

pytestmark = pytest.mark.cluster

TOPOLOGY = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Topology",
    "metadata": {"name": "racks"},
    "spec": {"levels": [{"nodeLabel": "rack"}]},
}
"""An object that no webhook is asked about: no process of Kueue runs here."""


def test_queues_outlive_the_release(tmp_path: Path) -> None:
    """Preflight names the danger until the commands of the guide were given, and again once they are undone; without a
    release `helm uninstall` finds nothing."""
    (tmp_path / "charts").symlink_to(CHART.parent)
    with ControlPlane(components=("etcd", "kube-apiserver", "kube-controller-manager")) as cp:
        chart = KUEUE.ensure().folder(KUEUES_CHART)
        cp.helm("install", "kueue", str(chart), "-n", "kueue-system", "--create-namespace")
        path = resource_path(TOPOLOGY["apiVersion"], "topologies")

        def served() -> bool:
            try:
                cp.api.get(path)
            except ApiError:
                return False
            return True

        wait_until(served, timeout=30, describe=lambda: "Topologies are not served")
        cp.api.create(TOPOLOGY)
        chart_of_ours = "charts/turnstile --set image.repository=registry.example/turnstile"
        look = f"helm template turnstile {chart_of_ours} -n turnstile-system | turnstile preflight --file - || true"
        danger = "deleted with all queues when Helm release kueue in kueue-system is uninstalled"

        def forget() -> Reader:
            guide = Reader(PAGE, cp, directory=tmp_path, section="If Helm installed Kueue")
            assert danger in guide.run(look)
            guide.do()
            assert danger not in guide.run(look)
            return guide

        forget().run(f"helm install kueue {chart} -n kueue-system --take-ownership")
        forget()
        assert "kind: CustomResourceDefinition" in (tmp_path / "kueue.yaml").read_text()
        with pytest.raises(TestbedError, match="not found"):
            cp.helm("uninstall", "kueue", "-n", "kueue-system")
        assert [each["metadata"]["name"] for each in cp.api.items(path)] == ["racks"]
