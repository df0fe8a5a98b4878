"""Reading and writing objects as every part of Turnstile does it."""

import asyncio
from typing import Any

import pytest

from testbed import ControlPlane
from turnstile.api import errors
from turnstile.api.core import Job
from turnstile.api.patch import JsonPatch
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


def job(name: str) -> dict[str, Any]:
    """A suspended Job."""
    container = {"name": "main", "image": "none"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": template},
    }


async def connect(control_plane: ControlPlane) -> Transport:
    """A transport as administrator."""
    return await Transport.connect(str(control_plane.kubeconfig()))


class TestWrites:
    """Each kind of write, on a real Job."""

    async def test_create_get_list_patch_and_delete(self, control_plane: ControlPlane, namespace: str) -> None:
        """Answers come back as structs."""
        async with await connect(control_plane) as transport:
            made = await transport.create(Job, namespace, job("a"))
            assert (await transport.get(Job, "a", namespace)).metadata.uid == made.metadata.uid
            assert [each.kind for each in await transport.list_all(Job, namespace)] == ["Job"]
            merged = await transport.patch(Job, "a", namespace, {"spec": {"parallelism": 2}})
            assert merged.spec.parallelism == 2
            built = JsonPatch().put(None, "metadata", "labels", key="x/y", value="z")
            patched = await transport.patch(Job, "a", namespace, built.encode(), type="json")
            assert patched.metadata.labels["x/y"] == "z"
            with pytest.raises(errors.AlreadyExists):
                await transport.create(Job, namespace, job("a"))
            await transport.delete(Job, "a", namespace, uid=made.metadata.uid)
            with pytest.raises(errors.NotFound):
                await transport.delete(Job, "a", namespace)

    async def test_apply_has_one_owner_and_takes_over_by_force_only(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        """Fields of others are a conflict unless forced."""
        control_plane.kubectl("create", "job", "a", "--image=none", "-n", namespace)
        mine = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"parallelism": 3}}
        async with await connect(control_plane) as transport:
            await transport.patch(Job, "a", namespace, {"spec": {"parallelism": 1}}, retry="never")
            control_plane.kubectl("patch", "job", "a", "-n", namespace, "-p", '{"spec":{"parallelism":2}}')
            with pytest.raises(errors.Conflict, match="kubectl"):
                await transport.patch(Job, "a", namespace, mine, type="apply", force=False)
            assert (await transport.patch(Job, "a", namespace, mine, type="apply")).spec.parallelism == 3

    async def test_a_dry_run_changes_nothing(self, control_plane: ControlPlane, namespace: str) -> None:
        """It is validated all the same."""
        async with await connect(control_plane) as transport:
            await transport.create(Job, namespace, job("a"), dry_run=True)
            assert await transport.list_all(Job, namespace) == []
            with pytest.raises(errors.Invalid):
                await transport.create(Job, namespace, {"metadata": {"name": "a"}, "spec": {}}, dry_run=True)

    async def test_a_status_is_written_through_its_subresource(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        """And nothing else of the object with it."""
        async with await connect(control_plane) as transport:
            await transport.create(Job, namespace, job("a"))
            body = {"status": {"ready": 0}, "spec": {"parallelism": 7}}
            patched = await transport.patch(Job, "a", namespace, body, subresource="status")
            assert patched.spec.parallelism == 1

    async def test_a_deletion_is_of_one_object_and_not_of_its_name(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        """A new object of the same name is not deleted in the place of the old one."""
        async with await connect(control_plane) as transport:
            await transport.create(Job, namespace, job("a"))
            with pytest.raises(errors.Conflict):
                await transport.delete(Job, "a", namespace, uid="00000000-0000-0000-0000-000000000000")
            assert (await transport.get(Job, "a", namespace)).metadata.name == "a"

    async def test_many_writes_at_once_all_arrive(self, control_plane: ControlPlane, namespace: str) -> None:
        """More than there are slots."""
        async with await connect(control_plane) as transport:
            async with asyncio.TaskGroup() as group:
                for number in range(100):
                    group.create_task(transport.create(Job, namespace, job(f"j{number}"), timeout=30))
            assert len(await transport.list_all(Job, namespace, params={"labelSelector": "!none"})) == 100
            assert transport.stats.requests["POST", "201"] == 100
