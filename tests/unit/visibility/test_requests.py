"""What a request to the visibility API asks for, and who sends it."""

import pytest

from turnstile.kube.frontproxy import FrontProxy, front_proxy
from turnstile.kube.reviews import User
from turnstile.visibility import discovery, openapi
from turnstile.visibility.resources import GROUP, VERSIONS, Asked, page, read

DATA = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
"""As a kube-apiserver writes it."""


@pytest.mark.parametrize(
    ("method", "path", "asked", "verb"),
    [
        (
            "GET",
            f"/apis/{GROUP}/v1beta2/clusterqueues/a/pendingworkloads",
            ("v1beta2", "", "clusterqueues", "a", "pendingworkloads"),
            "get",
        ),
        (
            "GET",
            f"/apis/{GROUP}/v1beta1/namespaces/team/localqueues/main/pendingworkloads",
            ("v1beta1", "team", "localqueues", "main", "pendingworkloads"),
            "get",
        ),
        ("GET", f"/apis/{GROUP}/v1beta2/clusterqueues", ("v1beta2", "", "clusterqueues", "", ""), "list"),
        ("POST", f"/apis/{GROUP}/v1beta2/clusterqueues", ("v1beta2", "", "clusterqueues", "", ""), "create"),
        ("DELETE", f"/apis/{GROUP}/v1beta2/clusterqueues/a", ("v1beta2", "", "clusterqueues", "a", ""), "delete"),
        ("GET", f"/apis/{GROUP}/v1beta2", ("", "", "", "", ""), "get"),
        ("GET", f"/apis/{GROUP}/v1beta2/", ("", "", "", "", ""), "get"),
        ("GET", "/openapi/v2", ("", "", "", "", ""), "get"),
    ],
)
def test_a_path_names_a_resource_or_none(method: str, path: str, asked: tuple[str, ...], verb: str) -> None:
    """As the API server reads it, so that a role means the same here and there."""
    found = read(method, path)
    assert found == Asked(method, path, *asked)
    assert found.verb == verb
    assert ("resourceAttributes" in found.attributes) == bool(asked[0])


@pytest.mark.parametrize(
    ("given", "meant"),
    [((0, 0), (1000, 0)), ((-1, -1), (0, 0)), ((7, 3), (7, 3)), ((2_000_000_000, 1), (100_000, 1))],
)
def test_limit_and_offset_have_bounds(given: tuple[int, int], meant: tuple[int, int]) -> None:
    """0 is the default, as in Kueue, and a negative limit gets nothing."""
    assert page(*given) == meant


def test_the_front_proxy_names_its_user() -> None:
    """With groups, UID and extra fields, whose names are escaped in headers."""
    headers = [
        (b"x-remote-user", b"alice"),
        (b"x-remote-uid", b"17"),
        (b"x-remote-group", b"team"),
        (b"x-remote-group", b"system:authenticated"),
        (b"x-remote-extra-example.com%2fscopes", b"one"),
        (b"x-remote-extra-example.com%2fscopes", b"two"),
        (b"x-other", b"ignored"),
    ]
    user = front_proxy(DATA).user(headers)
    assert user == User("alice", "17", ("team", "system:authenticated"), {"example.com/scopes": ("one", "two")})
    assert front_proxy(DATA).user([(b"x-remote-group", b"system:masters")]) is None


@pytest.mark.parametrize(
    ("data", "name", "known"),
    [
        (DATA, "front-proxy-client", True),
        (DATA, "another", False),
        (DATA, None, False),
        (DATA | {"requestheader-allowed-names": "[]"}, "another", True),
        (DATA | {"requestheader-client-ca-file": ""}, "front-proxy-client", False),
        ({}, "front-proxy-client", False),
    ],
)
def test_only_the_front_proxy_names_users(data: dict[str, str], name: str | None, known: bool) -> None:
    """Its certificate must have one of the allowed names; without a list of names every name is allowed."""
    assert front_proxy(data).knows(name) is known


def test_before_the_front_proxy_is_known_nobody_is_it() -> None:
    """Not even with a certificate."""
    assert not FrontProxy().knows("front-proxy-client")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (f"{discovery.AGGREGATED_TYPE},application/json", True),
        ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", True),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_the_aggregated_document_is_for_those_who_know_it(accept: str, wanted: bool) -> None:
    """Others get the list of groups."""
    assert discovery.wants_aggregated(accept) is wanted


def test_every_document_names_the_same_resources() -> None:
    """Discovery, aggregated discovery and both forms of OpenAPI."""
    (group,) = discovery.aggregated()["items"]
    assert [each["version"] for each in group["versions"]] == list(VERSIONS)
    for version, whole in zip(VERSIONS, group["versions"], strict=True):
        listed = {each["name"] for each in discovery.resource_list(version)["resources"] if each["verbs"] == ["get"]}
        below = {
            f"{each['resource']}/{one['subresource']}" for each in whole["resources"] for one in each["subresources"]
        }
        assert listed == below
        third = openapi.v3(version)["paths"]
        assert {f"{path.split('/')[-3]}/{path.split('/')[-1]}" for path in third} == listed
        assert third.keys() <= openapi.v2()["paths"].keys()
