"""Requests of a Spark application's driver and executors, and the number of executors.

The operator only passes settings to spark-submit; Spark computes the pods from them later (Spark 3.5 and 4:
BasicDriverFeatureStep, BasicExecutorFeatureStep, ResourceProfile). spark-submit keeps the last value of a property, and
the operator writes `sparkConf` before the fields of driver and executor: so a field wins over `sparkConf`, and
`sparkConf` over `memoryOverheadFactor`. Must never read anything but the settings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from turnstile.api.errors import InvalidValue, PermanentError
from turnstile.api.numbers import parse_int32
from turnstile.api.quantity import canonical, parse

Role = Literal["driver", "executor"]

UNLIMITED: Final = 2**31 - 1
"""Executors of an application that may have any number."""
DYNAMIC: Final = "spark.dynamicAllocation"

_MEBI: Final = 1 << 20
_MOST_FACTOR: Final = float(2**63)
"""A larger share of any memory is more than all that there is, and not a number any more when it is multiplied."""
_MEMORY: Final = re.compile(r"([0-9]+)([a-z]*)")
_UNITS: Final = {"b": 1} | {
    f"{letter}{rest}": 1 << 10 * power for power, letter in enumerate("kmgtp", 1) for rest in ("", "b", "i")
}
"""Those of Spark, and those of Kubernetes, which Kueue takes too."""
_DEFAULT_MEMORY: Final = "1g"
_DEFAULT_EXECUTORS: Final = 2
_MINIMAL_OVERHEAD: Final = "384m"
_JVM_FACTOR: Final = 0.1
_OTHER_FACTOR: Final = 0.4
_OTHER_TYPES: Final = ("Python", "R")
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an application that concern both roles."""

    type: str
    conf: Mapping[str, str]
    overhead_factor: str | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one role; None for a field that is absent."""

    cores: int | None = None
    core_request: str | None = None
    core_limit: str | None = None
    memory: str | None = None
    memory_limit: str | None = None
    memory_overhead: str | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests of a pod of a role. `overhead` is the memory that Spark adds to that of the container."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]
    overhead: str


def amounts(role: Role, settings: Settings, fields: Fields) -> Amounts:
    """Requests and limits of a pod. Raises PermanentError if a setting cannot be read."""
    conf = settings.conf
    memory = _memory(_chosen(fields.memory, conf, f"spark.{role}.memory") or _DEFAULT_MEMORY)
    limits = _gpus(role, conf)
    if limit := _chosen(fields.core_limit, conf, f"spark.kubernetes.{role}.limit.cores"):
        limits["cpu"] = _cpu(limit)
    if fields.memory_limit is not None:
        limits["memory"] = _bytes(_memory(fields.memory_limit))
    extra = _overhead(role, settings, fields, memory) + (_beside_the_heap(settings) if role == "executor" else 0)
    if memory + extra > _MOST:
        raise PermanentError(f"{role}: more memory than can be counted")
    return Amounts({"cpu": _cores(role, conf, fields), "memory": _bytes(memory)}, limits, _bytes(extra))


def executors(instances: int | None, conf: Mapping[str, str]) -> int:
    """Executors of an application without dynamic allocation: two, unless said otherwise."""
    if instances is not None:
        return max(instances, 0)
    return max(_whole(conf, "spark.executor.instances", _DEFAULT_EXECUTORS), 0)


def may_grow_to(max_executors: int | None, conf: Mapping[str, str]) -> int:
    """The largest number of executors with dynamic allocation: any, unless `maxExecutors` limits it."""
    most = _whole(conf, f"{DYNAMIC}.maxExecutors", UNLIMITED) if max_executors is None else max_executors
    return max(most, 0)


def is_dynamic(conf: Mapping[str, str]) -> bool:
    """Whether `sparkConf` switches dynamic allocation on. Spark takes `true` in any case."""
    return conf.get(f"{DYNAMIC}.enabled", "").strip().lower() == "true"


def _chosen(field: str | None, conf: Mapping[str, str], key: str) -> str | None:
    return field if field is not None else conf.get(key)


def _cores(role: Role, conf: Mapping[str, str], fields: Fields) -> str:
    request = _chosen(fields.core_request, conf, f"spark.kubernetes.{role}.request.cores")
    if request is not None:
        return _cpu(request)
    return str(fields.cores if fields.cores is not None else _whole(conf, f"spark.{role}.cores", 1))


def _overhead(role: Role, settings: Settings, fields: Fields, memory: int) -> int:
    conf = settings.conf
    given = _chosen(fields.memory_overhead, conf, f"spark.{role}.memoryOverhead")
    if given is not None:
        return _memory(given)
    factor = conf.get(f"spark.{role}.memoryOverheadFactor") or conf.get("spark.kubernetes.memoryOverheadFactor")
    factor = factor or settings.overhead_factor
    if factor:
        try:
            share = float(factor)
        except ValueError:
            share = -1.0
        if not 0 <= share < _MOST_FACTOR:
            raise PermanentError(f"memory overhead factor {factor!r}: must be a number that is not negative")
    else:
        share = _OTHER_FACTOR if settings.type in _OTHER_TYPES else _JVM_FACTOR
    least = _memory(conf.get(f"spark.{role}.minMemoryOverhead") or _MINIMAL_OVERHEAD)
    return max(int(share * (memory // _MEBI)) * _MEBI, least)


def _beside_the_heap(settings: Settings) -> int:
    """Memory of an executor for Python workers and outside of the heap."""
    conf, extra = settings.conf, 0
    if settings.type == "Python" and (python := conf.get("spark.executor.pyspark.memory")):
        extra += _memory(python)
    if conf.get("spark.memory.offHeap.enabled", "").strip().lower() == "true":
        extra += _memory(conf.get("spark.memory.offHeap.size", "0"), unit=1)
    return extra


def _gpus(role: Role, conf: Mapping[str, str]) -> dict[str, str]:
    """Devices that `sparkConf` asks for: `spark.executor.resource.gpu.amount` of a vendor."""
    found: dict[str, str] = {}
    prefix, suffix = f"spark.{role}.resource.", ".amount"
    for key in conf:
        name = key.removeprefix(prefix).removesuffix(suffix)
        if key == f"{prefix}{name}{suffix}" and (vendor := conf.get(f"{prefix}{name}.vendor")):
            found[f"{vendor}/{name}"] = str(max(_whole(conf, key, 0), 0))
    return found


def _whole(conf: Mapping[str, str], key: str, default: int) -> int:
    if key not in conf:
        return default
    number = parse_int32(conf[key].strip())
    if number is None:
        raise PermanentError(f"sparkConf[{key}]: {conf[key]!r}: must be a whole number")
    return number


def _cpu(text: str) -> str:
    try:
        parse(text)
    except InvalidValue as error:
        raise PermanentError(f"{text!r} is no number of cores: {error}") from None
    return canonical(text)


def _memory(text: str, *, unit: int = _MEBI) -> int:
    """Bytes of a size as Spark writes it: `512m`, `2g`; a bare number counts units. Spark cuts it to whole MiB."""
    found = _MEMORY.fullmatch(text.strip().lower())
    if found is None or (found[2] and found[2] not in _UNITS) or len(found[1]) > 20:
        raise PermanentError(f"{text!r} is no size of memory: write it as Spark does, such as 512m or 2g")
    size = int(found[1]) * (_UNITS[found[2]] if found[2] else unit)
    return size // _MEBI * _MEBI


def _bytes(size: int) -> str:
    """A size as the API server writes it: `512Mi`, `2Gi`."""
    return canonical(f"{size >> 10}Ki")
