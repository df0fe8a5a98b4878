"""The small client: objects in, objects out."""

import time

import pytest

from testbed import Api, ApiError, resource_path
from testbed.client import wait_until
from testbed.errors import TestbedError, WaitTimeout


def config_map(namespace: str, name: str = "a", **data: str) -> dict[str, object]:
    """A ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"test": "yes"}},
        "data": data,
    }


class TestVerbs:
    """Each verb does what the server says."""

    def test_create_then_read(self, api: Api, namespace: str) -> None:
        """What was created is there under the path of the object."""
        created = api.create(config_map(namespace, color="red"))
        assert api.get(api.path_of(created))["data"] == {"color": "red"}

    def test_create_twice_is_refused(self, api: Api, namespace: str) -> None:
        """The error carries the server's code and reason."""
        api.create(config_map(namespace))
        with pytest.raises(ApiError) as refused:
            api.create(config_map(namespace))
        assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")

    def test_dry_run_stores_nothing(self, api: Api, namespace: str) -> None:
        """A dry run answers like a create and leaves no object."""
        answer = api.create(config_map(namespace), dry_run=True)
        assert api.find(api.path_of(answer)) is None

    def test_apply_is_repeatable_and_keeps_other_owners_fields(self, api: Api, namespace: str) -> None:
        """Server-side apply under two managers merges."""
        api.apply(config_map(namespace, a="1"), field_manager="one")
        api.apply(config_map(namespace, b="2"), field_manager="two")
        assert api.apply(config_map(namespace, a="3"), field_manager="one")["data"] == {"a": "3", "b": "2"}

    def test_merge_patch(self, api: Api, namespace: str) -> None:
        """A patch with null takes a field away."""
        path = api.path_of(api.create(config_map(namespace, a="1", b="2")))
        assert api.patch(path, {"data": {"a": None}})["data"] == {"b": "2"}

    def test_replace_of_an_old_version_conflicts(self, api: Api, namespace: str) -> None:
        """A resourceVersion that has passed is refused with 409."""
        old = api.create(config_map(namespace, a="1"))
        api.patch(api.path_of(old), {"data": {"a": "2"}})
        with pytest.raises(ApiError, match="409 Conflict"):
            api.replace(api.path_of(old), old)

    def test_items_by_label(self, api: Api, namespace: str) -> None:
        """A label selector narrows the list."""
        api.create(config_map(namespace, "b"))
        api.create(config_map(namespace, "a"))
        found = api.items(resource_path("v1", "configmaps", namespace=namespace), labels="test=yes")
        assert [item["metadata"]["name"] for item in found] == ["a", "b"]

    def test_delete_tells_whether_there_was_one(self, api: Api, namespace: str) -> None:
        """Deleting what is not there is no error."""
        path = api.path_of(api.create(config_map(namespace)))
        assert api.delete(path) is True
        assert api.delete(path) is False

    def test_yaml_documents_are_applied_in_order(self, api: Api, namespace: str) -> None:
        """A file of several documents lands in the given namespace."""
        text = "\n---\n".join(f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n" for name in ("x", "y"))
        assert [obj["metadata"]["namespace"] for obj in api.apply_yaml(text, namespace=namespace)] == [namespace] * 2

    def test_a_kind_without_its_crd_is_named(self, api: Api) -> None:
        """A missing CRD is the usual cause, so the error asks for it."""
        with pytest.raises(TestbedError, match="'Nothing' is not served in batch/v1: is its CRD installed"):
            api.path_of({"apiVersion": "batch/v1", "kind": "Nothing", "metadata": {"name": "a"}})


class TestWaiting:
    """Waiting has a deadline and shows what it saw."""

    def test_timeout_shows_what_was_seen_last(self, api: Api, namespace: str) -> None:
        """A failed wait needs no second look at the cluster."""
        path = api.path_of(api.create(config_map(namespace, color="red")))
        with pytest.raises(WaitTimeout, match=r"to be blue did not come true(.|\n)*color: red"):
            api.wait_for(path, lambda obj: obj["data"]["color"] == "blue", timeout=0.2, describe="to be blue")

    def test_wait_gone(self, api: Api, namespace: str) -> None:
        """An object that stays is reported."""
        path = api.path_of(api.create(config_map(namespace)))
        with pytest.raises(WaitTimeout, match="is still there"):
            api.wait_gone(path, timeout=0.1)
        api.delete(path)
        api.wait_gone(path)


class TestBusyServer:
    """A 429 with `Retry-After` was not executed."""

    def test_a_request_is_sent_again_while_the_storage_of_a_kind_begins(self, api: Api) -> None:
        """It begins anew after each change of a CRD, and the API server refuses all requests meanwhile."""
        versions = {"name": "v1", "served": True, "storage": True}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "lamps.client.test"},
            "spec": {
                "group": "client.test",
                "names": {"kind": "Lamp", "plural": "lamps"},
                "scope": "Cluster",
                "versions": [{**versions, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        }
        path = api.path_of(api.create(definition))
        try:
            wait_until(lambda: api.find("/apis/client.test/v1/lamps"), timeout=10, describe=lambda: "not served")
            for number in range(3):
                schema = {"openAPIV3Schema": {"type": "object", "description": str(number)}}
                api.patch(path, {"spec": {"versions": [{**versions, "schema": schema}]}})
                until = time.monotonic() + 0.2
                while time.monotonic() < until:
                    assert api.items("/apis/client.test/v1/lamps") == []
        finally:
            api.delete(path)
