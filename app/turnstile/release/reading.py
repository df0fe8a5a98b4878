"""Reads a cluster for preflight: a few requests at a time, and never a write. Refused reads are remembered."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import orjson

from turnstile.api.errors import ApiError, Forbidden, NotFound, NotServed, ServerError, WireError
from turnstile.api.meta import Kind
from turnstile.kube.transport import Transport
from turnstile.release.manifests import Manifests, Plain

T = TypeVar("T")
K = TypeVar("K", bound=Kind)
R = TypeVar("R")

AT_ONCE: Final = 8
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
WHOLE: Final = frozenset({"ConfigMap", "Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
"""Kinds of the chart that are read whole: of others, such as the Secret of the certificate, the metadata is enough."""


@dataclass(frozen=True, slots=True)
class Resource:
    """How the server serves a kind."""

    group_version: str
    plural: str
    namespaced: bool

    @property
    def group(self) -> str:
        """Empty for the core group."""
        group, slash, _ = self.group_version.partition("/")
        return group if slash else ""

    def path(self, namespace: str = "", name: str = "") -> str:
        """URL path of the collection, or of one object."""
        root = "/apis" if self.group else "/api"
        parts = [root, self.group_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *([name] if name else [])])


class Reading:
    """A cluster as its API server shows it to the caller."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.failures: list[str] = []
        """Kinds that the caller may not read."""
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def each(self, ask: Callable[[T], Awaitable[R]], about: Iterable[T]) -> list[R]:
        """The answers to a question about each of several things, some at a time, in their order."""

        async def one(thing: T) -> R:
            async with self._turns:
                return await ask(thing)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(thing)) for thing in about]
        except* (ApiError, WireError) as errors:
            raise errors.exceptions[0] from None
        return [each.result() for each in tasks]

    async def get(self, path: str, *, metadata_only: bool = False) -> Plain | None:
        """One object or document; None if there is none, or the caller may not read it."""
        accept = _METADATA if metadata_only else "application/json"
        try:
            found: Plain = orjson.loads(await self._transport.request("GET", path, accept=accept))
        except (NotFound, NotServed) as error:
            await self._gone(path, error)
            return None
        except Forbidden:
            self.failures.append(path)
            return None
        return found

    async def _gone(self, path: str, error: ApiError) -> None:
        """Raise a 404 again that does not prove that there is no such object or kind, such as a proxy's."""
        if isinstance(error, NotServed) and not await self._transport.absent(path):
            raise error

    async def items(self, path: str, *, labels: str = "", fields: str = "") -> list[Plain]:
        """The objects of a collection; none if the kind is not served, or the caller may not read it."""
        query = {name: text for name, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}
        try:
            found, _ = await self._transport.list_raw(path, params=query)
        except NotServed as error:
            await self._gone(path, error)
            return []
        except Forbidden:
            self.failures.append(path)
            return []
        return [orjson.loads(bytes(each)) for each in found]

    async def webhook_configurations(self) -> list[Plain]:
        """All webhook configurations, of both kinds."""
        found: list[Plain] = []
        for kind, plural in (
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ):
            found += [{**each, "kind": kind} for each in await self.items(f"{ADMISSION}/{plural}")]
        return found

    async def names(self, path: str, *, labels: str) -> list[str]:
        """The names of the objects with these labels."""
        query: dict[str, str | int] = {"labelSelector": labels}
        try:
            answer = await self._transport.request("GET", path, params=query, accept=_METADATA_LIST)
        except NotServed as error:
            await self._gone(path, error)
            return []
        except Forbidden:
            self.failures.append(path)
            return []
        return [each["metadata"]["name"] for each in orjson.loads(answer).get("items") or ()]

    async def objects(self, kind: type[K], *, labels: str = "") -> AsyncIterator[K]:
        """The objects of a kind, page by page; none if the kind is not served, or the caller may not read it. An object
        that cannot be decoded is a failure too."""
        try:
            await self._transport.find_version(kind)
            pages = self._transport.pages(
                self._transport.collection_path(kind), params={"labelSelector": labels} if labels else {}
            )
            decode = self._transport.decoder(kind)
            while (found := await pages.next()) is not None:
                for raw in found[1].items or ():
                    try:
                        job = decode(raw)
                    except msgspec.ValidationError as error:
                        self.failures.append(f"an object of {kind.PLURAL} ({error})")
                        continue
                    yield job
        except NotServed as error:
            await self._gone(kind.collection_path(), error)
        except (Forbidden, ServerError) as error:
            plural = f"{kind.PLURAL}.{kind.GROUP}" if kind.GROUP else kind.PLURAL
            self.failures.append(plural if isinstance(error, Forbidden) else f"{plural} ({error.message})")

    async def resources(self, group_versions: Iterable[str]) -> dict[tuple[str, str], Resource]:
        """How the kinds of these API versions are served, by version and kind."""

        async def of(group_version: str) -> dict[tuple[str, str], Resource]:
            root = "/apis" if "/" in group_version else "/api"
            try:
                found = await self.get(f"{root}/{group_version}")
            except ApiError as error:
                if error.code != 503:  # an aggregated API whose server is down
                    raise
                found = None
            return {
                (group_version, each["kind"]): Resource(group_version, each["name"], bool(each["namespaced"]))
                for each in (found or {}).get("resources") or ()
                if "/" not in each["name"]
            }

        found = await self.each(of, sorted(set(group_versions)))
        return {key: resource for part in found for key, resource in part.items()}

    async def live(self, manifests: Manifests, resources: Mapping[tuple[str, str], Resource]) -> list[Plain]:
        """The objects of the manifests as the cluster has them; those that are there."""

        async def of(wanted: Plain) -> Plain | None:
            resource = resources.get((wanted["apiVersion"], wanted["kind"]))
            if resource is None:
                return None
            meta = wanted["metadata"]
            path = resource.path(meta.get("namespace", ""), meta["name"])
            found = await self.get(path, metadata_only=wanted["kind"] not in WHOLE)
            return {**found, "kind": wanted["kind"], "apiVersion": wanted["apiVersion"]} if found else None

        return [each for each in await self.each(of, manifests.objects) if each is not None]

    async def may(self, attributes: Mapping[str, Any]) -> bool:
        """Whether the caller may do what the attributes of a SelfSubjectAccessReview say. It is stored nowhere."""
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": dict(attributes)}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await self._transport.request("POST", path, body=orjson.dumps(body), retry="always")
        return bool(orjson.loads(answer).get("status", {}).get("allowed"))

    async def lacking(self, questions: Sequence["Right"]) -> list[str]:
        """The rights among these that the caller does not have."""
        answers = await self.each(lambda right: self.may(right.attributes), questions)
        return [str(right) for right, allowed in zip(questions, answers, strict=True) if not allowed]


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource, in one namespace or in all."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    path: str = ""
    """The path of a right that is about no resource."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """For a SelfSubjectAccessReview."""
        if self.path:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        plural, _, subresource = self.resource.partition("/")
        given = {
            "verb": self.verb, "group": self.group, "resource": plural, "subresource": subresource,
            "namespace": self.namespace, "name": self.name,
        }  # fmt: skip
        return {"resourceAttributes": {key: value for key, value in given.items() if value}}

    def __str__(self) -> str:
        plural, slash, subresource = self.resource.partition("/")
        what = self.path or f"{plural}.{self.group}".rstrip(".") + slash + subresource
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {what}{where}"


def rights_to_install(manifests: Manifests, resources: Mapping[tuple[str, str], Resource]) -> list[Right]:
    """Rights that Helm needs for the objects of the chart, and for the Secret in which it remembers the release."""
    places = {
        (resource.group, resource.plural, each["metadata"].get("namespace", "") if resource.namespaced else "")
        for each in manifests.objects
        if (resource := resources.get((each["apiVersion"], each["kind"]))) is not None
    }
    verbs = ("get", "create", "patch", "delete")
    found = [Right(verb, group, plural, where) for group, plural, where in sorted(places) for verb in verbs]
    found += [Right(verb, "", "secrets", manifests.namespace) for verb in ("list", "update")]
    return list(dict.fromkeys(found))


def rights_to_grant(manifests: Manifests) -> list[Right]:
    """Rights that the roles of the chart grant: only who has these rights too may create the roles."""
    found: dict[Right, None] = {}
    for role in manifests.of_kind("Role", "ClusterRole"):
        namespace = role["metadata"].get("namespace", "")
        for rule in role.get("rules") or ():
            for verb in rule["verbs"]:
                for path in rule.get("nonResourceURLs") or ():
                    found[Right(verb, "", "", path=path)] = None
                for group in rule.get("apiGroups") or ():
                    for resource in rule.get("resources") or ():
                        for name in rule.get("resourceNames") or ("",):
                            found[Right(verb, group, resource, namespace, name)] = None
    return list(found)
