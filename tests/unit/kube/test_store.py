"""What a store holds after any history of watches and writes."""

from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.examples import examples
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.kube import store as module
from turnstile.kube.store import Store


class Thing(Kind):
    """A kind for tests."""

    GROUP: ClassVar = "example.com"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Thing"
    PLURAL: ClassVar = "things"
    NAMESPACED: ClassVar = True

    colours: list[str] = msgspec.field(default_factory=list)


def thing(name: str, version: int, *colours: str, uid: str = "") -> Thing:
    """One version of an object."""
    metadata = ObjectMeta(name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=str(version))
    return Thing(metadata=metadata, colours=list(colours))


class TestVersions:
    """The larger version wins, as numbers."""

    def test_a_newer_version_replaces_an_older_one(self) -> None:
        """Versions are compared as numbers, so 10 is newer than 9."""
        store = Store[Thing]()
        assert store.observe(thing("a", 9))
        assert store.observe(thing("a", 10))
        assert not store.observe(thing("a", 9))
        found = store.get("ns/a")
        assert found is not None
        assert found.metadata.resource_version == "10"

    def test_the_same_version_is_no_change(self) -> None:
        """A watch event for our own write tells nobody twice."""
        store = Store[Thing]()
        heard: list[str] = []
        store.subscribe(lambda key, old, new: heard.append(key))
        store.observe(thing("a", 1))
        store.observe(thing("a", 1))
        assert heard == ["ns/a"]


class TestReadAgain:
    """An object may be read in another way than before, in the same version."""

    def test_the_same_version_is_taken_if_it_was_read_in_another_way(self) -> None:
        """And told once; an older one never is."""
        store = Store[Thing]()
        store.observe(thing("a", 5))
        heard: list[str] = []
        store.subscribe(lambda key, old, new: heard.append(key))
        assert store.observe(thing("a", 5, "red"), again=True)
        assert not store.observe(thing("a", 5, "red"), again=True)
        assert not store.observe(thing("a", 4), again=True)
        assert heard == ["ns/a"]

    def test_a_list_may_be_read_in_another_way_too(self) -> None:
        """What is gone is gone, and what is newer here stays."""
        store = Store[Thing]()
        for name, version in (("a", 5), ("b", 9), ("gone", 1)):
            store.observe(thing(name, version))
        listed = {f"ns/{name}": thing(name, 5, "red") for name in ("a", "b")}
        for _ in store.replacing({**listed}, resource_version="8", again=True):
            pass
        assert {each.metadata.name: each.colours for each in store.values()} == {"a": ["red"], "b": []}

    def test_an_object_that_was_left_out_is_taken_up(self) -> None:
        """A list has it, though it is older than an earlier one; an answer to a write may be of a deleted object."""
        store = Store[Thing]()
        store.replace([], resource_version="9")
        assert not store.observe(thing("a", 5))
        assert store.observe(thing("a", 5), again=True, listed=True)
        store.leave_out("ns/a", resource_version="4")
        assert "ns/a" in store
        store.leave_out("ns/a", resource_version="5")
        assert "ns/a" not in store
        assert store.observe(thing("a", 5), again=True, listed=True)
        store.delete("ns/a", resource_version="10")
        assert not store.observe(thing("a", 5), again=True, listed=True)


class TestCompleteness:
    """Whether what is not here is not in the cluster either."""

    def test_a_store_that_becomes_complete_says_so(self) -> None:
        """Each time, and once."""
        store = Store[Thing]()
        heard: list[str] = []
        stop = store.on_complete(lambda: heard.append("complete"))
        assert store.complete
        store.believe()
        assert heard == []
        for _ in range(2):
            store.doubt()
            store.believe()
            store.believe()
        stop()
        store.doubt()
        store.believe()
        assert heard == ["complete", "complete"]


class TestDeletions:
    """What is deleted stays deleted."""

    def test_a_late_answer_does_not_bring_it_back(self) -> None:
        """Not even with a version that was never seen, if the deletion is later."""
        store = Store[Thing]()
        store.observe(thing("a", 1))
        store.delete("ns/a", resource_version="5")
        assert not store.observe(thing("a", 4))
        assert store.observe(thing("a", 6))

    def test_a_deletion_of_an_older_object_leaves_the_new_one_of_the_name(self) -> None:
        """Its successor may be known from our own creation before the watch tells of the deletion."""
        store = Store[Thing]()
        store.observe(thing("a", 1, uid="old"))
        store.observe(thing("a", 7, uid="new"))
        assert not store.delete("ns/a", resource_version="5")
        assert "ns/a" in store
        assert not store.observe(thing("a", 4, uid="old"))

    def test_only_so_many_deletions_are_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory does not grow with every Job that ever was."""
        monkeypatch.setattr(module, "REMEMBERED_DELETIONS", 10)
        store = Store[Thing]()
        for number in range(50):
            store.observe(thing(f"t{number}", number + 1))
            store.delete(f"ns/t{number}")
        assert len(store._deleted) == 10


class TestReplace:
    """A list shows everything as of one version."""

    def test_subscribers_hear_of_the_difference_only(self) -> None:
        """Additions, changes and deletions, each once."""
        store = Store[Thing]()
        for name in ("same", "gone", "changed"):
            store.observe(thing(name, 1))
        heard: list[tuple[str, bool, bool]] = []
        store.subscribe(lambda key, old, new: heard.append((key, old is None, new is None)))
        store.replace([thing("same", 1), thing("changed", 5), thing("new", 6)], resource_version="8")
        assert heard == [("ns/changed", False, False), ("ns/new", True, False), ("ns/gone", False, True)]

    def test_what_was_written_after_the_list_was_taken_stays(self) -> None:
        """The answer of a write may be newer than a list that was slow to come."""
        store = Store[Thing]()
        store.observe(thing("mine", 9))
        store.replace([], resource_version="8")
        assert store.keys() == ["ns/mine"]

    def test_what_could_not_be_read_stays(self) -> None:
        """It is there, only not in our words."""
        store = Store[Thing]()
        store.observe(thing("odd", 1))
        store.replace([], resource_version="8", keep=["ns/odd"])
        assert store.keys() == ["ns/odd"]

    def test_a_restored_backup_is_taken_as_it_is(self) -> None:
        """The server's versions started over: what was newer before means nothing now."""
        store = Store[Thing]()
        store.observe(thing("a", 100, "new"))
        store.observe(thing("b", 101))
        store.delete("ns/b", resource_version="102")
        store.replace([thing("a", 10, "old"), thing("b", 11)], resource_version="12", rewound=True)
        assert store.keys(ordered=True) == ["ns/a", "ns/b"]
        assert [each.colours for each in store.values(ordered=True)] == [["old"], []]
        assert store.observe(thing("a", 13))


class TestReplaceInSteps:
    """A long list is taken in while others read and write: they see what a watch that catches up would show."""

    def test_a_list_that_shows_an_object_older_than_it_was_is_of_another_history(self) -> None:
        """After etcd was restored with a higher revision, lists are newer than all that was seen, and objects older:
        what was seen by the version of the list gives way, deletions too; what was written later stays."""
        store = Store[Thing]()
        store.replace([thing("back", 5, "old"), thing("gone", 6), thing("lost", 7)], resource_version="10")
        store.observe(thing("back", 50, "new"))
        store.delete("ns/gone", resource_version="51")
        store.observe(thing("ours", 1_001, "written after the list"))
        restored = [thing("back", 5, "old"), thing("gone", 6), thing("ours", 8, "old")]
        store.replace(restored, resource_version="1000")
        assert {each.metadata.name: each.metadata.resource_version for each in store.values()} == {
            "back": "5",
            "gone": "6",
            "ours": "1001",
        }

    def test_changes_come_in_the_order_in_which_they_were_written(self) -> None:
        """Whatever the order of the list; and what is gone comes last, so nothing seems free that is not."""
        store = Store[Thing]()
        for name in ("a", "b", "gone", "same"):
            store.observe(thing(name, 1))
        heard: list[str] = []
        store.subscribe(lambda key, old, new: heard.append(key))
        listed = {f"ns/{name}": thing(name, version) for name, version in (("a", 9), ("b", 5), ("c", 7), ("same", 1))}
        for _ in store.replacing({**listed}, resource_version="10"):
            pass
        assert heard == ["ns/b", "ns/c", "ns/a", "ns/gone"]

    def test_thousands_come_in_that_order_too(self) -> None:
        """They are sorted a run at a time."""
        store = Store[Thing]()
        store.observe(thing("first", 1))
        heard: list[int] = []
        store.subscribe(lambda key, old, new: heard.append(int(new.metadata.resource_version) if new else 0))
        listed: dict[str, Thing | None] = {f"ns/t{n}": thing(f"t{n}", n * 7919 % 3001 + 2) for n in range(3000)}
        for _ in store.replacing({"ns/first": None, **listed}, resource_version="9999"):
            pass
        assert heard == sorted(heard)
        assert len(heard) == 3000

    def test_each_step_changes_one_object_at_most(self) -> None:
        """So a step is as short as a watch event."""
        store = Store[Thing]()
        for number in range(20):
            store.observe(thing(f"old{number}", 1))
        before = store.changes
        listed: dict[str, Thing | None] = {f"ns/new{n}": thing(f"new{n}", 5) for n in range(20)}
        for _ in store.replacing(listed, resource_version="9"):
            assert store.changes - before <= 1
            before = store.changes
        assert listed == {}

    def test_left_half_way_it_has_forgotten_nothing_and_another_list_does_the_rest(self) -> None:
        """Whoever reads in between finds each object as it was or as it was listed."""
        store = Store[Thing]()
        for name in ("a", "b", "gone"):
            store.observe(thing(name, 1, "old"))
        listed = {"ns/a": thing("a", 5, "new"), "ns/b": thing("b", 6, "new")}
        steps = store.replacing({**listed}, resource_version="7")
        while not store.changes > 3:
            next(steps)
        steps.close()
        assert {each.metadata.name: each.colours for each in store.values()} == {
            "a": ["new"],
            "b": ["old"],
            "gone": ["old"],
        }
        store.replace(listed.values(), resource_version="7")
        assert store.keys(ordered=True) == ["ns/a", "ns/b"]

    def test_what_was_deleted_meanwhile_stays_deleted_however_many_others_were(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The list is older than the deletion, and no deletion is forgotten before the list is taken in."""
        monkeypatch.setattr(module, "REMEMBERED_DELETIONS", 3)
        store = Store[Thing]()
        old = [thing(f"t{number}", number + 1) for number in range(9)]
        for each in old:
            store.observe(each)
        with store.remembering():
            listed: dict[str, Thing | None] = {each.metadata.key: each for each in old}
            for number in range(9):
                store.delete(f"ns/t{number}", resource_version=str(20 + number))
            for _ in store.replacing(listed, resource_version="10"):
                pass
        assert store.keys() == []
        assert len(store._deleted) == 3

    def test_a_late_answer_about_what_a_list_lacked_is_not_believed(self) -> None:
        """It was gone when the list was taken, and no watch would ever tell of its deletion."""
        store = Store[Thing]()
        store.replace([thing("a", 3)], resource_version="10")
        assert not store.observe(thing("b", 9))
        assert store.observe(thing("b", 11))

    def test_an_older_list_does_not_bring_back_a_namesake_of_what_was_deleted(self) -> None:
        """It had to go before the one whose deletion was seen could come."""
        store = Store[Thing]()
        store.delete("ns/a", resource_version="10")
        store.replace([thing("a", 2, uid="before")], resource_version="3")
        assert store.keys() == []
        assert store.observe(thing("a", 11, uid="after"))

    @given(st.data())
    @settings(deadline=None)
    def test_the_newest_word_about_each_object_wins(self, data: st.DataObject) -> None:
        """A true history, of which a list shows one moment and watch and answers tell some, before, between and after
        the steps of the list.
        """
        names = ["a", "b", "c", "d"]
        told: list[tuple[str, int, Thing | None, str]] = []
        alive: dict[str, Thing] = {}
        uids: dict[str, str] = {}
        moments: list[dict[str, Thing]] = [{}]
        for version in range(1, data.draw(st.integers(1, 12), label="length") + 1):
            name = data.draw(st.sampled_from(names))
            if name in alive and data.draw(st.booleans(), label="deleted"):
                del alive[name]
                told.append((name, version, None, uids.pop(name)))
            else:
                uid = uids.setdefault(name, f"{name}-{version}")
                alive[name] = thing(name, version, data.draw(st.sampled_from(["red", "blue"])), uid=uid)
                told.append((name, version, alive[name], uid))
            moments.append(dict(alive))
        taken = data.draw(st.integers(0, len(moments) - 1), label="list")
        store = Store[Thing]()
        store.add_index("colour", lambda each: each.colours)
        steps = iter(
            store.replacing({f"ns/{n}": each for n, each in moments[taken].items()}, resource_version=str(taken))
        )
        heard = [each for each in told if data.draw(st.booleans(), label="heard")]
        for name, version, value, _ in heard:
            for _ in range(data.draw(st.integers(0, 4), label="steps")):
                next(steps, None)
            if value is None:
                store.delete(f"ns/{name}", resource_version=str(version))
            else:
                store.observe(value)
        for _ in steps:
            pass
        expected = dict(moments[taken])
        for name, version, value, _ in heard:
            if version > taken:
                expected.pop(name, None)
                if value is not None:
                    expected[name] = value
        assert {each.metadata.name: each for each in store.values()} == expected
        for colour in ("red", "blue"):
            found = store.keys_by_index("colour", colour)
            assert found == sorted(f"ns/{name}" for name, each in expected.items() if colour in each.colours)
            assert sorted(store.keys_by_index("colour", colour, ordered=False)) == found


class TestSubscribers:
    """Those who want to hear of changes."""

    def test_one_that_fails_does_not_silence_the_others(self) -> None:
        """A bug in one controller must not stop the watch of all."""
        store = Store[Thing]()
        heard: list[str] = []

        def broken(key: str, old: Thing | None, new: Thing | None) -> None:
            raise RuntimeError("a bug")

        store.subscribe(broken)
        store.subscribe(lambda key, old, new: heard.append(key))
        store.observe(thing("a", 1))
        assert heard == ["ns/a"]
        assert "ns/a" in store

    def test_a_late_one_may_hear_of_everything_first(self) -> None:
        """And none hears anything after it left."""
        store = Store[Thing]()
        store.observe(thing("a", 1))
        heard: list[str] = []
        leave = store.subscribe(lambda key, old, new: heard.append(key), replay=True)
        store.observe(thing("b", 2))
        leave()
        store.observe(thing("c", 3))
        assert heard == ["ns/a", "ns/b"]


class TestIndexes:
    """Objects are found under what a function says of them."""

    def test_an_index_added_late_knows_what_is_there(self) -> None:
        """Order of wiring does not matter."""
        store = Store[Thing]()
        store.observe(thing("a", 1, "red"))
        store.add_index("colour", lambda each: each.colours)
        assert [each.metadata.name for each in store.by_index("colour", "red")] == ["a"]

    def test_a_second_index_of_the_name_is_an_error(self) -> None:
        """Two parts that disagree on a word would both be wrong."""
        store = Store[Thing]()
        store.add_index("colour", lambda each: each.colours)
        with pytest.raises(ValueError, match="colour"):
            store.add_index("colour", lambda each: each.colours)

    @given(st.permutations(["c", "a", "b", "e", "d"]))
    def test_the_order_does_not_depend_on_history(self, names: list[str]) -> None:
        """Sorted by key, whoever came first."""
        store = Store[Thing]()
        store.add_index("colour", lambda each: each.colours)
        for version, name in enumerate(names, start=1):
            store.observe(thing(name, version, "red"))
            store.by_index("colour", "red")
        assert [each.metadata.name for each in store.by_index("colour", "red")] == ["a", "b", "c", "d", "e"]


class Histories(RuleBasedStateMachine):
    """Versions of a true history arrive in any order, by watch and by answer; each watch event comes in its own order.

    Model: the server's history. Whatever was delivered, the store shows for each name either the newest version of it
    that was delivered, or nothing if its deletion was delivered and nothing newer was.
    """

    names = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.store = Store[Thing]()
        self.store.add_index("colour", lambda each: each.colours)
        self.version = 0
        self.alive: dict[str, str] = {}
        self.late: list[Thing] = []
        self.expected: dict[str, Thing] = {}
        self.deleted_at: dict[str, int] = {}

    def deliver(self, value: Thing) -> None:
        """Tell the store and the model of a version."""
        self.store.observe(value)
        name, version = value.metadata.name, int(value.metadata.resource_version)
        known = self.expected.get(name)
        if version <= self.deleted_at.get(value.metadata.uid, -1):
            return
        if known is None or int(known.metadata.resource_version) < version:
            self.expected[name] = value

    @rule(name=names, colours=st.lists(st.sampled_from(["red", "green", "blue"]), max_size=3), now=st.booleans())
    def write(self, name: str, colours: list[str], now: bool) -> None:
        """Somebody writes; we hear of it now or later."""
        self.version += 1
        uid = self.alive.setdefault(name, f"{name}-{self.version}")
        value = thing(name, self.version, *colours, uid=uid)
        if now:
            self.deliver(value)
        else:
            self.late.append(value)

    @rule(name=names)
    def delete(self, name: str) -> None:
        """Somebody deletes, and the watch says so."""
        uid = self.alive.pop(name, None)
        if uid is None:
            return
        self.version += 1
        self.store.delete(f"ns/{name}", resource_version=str(self.version))
        self.deleted_at[uid] = self.version
        self.expected.pop(name, None)

    @rule(data=st.data())
    def answer_arrives(self, data: st.DataObject) -> None:
        """A late answer comes, in any order."""
        if self.late:
            self.deliver(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    @invariant()
    def shows_what_was_delivered(self) -> None:
        """Objects and indexes agree with the model."""
        assert {each.metadata.name: each for each in self.store.values()} == self.expected
        for colour in ("red", "green", "blue"):
            found = [each.metadata.name for each in self.store.by_index("colour", colour)]
            assert found == sorted(name for name, each in self.expected.items() if colour in each.colours)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(20), stateful_step_count=30, deadline=None)
