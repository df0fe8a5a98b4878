"""A digest of the containers of a pod template, so that a small view still shows whether they changed.

A Workload carries a copy of its job's pod templates, and the two are compared at every reconcile (Kueue's
EquivalentToWorkload: containers and init containers by semantic equality). Keeping fifty thousand templates to compare
them would cost more memory than all else together; sixteen bytes a pod set do. Equal are templates that mean the same:
key order, absent or empty values, the spelling of quantities and repeated environment variables (the last value counts)
make no difference. A large template of a job is held reduced to what decides, with that digest. Must never be used as
an identity: it does not cover volumes, selectors or labels.
"""

import secrets
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import msgspec
import orjson

from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Object
from turnstile.api.pods import Container, PodSpec
from turnstile.api.quantity import parse
from turnstile.api.remembered import remembered

_ABSENT: Final = msgspec.Raw(b"null")
LARGE: Final = 16 << 10
"""Bytes from which on a template is reduced."""
MARK: Final = f"reduced-{secrets.token_hex(16)}"
"""Key in the spec of a reduced template, with the digest of its containers. No tenant can write it: no other process
uses the same."""
_QUANTITIES: Final = frozenset(("requests", "limits"))


class _Marked(Object):
    digest: str = msgspec.field(default="", name=MARK)


class _MarkedTemplate(Object):
    spec: _Marked = msgspec.field(default_factory=_Marked)


class _Spec(Object):
    containers: msgspec.Raw = _ABSENT
    init_containers: msgspec.Raw = _ABSENT


class _Template(Object):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode: Final[Callable[[bytes | msgspec.Raw], _Template]] = msgspec.json.Decoder(_Template).decode
_decode_mark: Final[Callable[[bytes], _MarkedTemplate]] = msgspec.json.Decoder(_MarkedTemplate).decode
_OF_SPEC: Final = frozenset(PodSpec.__struct_encode_fields__)
_OF_CONTAINER: Final = Container.__struct_encode_fields__


def containers_digest(template: bytes | msgspec.Raw) -> bytes:
    """Sixteen bytes that are the same for templates whose containers and init containers mean the same.

    `template` is the JSON of a PodTemplateSpec (or of a Pod, whose `spec` stands at the same place). Raises
    msgspec.ValidationError if it is none.
    """
    spec = _decode(template).spec
    return _digest(bytes(spec.containers), bytes(spec.init_containers))


def held_digest(template: bytes) -> bytes:
    """`containers_digest` of a template as a store holds it, reduced or not."""
    return bytes.fromhex(_decode_mark(template).spec.digest) if is_reduced(template) else containers_digest(template)


def is_reduced(template: bytes) -> bool:
    """Whether a template lacks what no decision reads (`reduced`)."""
    return MARK.encode() in template


def held(template: msgspec.Raw) -> msgspec.Raw:
    """A copy of a template for a store; of a large one only what decides is held. A value that is no template is held
    whole."""
    if len(memoryview(template)) < LARGE:
        return template.copy()
    return msgspec.Raw(reduced(bytes(template)))


@remembered()
def reduced(template: bytes) -> bytes:
    """A template without what no decision reads, such as environment, commands and volumes; marked with the digest of
    its containers. Whole if it is no template."""
    try:
        digest, plain = containers_digest(template), _load(template)
        spec = {key: part for key, part in plain["spec"].items() if key in _OF_SPEC}
        for name in ("containers", "initContainers"):
            if spec.get(name) is not None:
                spec[name] = [{key: each[key] for key in _OF_CONTAINER if key in each} for each in spec[name]]
        return msgspec.json.encode({**plain, "spec": {**spec, MARK: digest.hex()}})
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        return template


def template_digest(template: bytes | msgspec.Raw) -> bytes:
    """Sixteen bytes that are the same for templates that mean the same in all they say."""
    canonical = _canonical(_load(bytes(template)))
    return blake2b(orjson.dumps(canonical, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def each_variable_once(template: Any) -> Any:
    """The plain JSON of a PodTemplateSpec with each environment variable of a container once: its last value, at the
    place of its first. Changes `template` and returns it.

    Kueue's Workload CRD refuses a variable that is repeated.
    """
    spec = template.get("spec") if isinstance(template, dict) else None
    for name in ("containers", "initContainers"):
        containers = spec.get(name) if isinstance(spec, dict) else None
        for container in containers if isinstance(containers, list) else ():
            if isinstance(container, dict) and isinstance(container.get("env"), list):
                container["env"] = _last_of_each(container["env"])
    return template


@remembered()
def _digest(containers: bytes, init_containers: bytes) -> bytes:
    """Jobs of one kind come in thousands with the same bytes: the canonical form is worked out once for them."""
    canonical = [_canonical(_load(part)) for part in (containers, init_containers)]
    return blake2b(orjson.dumps(canonical, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _load(data: bytes) -> Any:
    """JSON that is no text (half of a surrogate pair) is as wrong as one of another type."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise msgspec.ValidationError(str(error)) from None


def _canonical(value: Any) -> Any:
    match value:
        case dict():
            entries = (
                (key, _quantities(part) if key in _QUANTITIES else _canonical(part)) for key, part in value.items()
            )
            plain = {key: part for key, part in entries if not _empty(part)}
            if isinstance(plain.get("env"), list):
                plain["env"] = _last_of_each(plain["env"])
            return plain
        case list():
            return [_canonical(part) for part in value]
        case _:
            return value


def _empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _quantities(amounts: Any) -> Any:
    if not isinstance(amounts, dict):
        return _canonical(amounts)
    return {resource: _quantity(amount) for resource, amount in amounts.items()}


def _quantity(amount: Any) -> Any:
    try:
        return str(parse(amount))
    except InvalidValue:
        return amount


def _last_of_each(variables: list[Any]) -> list[Any]:
    """Repeated names keep their first place and their last value, as the kubelet reads them."""
    by_name: dict[Any, Any] = {}
    for position, variable in enumerate(variables):
        name = variable.get("name", position) if isinstance(variable, dict) else position
        by_name[name] = variable
    return list(by_name.values())
