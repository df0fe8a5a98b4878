"""Worker clusters that are reached by their ClusterProfile, with credentials that a program gives."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.config.files import loaded
from tests.unit.controllers.worlds import decode
from turnstile.api.clusterprofile import ClusterProfile
from turnstile.api.errors import ConnectionLost
from turnstile.controllers.multikueue.kubeconfigs import Standing
from turnstile.controllers.multikueue.profiles import access_by, in_profile
from turnstile.jobs.options import AccessProvider
from turnstile.process import configured

SERVER = {"server": "https://east.example.com"}
FILE = """
featureGates: {MultiKueueClusterProfile: true}
multiKueue:
  clusterProfile:
    accessProviders:
    - name: fleet
      execConfig:
        command: fleet-credentials
        apiVersion: client.authentication.k8s.io/v1
        interactiveMode: Never
        env: [{name: REGION, value: one}]
"""


def profile(*names: str, **cluster: Any) -> ClusterProfile:
    """A profile with these providers."""
    ways = [{"name": each, "cluster": {**SERVER, **cluster}} for each in names]
    return decode(ClusterProfile, {"metadata": {"name": "east"}, "status": {"accessProviders": ways}})


def provider(tmp_path: Path, script: str) -> AccessProvider:
    """A provider whose program is this script."""
    path = tmp_path / "program.py"
    path.write_text(script)
    return AccessProvider(
        name="fleet", command=sys.executable, args=(str(path),), env=(("REGION", "one"),), provides_cluster=True
    )


def standing(found: bytes | Standing) -> tuple[str, str]:
    """Reason and message of what is wrong with a profile."""
    assert isinstance(found, Standing)
    return found.reason, found.message


class TestAProfile:
    """In Turnstile's namespace."""

    KNOWN = (AccessProvider(name="fleet", command="fleet-credentials"),)

    def test_gives_the_server_of_the_first_provider_that_is_configured(self) -> None:
        """The others are for other programs."""
        found = in_profile("east", profile("other", "fleet"), self.KNOWN)
        assert isinstance(found, bytes)
        assert json.loads(found) == {"provider": "fleet", "cluster": SERVER}

    def test_that_is_missing_or_has_no_such_provider_is_bad(self) -> None:
        """The condition says so, with Kueue's words."""
        assert standing(in_profile("east", None, self.KNOWN)) == (
            "BadClusterProfile",
            'load client config failed: clusterprofiles.multicluster.x-k8s.io "east" not found',
        )
        assert standing(in_profile("east", profile("other"), self.KNOWN)) == (
            "BadClusterProfile",
            "load client config failed: unsupported access provider",
        )

    @pytest.mark.parametrize(
        "cluster",
        [{"insecure-skip-tls-verify": True}, {"certificate-authority": "/etc/ca"}, {"server": "http://east"}],
    )
    def test_that_does_not_verify_its_server_is_refused(self, cluster: dict[str, Any]) -> None:
        """The program's credentials would be sent to whoever answers."""
        assert standing(in_profile("east", profile("fleet", **cluster), self.KNOWN))[0] == "BadRestConfig"


class TestTheProgram:
    """Of the configuration file, never of the profile."""

    def test_is_told_the_cluster_and_gives_a_token(self, tmp_path: Path) -> None:
        """By the protocol of Kubernetes clients, with the environment of the configuration."""
        script = (
            "import json, os\n"
            "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
            "cluster = info['spec']['cluster']\n"
            "token = '|'.join([os.environ['REGION'], cluster['server'], cluster['config']])\n"
            "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': token}}))\n"
        )
        known = (provider(tmp_path, script),)
        extension = [{"name": "client.authentication.k8s.io/exec", "extension": "id-7"}]
        found = in_profile("east", profile("fleet", extensions=extension), known)
        assert isinstance(found, bytes)
        access = asyncio.run(access_by(found, known))
        assert access.server == SERVER["server"]
        assert access.credentials.authorization() == f"Bearer one|{SERVER['server']}|id-7"
        assert "REGION" not in os.environ

    @pytest.mark.parametrize(
        ("script", "why"),
        [
            ("import sys; sys.exit('no such region')", "for credentials: exit status 1: no such region$"),
            ("print('hello')", "it printed no ExecCredential"),
            ("print('{\"status\": {}}')", "has no token and no certificate"),
            ("print('{\"status\": {\"token\": \"' + 'x' * 1048576 + '\"}}')", "it printed more than 1048576 bytes"),
            ("while True: print('x' * 65536)", "it printed more than 1048576 bytes"),
            (
                "import os\nfor _ in range(3): os.fork()\nwhile True: print('x' * 65536)",
                "it printed more than 1048576 bytes",
            ),
            ("import sys; sys.exit('x' * 5000000)", "exit status 1: x{200}$"),
        ],
    )
    def test_that_fails_leaves_the_cluster_out(self, tmp_path: Path, script: str, why: str) -> None:
        """It is asked again with the next attempt."""
        known = (provider(tmp_path, script),)
        found = in_profile("east", profile("fleet"), known)
        assert isinstance(found, bytes)
        with pytest.raises(ConnectionLost, match=why):
            asyncio.run(access_by(found, known))

    def test_that_is_missing_is_said_to_be_with_how_to_install_it(self) -> None:
        """In the words of the configuration."""
        known = (AccessProvider(name="fleet", command="/no/fleet-credentials", install_hint="mount it at /no"),)
        found = in_profile("east", profile("fleet"), known)
        assert isinstance(found, bytes)
        with pytest.raises(
            ConnectionLost, match=r"No such file or directory: '/no/fleet-credentials'; mount it at /no$"
        ):
            asyncio.run(access_by(found, known))

    def test_that_does_not_end_is_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The message names the time that it had."""
        monkeypatch.setattr("turnstile.kube.program.PLUGIN_DEADLINE", 0.1)
        known = (provider(tmp_path, "import time; time.sleep(60)"),)
        found = in_profile("east", profile("fleet"), known)
        assert isinstance(found, bytes)
        with pytest.raises(ConnectionLost, match=r"for credentials: no end after 0\.1 s$"):
            asyncio.run(access_by(found, known))

    def test_is_that_of_the_file(self) -> None:
        """With the gate only; the older name of the list says the same."""
        given = configured.job_options(loaded(FILE)).multikueue
        assert given is not None
        assert given.providers == (AccessProvider(name="fleet", command="fleet-credentials", env=(("REGION", "one"),)),)
        older = configured.job_options(loaded(FILE.replace("accessProviders", "credentialsProviders"))).multikueue
        assert older == given
        off = configured.job_options(loaded(FILE.replace("ClusterProfile: true", "ClusterProfile: false"))).multikueue
        assert off is not None
        assert off.providers is None
