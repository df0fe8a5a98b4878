"""What was worked out of a pod ends with the pod."""

import msgspec

from turnstile.api.core import Pod
from turnstile.controllers.charging import charges
from turnstile.jobs import pods
from turnstile.jobs.once import FACTS, Facts, Once
from turnstile.kube.store import Store


def pod(name: str, version: int = 1, **spec: str) -> Pod:
    """A pod as it is decoded."""
    meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(version)}
    return Pod.decoder()(msgspec.json.encode({"metadata": meta, "spec": {"containers": [], **spec}}))


def test_of_pods_that_are_gone_nothing_is_held() -> None:
    """However many there have been: neither of older versions of a pod, nor of a deleted one."""
    store: Store[Pod] = Store()
    charges.index_pods(store)
    before = len(FACTS)
    for number in range(100):
        for version in (1, 2):
            made = pod(f"pod-{number}", 2 * number + version)
            store.observe(made)
            assert pods.view(made) is pods.view(made)
            assert pods.shape(made)
        assert len(FACTS) == before + 1
        store.delete(f"team/pod-{number}")
    assert len(FACTS) == before


def test_it_is_worked_out_once_for_each_version() -> None:
    """A pod of which less is held than was read has another spec from then on."""
    asked: list[bytes] = []

    def function(spec: msgspec.Raw) -> int:
        asked.append(bytes(spec))
        return len(asked)

    once = Once[int](function, facts=Facts())
    first, second = pod("a", nodeName="one"), pod("a", nodeName="two")
    assert [once(first), once(first), once(second), once(first)] == [1, 1, 2, 1]
    first.spec = msgspec.Raw(b"{}")
    assert [once(first), once(first)] == [3, 3]


def test_only_the_latest_are_held_of_many_pods() -> None:
    """A cluster may have a hundred thousand."""
    facts = Facts(limit=10)
    length = Once[int](lambda spec: len(bytes(spec)), facts=facts)
    many = [pod(f"pod-{number}") for number in range(50)]
    assert len({length(each) for each in many}) == 1
    assert len(facts) == 10
