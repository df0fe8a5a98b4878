"""Faults of `resources.deviceClassMappings`: which DRA devices count against which quota resource, in Kueue's words."""

import re
from collections.abc import Collection, Iterator
from typing import Final

from turnstile.api import cel
from turnstile.api.config.v1beta2 import Configuration, DeviceClassMapping, DeviceSource
from turnstile.api.validation.errors import FieldError, duplicate, invalid, required, too_long, too_many
from turnstile.api.validation.labels import dns_label_faults, label_key_faults, subdomain_faults

PATH: Final = "resources.deviceClassMappings"
_ONE_SOURCE: Final = "exactly one source type must be set per entry"
_DEVICE: Final = ("allowMultipleAllocations", "attributes", "capacity", "driver")
"""Attributes that an expression may ask a device for."""
_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_IDENTIFIER_TEXT: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    f"characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '{_IDENTIFIER}')"
)


def device_class_errors(config: Configuration, gates: Collection[str]) -> Iterator[FieldError]:
    """All faults, in order."""
    mappings = (config.resources.device_class_mappings or []) if config.resources is not None else []
    if len(mappings) > 16:
        yield too_many(PATH, len(mappings), 16)
    names: set[str] = set()
    owners: dict[str, tuple[str, set[str]]] = {}
    for index, mapping in enumerate(mappings):
        path = f"{PATH}[{index}]"
        yield from _key_errors(f"{path}.name", mapping.name)
        if mapping.name in names:
            yield duplicate(f"{path}.name", mapping.name)
        names.add(mapping.name)
        yield from _class_errors(f"{path}.deviceClassNames", mapping, owners)
        yield from _sources_errors(f"{path}.sources", mapping, gates)


def _key_errors(path: str, key: str) -> Iterator[FieldError]:
    if faults := label_key_faults(key):
        yield invalid(path, key, "; ".join(faults))
    if len(key) > 253:
        yield invalid(path, key, "must not exceed 253 characters")


def _class_errors(
    path: str, mapping: DeviceClassMapping, owners: dict[str, tuple[str, set[str]]]
) -> Iterator[FieldError]:
    """`owners` has the resource of each class seen so far and the counters that it is counted by."""
    classes = mapping.device_class_names or []
    if not classes:
        yield required(path, "at least one device class name is required")
    if len(classes) > 8:
        yield too_many(path, len(classes), 8)
    counter = mapping.sources[0].counter.name if mapping.sources and mapping.sources[0].counter is not None else ""
    for index, name in enumerate(classes):
        at = f"{path}[{index}]"
        yield from _key_errors(at, name)
        if name in classes[:index]:
            yield duplicate(at, name)
        owner, counters = owners.setdefault(name, (mapping.name, {counter} - {""}))
        if owner == mapping.name:
            continue
        # One class may feed several resources as long as each counts something else of it.
        if not counter or not counters:
            yield invalid(at, name, f"device class already mapped to resource {owner}")
        elif counter in counters:
            yield invalid(at, name, f'device class already has a counter source for counter "{counter}"')
        else:
            counters.add(counter)


def _sources_errors(path: str, mapping: DeviceClassMapping, gates: Collection[str]) -> Iterator[FieldError]:
    sources = mapping.sources or []
    kinds = set()
    for index, source in enumerate(sources):
        at = f"{path}[{index}]"
        if source.counter is None and source.capacity is None:
            yield required(at, _ONE_SOURCE)
        elif source.counter is not None and source.capacity is not None:
            yield invalid(at, "counter+capacity", _ONE_SOURCE)
        elif source.counter is not None:
            kinds.add("counter")
            yield from _counter_errors(f"{at}.counter", source.counter, gates)
        elif source.capacity is not None:
            kinds.add("capacity")
            yield from _capacity_errors(f"{at}.capacity", source.capacity, gates)
    if len(kinds) > 1:
        yield invalid(path, len(sources), "cannot mix counter and capacity sources in the same mapping")


def _counter_errors(path: str, counter: DeviceSource, gates: Collection[str]) -> Iterator[FieldError]:
    gate = "KueueDRAIntegrationPartitionableDevices"
    if gate not in gates:
        yield invalid(path, value=True, detail=f"counter sources require {gate} to be enabled")
        return
    if not counter.name:
        yield required(f"{path}.name", "")
    elif faults := dns_label_faults(counter.name):
        yield invalid(f"{path}.name", counter.name, ",".join(faults))
    yield from _source_errors(path, counter)


def _capacity_errors(path: str, capacity: DeviceSource, gates: Collection[str]) -> Iterator[FieldError]:
    gate = "KueueDRAIntegrationConsumableCapacity"
    if gate not in gates:
        yield invalid(path, value=True, detail=f"capacity sources require {gate} to be enabled")
        return
    yield from _qualified_name_errors(f"{path}.name", capacity.name)
    yield from _source_errors(path, capacity)


def _source_errors(path: str, source: DeviceSource) -> Iterator[FieldError]:
    if not source.driver:
        yield required(f"{path}.driver", "")
    elif len(source.driver) > 63:
        yield invalid(f"{path}.driver", source.driver, "must not exceed 63 characters")
    elif faults := subdomain_faults(source.driver):
        yield invalid(f"{path}.driver", source.driver, ",".join(faults))
    at, expression = f"{path}.deviceSelector.cel.expression", source.device_selector.cel
    if expression is None or not expression.expression:
        yield required(at, "")
    elif fault := cel.fault(expression.expression, variables={"device": _DEVICE}):
        yield invalid(at, expression.expression, f"CEL compilation failed: {fault}")


def _qualified_name_errors(path: str, name: str) -> Iterator[FieldError]:
    domain, slash, rest = name.partition("/")
    if "/" in rest:
        return  # Kueue and Kubernetes let further slashes pass
    if not slash:
        yield from _identifier_errors(path, name)
        return
    if not domain:
        yield invalid(path, "", "the domain must not be empty")
    else:
        if len(domain) > 63:
            yield too_long(path, 63)
        for fault in subdomain_faults(domain.lower()):
            yield invalid(path, domain, fault)
    if not rest:
        yield invalid(path, "", "the name must not be empty")
    else:
        yield from _identifier_errors(path, rest)


def _identifier_errors(path: str, name: str) -> Iterator[FieldError]:
    if len(name) > 32:
        yield too_long(path, 32)
    if not re.fullmatch(_IDENTIFIER, name):
        yield invalid(path, name, _IDENTIFIER_TEXT)
