"""etcd is restored from a backup while a term goes on: what the API server shows then is all there is."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import ControlPlane
from tests.cluster.schema_server import with_crds
from tests.cluster.test_lease import NAME, Candidate, campaigning
from tests.faults.proxy import Proxy, answer
from tests.faults.racing import Desk, racing
from tests.waiting import until
from turnstile.api.workload import Workload
from turnstile.kube import auth
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


@pytest.fixture
def control_plane() -> Iterator[ControlPlane]:
    """etcd and kube-apiserver of the test's own."""
    with with_crds() as made:
        yield made


def stop(control_plane: ControlPlane) -> None:
    """Nothing is written any more."""
    for component in ("kube-apiserver", "etcd"):
        control_plane.kill(component)


def start(control_plane: ControlPlane) -> None:
    """Go on with the data that etcd has now."""
    for component in ("etcd", "kube-apiserver"):
        control_plane.start(component)


async def holders(at: Desk) -> set[str]:
    """Workloads that hold quota, as the API server has them."""
    found = await at.direct.list_all(Workload, at.namespace)
    return {each.metadata.name for each in found if each.quota_reserved and not each.finished}


async def test_quota_is_neither_given_twice_nor_kept(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Who holds quota in the backup holds it again, and who got it later holds nothing: the ledger goes back with the
    store."""
    data, backup = control_plane.directory / "etcd", tmp_path / "backup"
    async with racing(control_plane) as at:
        await at.workload("kept", pods=3)
        await at.eventually("kept", lambda w: w.quota_reserved)
        await asyncio.to_thread(stop, control_plane)
        shutil.copytree(data, backup)
        await asyncio.to_thread(start, control_plane)

        await at.direct.delete(Workload, "kept", at.namespace)
        await at.workload("later", pods=3)
        await at.eventually("later", lambda w: w.quota_reserved)
        for number in range(20):  # the history that is lost is longer than what follows
            await at.workload(f"waits-{number}", pods=9)

        await asyncio.to_thread(stop, control_plane)
        shutil.rmtree(data)
        shutil.copytree(backup, data)
        await asyncio.to_thread(start, control_plane)

        await at.workload("next", pods=3)
        await at.eventually("next", lambda w: bool(w.status.conditions))
        assert await holders(at) == {"kept"}
        await at.direct.delete(Workload, "kept", at.namespace)
        await at.eventually("next", lambda w: w.quota_reserved)
        assert await holders(at) == {"next"}


async def test_a_lease_that_has_gone_back_ends_the_term(schema_server: ControlPlane) -> None:
    """Its versions only grow in one history: whoever leads has assumptions and queues of a history that is no more."""
    namespace = schema_server.namespace("restored")
    async with (
        Proxy(await auth.connect(str(schema_server.kubeconfig()))) as proxy,
        Transport(proxy.access) as transport,
    ):
        one = Candidate(transport, namespace, "one")
        async with campaigning(one):
            await until(lambda: one.leading, seconds=10, what="nobody leads")
            details = {"kind": "leases", "group": "coordination.k8s.io", "name": NAME}
            status = {"kind": "Status", "code": 409, "reason": "Conflict", "message": "newer", "details": details}
            spec = {"holderIdentity": one.elector.identity, "leaseTransitions": one.fences[0].epoch}
            older = {"metadata": {"name": NAME, "namespace": namespace, "resourceVersion": "1"}, "spec": spec}
            proxy.plan(answer("409 Conflict", json.dumps(status).encode()), applies=lambda r: r.method == "PATCH")
            proxy.plan(answer("200 OK", json.dumps(older).encode()), applies=lambda r: r.method == "GET")
            await until(lambda: len(one.fences) == 2, seconds=10, what="the term goes on")
            assert one.fences[0].closed
    schema_server.api.delete(f"/api/v1/namespaces/{namespace}")
