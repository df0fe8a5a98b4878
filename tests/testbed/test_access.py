"""Who may call the API server, and with what."""

import pytest

from testbed import Api, ApiError, ControlPlane, TestbedError, resource_path


class TestUsers:
    """Users and groups of client certificates."""

    def test_admin_may_do_everything(self, api: Api) -> None:
        """The admin's certificate is in system:masters."""
        assert api.get("/version")["gitVersion"].startswith("v1.36.")
        assert {"default", "kube-system"} <= {ns["metadata"]["name"] for ns in api.items("/api/v1/namespaces")}

    def test_a_stranger_is_known_but_refused(self, control_plane: ControlPlane, namespace: str) -> None:
        """RBAC gives a user without a binding nothing, and says who was refused."""
        stranger = control_plane.api_as("mallory")
        with pytest.raises(ApiError, match='User "mallory" cannot list resource "pods"') as refused:
            stranger.items(resource_path("v1", "pods", namespace=namespace))
        assert refused.value.code == 403

    def test_a_bound_group_may_do_what_its_role_says(self, control_plane: ControlPlane, namespace: str) -> None:
        """Groups of a certificate count in RBAC; the right ends at the namespace."""
        control_plane.kubectl("create", "rolebinding", "see", "--clusterrole=view", "--group=team", "-n", namespace)
        member = control_plane.api_as("alice", groups=["team"])
        assert member.items(resource_path("v1", "pods", namespace=namespace)) == []
        with pytest.raises(ApiError, match="Forbidden"):
            member.items(resource_path("v1", "pods", namespace="kube-system"))

    def test_no_certificate_is_anonymous(self, control_plane: ControlPlane) -> None:
        """Without credentials there is no way in but the health paths."""
        text = control_plane.kubeconfig().read_text()
        assert "certificate-authority-data" in text
        assert "insecure" not in text

    def test_a_kubeconfig_is_made_once_for_a_user(self, control_plane: ControlPlane) -> None:
        """Asking twice gives the same file, other groups another one."""
        first = control_plane.kubeconfig("bob", groups=["a"])
        assert control_plane.kubeconfig("bob", groups=["a"]) == first
        assert control_plane.kubeconfig("bob", groups=["b"]) != first


class TestServiceAccounts:
    """Tokens of service accounts."""

    def test_token_is_the_service_account(self, control_plane: ControlPlane, namespace: str) -> None:
        """kubectl with the kubeconfig of a service account acts as that account."""
        control_plane.kubectl("create", "serviceaccount", "robot", "-n", namespace)
        path = control_plane.service_account_kubeconfig(namespace, "robot")
        answer = control_plane.kubectl("--kubeconfig", str(path), "auth", "whoami", "-o", "name")
        assert "selfsubjectreview" in answer
        user = control_plane.kubectl(
            "--kubeconfig", str(path), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"
        )
        assert user == f"system:serviceaccount:{namespace}:robot"


class TestTools:
    """kubectl and helm against the bed."""

    def test_kubectl_reads_standard_input(self, control_plane: ControlPlane, namespace: str, api: Api) -> None:
        """A manifest may be piped in."""
        manifest = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a","namespace":"{namespace}"}}}}'
        assert "created" in control_plane.kubectl("apply", "-f", "-", input=manifest)
        assert api.find(resource_path("v1", "configmaps", "a", namespace=namespace)) is not None

    def test_a_failing_tool_says_why(self, control_plane: ControlPlane) -> None:
        """The error has the command and what it complained of."""
        with pytest.raises(TestbedError, match=r"kubectl .*nothing-like-this.*doesn't have a resource type"):
            control_plane.kubectl("get", "nothing-like-this")

    def test_helm_talks_to_the_bed(self, control_plane: ControlPlane, namespace: str) -> None:
        """helm uses the bed's kubeconfig, not the user's."""
        assert control_plane.helm("list", "-n", namespace, "-o", "json").strip() == "[]"
