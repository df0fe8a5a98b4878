"""The manager configuration and its feature gates, as recorded: loading, defaults, conversion, validation, TLS."""

import re
from typing import Any

from pydantic import ValidationError

from tests.conformance.cases import Case
from turnstile.api.config import defaults, features, tls, v1beta1, v1beta2, validation
from turnstile.api.config.conversion import from_hub, to_hub
from turnstile.api.config.defaults import Installation
from turnstile.api.config.devices import device_class_errors
from turnstile.api.config.document import read
from turnstile.api.config.loading import type_problems
from turnstile.api.durations import SECOND
from turnstile.api.validation.errors import FieldError

Json = Any

KUEUE = Installation(
    namespace="kueue-system",
    service="kueue-webhook-service",
    secret="kueue-webhook-server-cert",
    lease="c1f6bfd2.kueue.x-k8s.io",
    certificates="TMPDIR/k8s-webhook-server/serving-certs",
    lease_duration=15 * SECOND,
    renew_deadline=10 * SECOND,
    retry_period=2 * SECOND,
)
"""Kueue's own."""


def check_validation(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Faults by field and type, and their texts."""
    found = []
    for call in run.get("trace") or []:
        config = _hub(call["args"]["c"])
        gates = _gates(case, run)
        match call["op"].rsplit(".", 1)[-1]:
            case "Validate":
                have = validation.validate(config, gates)
            case "validateCustomLabels":
                have = list(validation.custom_label_errors(config))
            case "validateDeviceClassMappings":
                have = list(device_class_errors(config, gates))
            case _:
                return None
        found += _compare_faults(_result(call, 0) or [], have)
    return found


def check_gates(case: Case, run: dict[str, Json]) -> list[str]:
    """Faults of a setting of gates. Which of several faults is told first is not fixed in Go."""
    found = []
    for call in run.get("trace") or []:
        args = call["args"]
        have = features.setting_errors(args["featureGateMap"], flag=args["featureGateCLI"])
        found += _compare_faults(_result(call, 0) or [], have, unordered=True)
    return found


def check_defaults(case: Case, run: dict[str, Json]) -> list[str]:
    """What a file that leaves things out comes to."""
    body = case.body["case"]
    if "v1beta1" in case.suite:
        old = v1beta1.Configuration.model_validate(_present(body["original"]))
        defaults.set_defaults_v1beta1(old, KUEUE)
        have = old.plain()
    else:
        new = _hub(body["original"])
        defaults.set_defaults(new, KUEUE)
        have = new.plain()
    return _unlike(body["want"], have)


def check_conversion_to(case: Case, run: dict[str, Json]) -> list[str]:
    """From v1beta1 to v1beta2."""
    body = case.body["case"]
    return _unlike(body["expected"], to_hub(_spoke(body["input"])).plain())


def check_conversion_from(case: Case, run: dict[str, Json]) -> list[str]:
    """From v1beta2 to v1beta1."""
    body = case.body["case"]
    return _unlike(body["expected"], from_hub(_hub(body["input"])).plain())


def check_round_trip(case: Case, run: dict[str, Json]) -> list[str]:
    """From v1beta1 and back."""
    body = case.body["case"]
    return _unlike(run["checks"][0]["got"], from_hub(to_hub(_spoke(body["v1beta1Obj"]))).plain())


def check_encoding(case: Case, run: dict[str, Json]) -> list[str]:
    """The text of a configuration has its version and kind, and reads back as the same."""
    body = case.body["case"]
    have = {"apiVersion": v1beta2.API_VERSION, "kind": v1beta2.KIND, **_hub(body["cfg"]).plain()}
    written = read(run["trace"][0]["results"][0])
    return _unlike(body["wantResult"], have) + _unlike(written.data, have)


def check_load(case: Case, run: dict[str, Json]) -> list[str] | None:
    """A configuration that was loaded loads as itself; the files are not recorded, only what they came to.

    Fields that were unknown in a file are put back, and have to be named. None for a file that could not be read at
    all: nothing of it is recorded.
    """
    found = []
    compared = False
    for call in run.get("trace") or []:
        match call["op"].rsplit(".", 1)[-1]:
            case "Load":
                text, fault = _result(call, 1), _result(call, 2)
                unknown = re.findall(r'unknown field "([^"]+)"', (fault or {}).get("message", ""))
                if fault and not unknown:
                    continue
                found += _load(text, unknown)
            case "AddWebhookSettingsTo":
                wanted = _result(call, 0)
                found += _tls_fault((wanted or {}).get("message"), _hub(call["args"]["cfg"]).tls)
            case _:
                continue
        compared = True
    return found if compared else None


def _load(recorded: Json, unknown: list[str]) -> list[str]:
    data = {**_present(recorded), **{name: {} for name in unknown}}
    try:
        config = v1beta2.Configuration.model_validate(data)
    except ValidationError as error:
        document = read("")
        named = [each.path for each in type_problems(error, document, v1beta2.Configuration)]
        return [] if named == unknown else [f"faults: want {unknown} unknown, have {named}"]
    defaults.set_defaults(config, KUEUE)
    return ([f"want {unknown} unknown"] if unknown else []) + _unlike(recorded, config.plain())


def check_waiting(case: Case, run: dict[str, Json]) -> list[str]:
    """Whether waitForPodsReady is in force."""
    body = case.body["case"]
    gates = features.enabled(body["featureGates"] or {})
    have = validation.waits_for_pods_ready(_hub(body["cfg"]), gates)
    return [] if have == body["want"] else [f"want {body['want']}, have {have}"]


def check_alias(case: Case, run: dict[str, Json]) -> list[str]:
    """The deprecated name of a list holds what the new one does."""
    got = run["checks"][0]["got"]
    alias = v1beta2.ClusterProfile.model_validate(_present({"credentialsProviders": got}))
    return _unlike(got, alias.plain()["credentialsProviders"])


def check_tls(case: Case, run: dict[str, Json]) -> list[str]:
    """Versions, cipher suites and curves by number, and the texts of their faults."""
    found = []
    for call in run.get("trace") or []:
        args, wanted, fault = call["args"], _result(call, 0), _result(call, 1)
        message = (fault or {}).get("message")
        try:
            match call["op"].rsplit(".", 1)[-1]:
                case "convertCipherSuites":
                    have: Json = tls.cipher_suites(args["cipherSuites"] or [])
                case "convertCurvePreferences":
                    have = tls.curve_preferences(args["curveIDs"] or [])
                case "convertTLSMinVersion":
                    have = tls.min_version(args["tlsMinVersion"])
                case "ParseTLSOptions":
                    have = _parsed(args["cfg"])
                case _:
                    continue
        except ValueError as error:
            found += [] if str(error) == message else [f"fault: want {message!r}, have {error!s}"]
            continue
        if message is not None:
            found.append(f"want the fault {message!r}, have {have}")
        elif (wanted or None) != (have or None):
            found.append(f"want {wanted}, have {have}")
    return found


def _parsed(config: Json) -> Json:
    if config is None:
        return None
    parsed = tls.parse(v1beta2.Tls.model_validate(_present(config)))
    numbers = {
        "MinVersion": parsed.min_version,
        "CipherSuites": parsed.cipher_suites,
        "CurvePreferences": parsed.curves,
    }
    return {name: list(value) if isinstance(value, tuple) else value for name, value in numbers.items() if value}


def _tls_fault(message: str | None, options: v1beta2.Tls | None) -> list[str]:
    try:
        tls.parse(options or v1beta2.Tls())
    except ValueError as error:
        return [] if message and message.endswith(str(error)) else [f"fault: want {message!r}, have {error!s}"]
    return [f"want the fault {message!r}"] if message else []


def _gates(case: Case, run: dict[str, Json]) -> frozenset[str]:
    table = case.body["case"].get("featureGates") or {}
    return features.enabled({**case.body["featureGates"], **table, **(run.get("gates") or {})})


def _result(call: Json, index: int) -> Json:
    results = call.get("results") or []
    return results[index] if index < len(results) else None


def _hub(recorded: Json) -> v1beta2.Configuration:
    return v1beta2.Configuration.model_validate(_present(recorded))


def _spoke(recorded: Json) -> v1beta1.Configuration:
    return v1beta1.Configuration.model_validate(_present(recorded))


def _present(value: Json) -> Json:
    """The same without what is null, which is absent in a file."""
    if isinstance(value, dict):
        return {key: _present(each) for key, each in value.items() if each is not None}
    return [_present(each) for each in value] if isinstance(value, list) else value


def _bare(value: Json) -> Json:
    """The same without what Go does not tell from its absence: null, empty lists, empty texts, false."""
    if isinstance(value, dict):
        return {key: bare for key, each in value.items() if (bare := _bare(each)) not in (None, [], "", False)}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def _unlike(want: Json, have: Json) -> list[str]:
    want, have = _bare(want), _bare(have)
    if isinstance(want, dict) and isinstance(have, dict):
        return [
            f"{key}: want {want.get(key)}, have {have.get(key)}"
            for key in sorted({*want, *have})
            if want.get(key) != have.get(key)
        ]
    return [] if want == have else [f"want {want}, have {have}"]


_NOT_KUEUES = ("kubeflow.org/notebook", "serving.kserve.io/inferenceservice", "tekton.dev/pipelinerun")
"""Frameworks that are built here and that Kueue does not list as its own."""


def _compare_faults(want: list[Json], have: list[FieldError], *, unordered: bool = False) -> list[str]:
    def told(detail: str) -> object:
        if detail.startswith("CEL compilation failed"):
            return ""  # in the words of the compiler
        for framework in _NOT_KUEUES:
            detail = detail.replace(f'"{framework}", ', "")
        several = unordered and detail.startswith("[")
        return sorted(re.split(r", (?=\w+ is enabled)", detail[1:-1])) if several else detail

    wanted = [(each["field"], each["type"], told(each.get("detail") or _detail(each))) for each in want]
    found = [(each.path, each.type, told(each.detail)) for each in have]
    return [] if wanted == found else [f"want {wanted}, have {found}"]


def _detail(fault: Json) -> str:
    """The detail at the end of a message whose value may hold anything."""
    shown = FieldError(fault["field"], fault["type"], fault.get("badValue", ""), "")
    return str(fault["message"]).removeprefix(str(shown)).removeprefix(": ")
