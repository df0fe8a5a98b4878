"""Patches say exactly what changes."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.api import patch
from turnstile.api.patch import JsonPatch

scalars = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "a/b", "~"])
plain = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/~", max_size=2), inner, max_size=3)
)
objects = st.dictionaries(st.text("abc/~", max_size=2), plain, max_size=4)


class TestJsonPatch:
    """Ordered operations with escaped paths."""

    def test_slashes_and_tildes_in_keys_are_escaped(self) -> None:
        """Nearly every label of Kubernetes has a slash."""
        built = JsonPatch().add("metadata", "labels", "kueue.x-k8s.io/queue-name", value="a").remove("x", "~y")
        assert built.encode() == (
            b'[{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"a"},'
            b'{"op":"remove","path":"/x/~0y"}]'
        )

    @given(st.text("ab/~01", max_size=5), plain)
    def test_any_key_can_be_set(self, key: str, value: Any) -> None:
        """What the builder writes, an independent reader understands."""
        built = JsonPatch().add("top", key, value=value)
        assert jsonpatch.apply_patch({"top": {}}, built.encode().decode()) == {"top": {key: value}}

    def test_an_empty_patch_is_falsy(self) -> None:
        """Nothing has to be sent."""
        assert not JsonPatch()
        assert JsonPatch().replace("spec", "suspend", value=True)

    @given(st.none() | st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3))
    def test_labels_can_be_put_whether_there_are_any_or_not(self, labels: dict[str, str] | None) -> None:
        """Several on an object without a map make one map."""
        document: dict[str, Any] = {"metadata": {} if labels is None else {"labels": labels}}
        built = JsonPatch()
        for key in ("a/1", "b", "c"):
            built.put(labels, "metadata", "labels", key=key, value="x")
        patched = jsonpatch.apply_patch(copy.deepcopy(document), built.operations)
        assert patched["metadata"]["labels"] == {**(labels or {}), "a/1": "x", "b": "x", "c": "x"}

    def test_what_is_there_already_is_not_written(self) -> None:
        """A webhook called twice answers nothing the second time."""
        assert not JsonPatch().put({"a": "x"}, "metadata", "labels", key="a", value="x")


class TestMergePatch:
    """The difference of two plain values."""

    @given(objects, objects)
    def test_it_makes_the_new_value_of_the_old_one(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        """For any two values."""
        assert patch.apply_merge_patch(old, patch.merge_patch(old, new)) == new

    @given(objects)
    def test_equal_values_need_none(self, value: dict[str, Any]) -> None:
        """An empty patch is not worth a request."""
        assert patch.merge_patch(value, copy.deepcopy(value)) == {}

    def test_true_and_one_differ(self) -> None:
        """They do in JSON."""
        assert patch.merge_patch({"a": 1}, {"a": True}) == {"a": True}

    def test_null_is_refused(self) -> None:
        """A merge patch means removal by it."""
        with pytest.raises(ValueError, match=r"a\.b"):
            patch.merge_patch({}, {"a": {"b": None}})
