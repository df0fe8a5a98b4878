"""Reaches a worker cluster by its ClusterProfile: the profile names the server, and who gives credentials for it.

The program that gives them is the one of that name in the configuration file (`multiKueue.clusterProfile`). Must never
run a program that a profile names, or send credentials to a server that was not verified.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from turnstile.api.clusterprofile import ClusterProfile
from turnstile.api.errors import InvalidValue
from turnstile.controllers.multikueue.kubeconfigs import BadKubeConfig, Standing, cluster_fault, refused
from turnstile.jobs.options import AccessProvider
from turnstile.kube import auth
from turnstile.kube.program import Command, Program

BAD: Final = "BadClusterProfile"
_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a cluster that its program is told."""
_CLUSTER: Final = (
    "server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url",
    "disable-compression",
)  # fmt: skip
"""The members of a cluster that its program is told."""


def in_profile(name: str, profile: ClusterProfile | None, providers: Sequence[AccessProvider]) -> bytes | Standing:
    """Server and provider of a profile, for `access_by`; or why the cluster cannot be reached."""
    if profile is None:
        return refused(BAD, f'{ClusterProfile.PLURAL}.{ClusterProfile.GROUP} "{name}" not found')
    known = {each.name for each in providers}
    offered = profile.status.access_providers or profile.status.credential_providers
    found = next((each for each in offered if each.name in known), None)
    if found is None:
        return refused(BAD, "unsupported access provider")
    if fault := cluster_fault(name, found.cluster):
        return refused("BadRestConfig", fault)
    return orjson.dumps({"provider": found.name, "cluster": found.cluster})


async def access_by(data: bytes, providers: Sequence[AccessProvider]) -> auth.Access:
    """Access by what `in_profile` found, after the program has given credentials. Raises BadKubeConfig and
    ConnectionLost."""
    found: dict[str, Any] = orjson.loads(data)
    cluster, provider = found["cluster"], next(each for each in providers if each.name == found["provider"])
    entry = {"name": provider.name, "cluster": cluster}
    context = {"name": provider.name, "context": {"cluster": provider.name}}
    config = {"clusters": [entry], "users": [], "contexts": [context], "current-context": provider.name}
    try:
        access = await auth.from_kubeconfig(config)
    except InvalidValue as error:
        raise BadKubeConfig(BAD, str(error)) from None
    command = Command(
        command=provider.command,
        args=provider.args,
        env=provider.env,
        api_version=provider.api_version,
        install_hint=provider.install_hint,
        provides_cluster=provider.provides_cluster,
    )
    program = Program(command, _given(cluster))
    await program.refresh(access.tls)
    return replace(access, credentials=program)


def _given(cluster: dict[str, Any]) -> dict[str, Any]:
    """The cluster as its program gets it."""
    given = {key: cluster[key] for key in _CLUSTER if cluster.get(key)}
    for each in cluster.get("extensions") or ():
        if each.get("name") == _EXTENSION:
            given["config"] = each.get("extension")
    return given
