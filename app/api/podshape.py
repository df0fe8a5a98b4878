"""A digest of the containers of a pod template, so that a small view still shows whether they changed.

A Workload carries a copy of its job's pod templates, and the two are compared at every reconcile (Kueue's
EquivalentToWorkload: containers and init containers by semantic equality). Keeping fifty thousand templates to compare
them would cost more memory than all else together; sixteen bytes a pod set do. Equal are templates that mean the same:
key order, absent or empty values, the spelling of quantities and repeated environment variables (the last value counts)
make no difference. Must never be used as an identity: it does not cover volumes, selectors or labels.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec
import orjson

from app.api.errors import InvalidValue
from app.api.meta import Object
from app.api.quantity import parse

_ABSENT: Final = msgspec.Raw(b"null")
_QUANTITIES: Final = frozenset(("requests", "limits"))


class _Spec(Object):
    containers: msgspec.Raw = _ABSENT
    init_containers: msgspec.Raw = _ABSENT


class _Template(Object):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode: Final[Callable[[bytes | msgspec.Raw], _Template]] = msgspec.json.Decoder(_Template).decode


def containers_digest(template: bytes | msgspec.Raw) -> bytes:
    """Sixteen bytes that are the same for templates whose containers and init containers mean the same.

    `template` is the JSON of a PodTemplateSpec (or of a Pod, whose `spec` stands at the same place). Raises
    msgspec.ValidationError if it is none.
    """
    spec = _decode(template).spec
    return _digest(bytes(spec.containers), bytes(spec.init_containers))


def template_digest(template: bytes | msgspec.Raw) -> bytes:
    """Sixteen bytes that are the same for templates that mean the same in all they say."""
    canonical = _canonical(_load(bytes(template)))
    return blake2b(orjson.dumps(canonical, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


@lru_cache(maxsize=1024)
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
