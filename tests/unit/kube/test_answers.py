"""Whatever a server or a proxy answers becomes an object or an honest error."""

import datetime
import sys
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.api import errors
from turnstile.api.core import Job
from turnstile.api.meta import Kind, Object
from turnstile.api.workload import Workload
from turnstile.kube import answers

STATUS = (
    b'{"kind":"Status","status":"Failure","message":"jobs \\"a\\" not found","reason":"NotFound","code":404,'
    b'"details":{"name":"a","group":"batch","kind":"jobs"}}'
)
JOB = "/apis/batch/v1/namespaces/team/jobs/a"


class TestErrors:
    """An answer that is no success."""

    def test_a_status_gives_reason_message_and_details(self) -> None:
        """As the server words them."""
        error = answers.error(404, STATUS, path=JOB)
        assert isinstance(error, errors.NotFound)
        assert error.reason == "NotFound"
        assert str(error) == '404 NotFound: jobs "a" not found'

    def test_a_status_without_a_reason_is_named_by_its_code(self) -> None:
        """Webhook denials come so."""
        assert answers.error(403, b'{"kind":"Status","message":"denied"}').reason == "Forbidden"

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (b"", "the answer has no body"),
            (b"<html><body></body></html>", "the answer holds only markup"),
            (b"upstream connect error", "upstream connect error"),
            (b"\xff\xfe not utf-8", "�� not utf-8"),
            (b'{"kind":"Status","message":', '{"kind":"Status","message":'),
            (b'{"message":"json of somebody else"}', '{"message":"json of somebody else"}'),
        ],
    )
    def test_any_other_body_is_quoted(self, body: bytes, text: str) -> None:
        """Without its markup."""
        assert answers.error(502, body).message == text

    @given(st.integers(300, 999), st.binary(max_size=2000))
    def test_no_body_breaks_it(self, code: int, body: bytes) -> None:
        """There is always an error of the tree, and it is short."""
        error = answers.error(code, body)
        assert isinstance(error, errors.ApiError)
        assert len(error.message) <= answers.MESSAGE_LIMIT + 1

    @pytest.mark.parametrize(
        ("headers", "body", "seconds"),
        [
            ({"Retry-After": "7"}, b"", 7.0),
            ({"Retry-After": "Sat, 21 Nov 2026 12:00:30 GMT"}, b"", 30.0),
            ({"Retry-After": "Sat, 21 Nov 2026 11:00:00 GMT"}, b"", 0.0),
            ({"Retry-After": "soon"}, b"", None),
            ({"Retry-After": "86400"}, b"", 60.0),
            ({"Retry-After": "9" * 5000}, b"", 60.0),
            ({"Retry-After": "Sat, 21 Nov 2043 12:00:30 GMT"}, b"", 60.0),
            ({}, b'{"kind":"Status","details":{"retryAfterSeconds":1e300}}', 60.0),
            ({}, b'{"kind":"Status","details":{"retryAfterSeconds":3}}', 3.0),
            ({}, b"", None),
        ],
    )
    def test_the_time_to_come_back_is_understood(
        self, headers: dict[str, str], body: bytes, seconds: float | None
    ) -> None:
        """In seconds, as a date, or inside the Status; a minute at most, whatever the number."""
        now = datetime.datetime(2026, 11, 21, 12, 0, 0, tzinfo=datetime.UTC)
        assert answers.retry_after(headers, answers.parse_status(body), now) == seconds


def refusal(code: int, path: str, reason: str, **details: str) -> errors.ApiError:
    """The error of a Status with these details."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details}
    return answers.error(code, msgspec.json.encode(status), path=path)


class TestWhatNamesTheObject:
    """A 404 or 409 is about an object only if its Status names an object of the path."""

    @pytest.mark.parametrize(
        ("path", "details"),
        [
            (JOB, {"kind": "jobs", "name": "a"}),
            (JOB, {"kind": "namespaces", "name": "team"}),
            (f"{JOB}/status", {"kind": "jobs", "name": "a"}),
            (f"{JOB}/scale", {"kind": "jobs/scale", "name": "a"}),
            ("/api/v1/namespaces/team", {"kind": "namespaces", "name": "team"}),
            (JOB.rpartition("/")[0], {"kind": "namespaces", "name": "team"}),
        ],
    )
    def test_names_it(self, path: str, details: dict[str, str]) -> None:
        """The object, with or without a subresource, or the namespace that it would be in."""
        assert isinstance(refusal(404, path, "NotFound", **details), errors.NotFound)

    @pytest.mark.parametrize(
        "details",
        [
            {},
            {"kind": "jobs"},
            {"name": "a"},
            {"kind": "jobs", "name": "b"},
            {"kind": "pods", "name": "a"},
            {"kind": "namespaces", "name": "tea"},
        ],
    )
    def test_names_another_or_none(self, details: dict[str, str]) -> None:
        """A version that is not served, or an answer to another question."""
        assert type(refusal(404, JOB, "NotFound", **details)) is errors.NotServed
        assert type(refusal(409, JOB, "Conflict", **details)) is errors.Unproven

    def test_a_conflict_may_have_the_name_of_the_kind(self) -> None:
        """That of a deletion with another uid does."""
        assert type(refusal(409, JOB, "Conflict", kind="Job", name="a")) is errors.Conflict
        assert type(refusal(409, JOB, "Conflict", kind="Pod", name="a")) is errors.Unproven

    def test_a_creation_conflicts_with_an_object_of_its_collection(self) -> None:
        """Its path has no name."""
        made = refusal(409, JOB.rpartition("/")[0], "AlreadyExists", kind="jobs", name="a")
        assert isinstance(made, errors.AlreadyExists)

    @pytest.mark.parametrize("code", [302, 400, 403, 404, 405, 408, 409, 410, 413, 422])
    def test_a_page_proves_nothing(self, code: int) -> None:
        """Only a Status is the API server's word."""
        assert isinstance(answers.error(code, b"<html>no</html>", path=JOB), errors.Unproven)

    @pytest.mark.parametrize(("code", "kind"), [(401, errors.Unauthorized), (429, errors.TooManyRequests)])
    def test_a_page_that_turns_everybody_away_is_understood(self, code: int, kind: type[errors.ApiError]) -> None:
        """Nothing was done, whoever says so."""
        assert type(answers.error(code, b"no", path=JOB)) is kind


class TestWhatIsTheObject:
    """An answer of success is the object that was asked for, or in doubt."""

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{}",
            b"[]",
            b"null",
            b"<html></html>",
            b'{"metadata":{"name":"b"}}',
            b'{"metadata":{"name":"a"}',
            b'{"metadata":{"name":"\xff"}}',
            b'{"metadata":{"name":"a"},"spec":5}',
            b'{"metadata":{"name":"a"},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}",
        ],
    )
    def test_anything_else_is_unreadable(self, body: bytes) -> None:
        """Cut, of wrong types, of another object, of none."""
        with pytest.raises(errors.Unreadable):
            answers.read_object(answers.decoder(Job), body, "Job a", name="a")

    def test_a_deletion_is_told_by_a_status_or_by_the_object(self) -> None:
        """Pods that take their time come back as objects."""
        assert answers.says_gone(b'{"kind":"Status","status":"Success"}')
        for other in (b'{"kind":"Status","status":"Failure"}', b'{"metadata":{"name":"a"}}', b"<html>deleted</html>"):
            assert not answers.says_gone(other)

    @pytest.mark.parametrize("body", [b"{}", b"<html></html>", b'{"kind":"APIGroupList","groups":5}', b"\xff"])
    def test_a_document_of_discovery_says_what_it_is(self, body: bytes) -> None:
        """Else any JSON would prove that a kind is absent."""
        with pytest.raises(errors.Unreadable):
            answers.read_groups(body)
        with pytest.raises(errors.Unreadable):
            answers.read_resources(body)


class Inner(Object):
    """Holds bytes."""

    raw: msgspec.Raw = msgspec.Raw(b"null")


class Holder(Kind):
    """A kind with bytes in several places."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Holder"
    PLURAL: ClassVar = "holders"
    NAMESPACED: ClassVar = False

    one: Inner | None = None
    many: list[Inner] = msgspec.field(default_factory=list)
    top: msgspec.Raw = msgspec.Raw(b"{}")


class TestObjects:
    """Bytes become structs."""

    def test_items_of_a_list_get_their_kind(self) -> None:
        """Servers leave it out there for built-ins."""
        job = answers.decoder(Job)(b'{"metadata":{"name":"a"}}')
        assert (job.kind, job.api_version) == ("Job", "batch/v1")

    def test_raw_fields_let_go_of_the_message(self) -> None:
        """Else a template would keep the whole event in memory."""
        message = b'{"one":{"raw":[1]},"many":[{"raw":[2]},{"raw":[3]}],"top":{"x":4}}'
        before = sys.getrefcount(message)
        holder = answers.decoder(Holder)(message)
        assert sys.getrefcount(message) == before
        assert holder.one is not None
        assert [bytes(each.raw) for each in (holder.one, *holder.many)] == [b"[1]", b"[2]", b"[3]"]
        assert bytes(holder.top) == b'{"x":4}'

    def test_of_metadata_alone_nothing_else_is_read(self) -> None:
        """Whatever form the server chose; the kind is the one that was asked for."""
        body = b'{"kind":"PartialObjectMetadata","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"suspend":true}}'
        job = answers.metadata_decoder(Job, version="v2")(body)
        assert (job.kind, job.api_version, job.metadata.labels) == ("Job", "batch/v2", {"x": "y"})
        assert job.spec == Job().spec

    @pytest.mark.parametrize("decoder", [answers.decoder, answers.metadata_decoder])
    def test_what_kubectl_keeps_for_itself_is_not_held(self, decoder: Any) -> None:
        """It is the whole object once more."""
        body = b'{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","a":"b"}}}'
        assert decoder(Job)(body).metadata.annotations == {"a": "b"}

    @pytest.mark.parametrize("kind", [Job, Workload])
    def test_kinds_without_their_fields_decode(self, kind: type[Kind]) -> None:
        """An object that was just created has little."""
        assert answers.decoder(kind)(b"{}").kind == kind.KIND


class TestVersionedPatches:
    """A patch that says which version it is for may be sent twice."""

    @pytest.mark.parametrize(
        ("body", "carries"),
        [
            (b'{"metadata":{"resourceVersion":"5"},"spec":{}}', True),
            (b'{"metadata":{"resourceVersion":""}}', False),
            (b'{"spec":{"resourceVersion":"5"}}', False),
            (b'[{"op":"test","path":"/metadata/resourceVersion","value":"5"},{"op":"remove","path":"/a"}]', True),
            (b'[{"op":"replace","path":"/metadata/resourceVersion","value":"5"}]', False),
            (b"not json", False),
            (b"3", False),
        ],
    )
    def test_it_is_told_from_its_body(self, body: bytes, carries: bool) -> None:
        """By the field that the server checks, and by nothing that looks like it."""
        assert answers.carries_version(body) is carries


def test_a_body_is_written_in_the_version_that_the_server_has() -> None:
    """A kind that is read in an older version is created in it too."""
    body = b'{"apiVersion": "example.com/v1", "kind": "Train"}'
    assert answers.encode(body) == body
    assert msgspec.json.decode(answers.encode(body, version="v1beta1")) == {
        "apiVersion": "example.com/v1beta1",
        "kind": "Train",
    }
