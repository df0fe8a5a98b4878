"""Rules of a Configuration, in Kueue's words: a list of faults, in the order of Kueue's own checks.

Says nothing of what Turnstile has built; that is `built`. Must never change its argument.
"""

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import urlsplit

from turnstile.api.config import tls
from turnstile.api.config.customkinds import custom_kind_errors
from turnstile.api.config.defaults import INCREMENTAL, RETAIN, STRATEGIES
from turnstile.api.config.devices import device_class_errors
from turnstile.api.config.frameworks import WITHOUT_MULTIKUEUE, is_kind
from turnstile.api.config.kinds import FRAMEWORKS
from turnstile.api.config.v1beta2 import AccessProvider, Configuration, CustomLabel, MultiKueue
from turnstile.api.durations import render
from turnstile.api.selectors import LabelSelector
from turnstile.api.submission import About
from turnstile.api.validation.errors import (
    NEGATIVE,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from turnstile.api.validation.labels import (
    dns_1035_label_faults,
    label_key_faults,
    label_value_faults,
    selector_errors,
    subdomain_faults,
)

_UNSPECIFIED: Final = "must be specified"
_STRATEGY_SETS: Final = (*((strategy,) for strategy in STRATEGIES), STRATEGIES)
_LABELS: Final = "metrics.customLabels"
_LABELS_A_KIND: Final = {"ClusterQueue": 6, "Cohort": 6, "LocalQueue": 6, "Workload": 2}
_INTERACTIVE: Final = ("Never", "IfAvailable", "Always")
_SELECTOR: Final = "managedJobsNamespaceSelector"


def waits_for_pods_ready(config: Configuration, gates: Collection[str]) -> bool:
    """Whether the section is there and no gate switches it off."""
    return config.wait_for_pods_ready is not None and "DisableWaitForPodsReady" not in gates


def validate(config: Configuration, gates: Collection[str]) -> list[FieldError]:
    """All faults of a configuration whose defaults are set; `gates` are those that are on."""
    return [
        *_waiting_errors(config, gates),
        *_integration_errors(config),
        *_multikueue_errors(config),
        *_fair_sharing_errors(config),
        *_admission_fair_sharing_errors(config),
        *_certificate_errors(config),
        *_transformation_errors(config),
        *device_class_errors(config, gates),
        *_namespace_errors(config),
        *_retention_errors(config),
        *_tls_errors(config),
        *_visibility_errors(config),
        *custom_label_errors(config),
        *_quota_check_errors(config, gates),
        *_default_queue_errors(config),
        *_submission_errors(config),
        *_notification_errors(config),
        *_preemption_errors(config),
        *_trace_errors(config),
        *_condition_errors(config),
    ]


def _waiting_errors(config: Configuration, gates: Collection[str]) -> Iterator[FieldError]:
    waiting = config.wait_for_pods_ready
    if waiting is None or not waits_for_pods_ready(config, gates):
        return
    path = "waitForPodsReady"
    if not waiting.timeout:
        yield required(f"{path}.timeout", _UNSPECIFIED)
    yield from _not_negative(f"{path}.timeout", waiting.timeout)
    yield from _not_negative(f"{path}.recoveryTimeout", waiting.recovery_timeout)
    if (strategy := waiting.requeuing_strategy) is not None:
        path = f"{path}.requeuingStrategy"
        if strategy.timestamp not in (None, "Creation", "Eviction"):
            yield not_supported(f"{path}.timestamp", strategy.timestamp, ("Creation", "Eviction"))
        for name, count in (
            ("backoffLimitCount", strategy.backoff_limit_count),
            ("backoffBaseSeconds", strategy.backoff_base_seconds),
            ("backoffMaxSeconds", strategy.backoff_max_seconds),
        ):
            if count is not None and count < 0:
                yield invalid(f"{path}.{name}", count, NEGATIVE)


def _not_negative(path: str, duration: int | None) -> Iterator[FieldError]:
    if duration is not None and duration < 0:
        yield invalid(path, render(duration), NEGATIVE)


def _integration_errors(config: Configuration) -> Iterator[FieldError]:
    path = "integrations"
    if config.integrations is None:
        yield required(path, "cannot be empty")
        return
    if config.integrations.frameworks is None:
        yield required(f"{path}.frameworks", "cannot be empty")
        return
    custom = config.integrations.custom_kinds or []
    kinds = {**FRAMEWORKS, **{each.framework: each.gvk for each in custom}}
    managed: set[str] = set()
    for index, framework in enumerate(config.integrations.frameworks):
        kind = kinds.get(framework)
        if kind is None:
            yield not_supported(f"{path}.frameworks[{index}]", framework, FRAMEWORKS)
        elif kind in managed:
            yield duplicate(f"{path}.frameworks[{index}]", framework)
        else:
            managed.add(kind)
    managed.update(each.gvk for each in custom)
    for index, kind in enumerate(config.integrations.external_frameworks or ()):
        at = f"{path}.externalFrameworks[{index}]"
        if not is_kind(kind):
            yield invalid(at, kind, "must be format, 'Kind.version.group.com'")
        elif kind in managed:
            yield duplicate(at, kind)
        else:
            managed.add(kind)
    yield from custom_kind_errors(custom, f"{path}.customKinds")
    if "pod" in config.integrations.frameworks:
        if config.managed_jobs_namespace_selector is None:
            yield required(_SELECTOR, "cannot be empty when pod integration is enabled")
        yield from _namespace_errors(config)


def _namespace_errors(config: Configuration) -> Iterator[FieldError]:
    section = config.managed_jobs_namespace_selector
    if section is None:
        return
    selector = section.selector()
    faults = selector_errors(_SELECTOR, selector)
    yield from faults
    if faults:
        return
    for namespace in dict.fromkeys(name for name in ("kube-system", config.namespace) if name):
        if _selects(selector, namespace):
            yield invalid(_SELECTOR, section.raw(), f'should not match the "{namespace}" namespace')


def _default_queue_errors(config: Configuration) -> Iterator[FieldError]:
    for index, rule in enumerate(config.default_local_queues or ()):
        path = f"defaultLocalQueues[{index}]"
        yield from selector_errors(f"{path}.namespaceSelector", rule.namespace_selector.selector())
        if rule.cluster_queue and rule.cluster_queue_label:
            yield forbidden(f"{path}.clusterQueueLabel", "must not be specified when clusterQueue is specified")
        elif rule.cluster_queue:
            yield from (
                invalid(f"{path}.clusterQueue", rule.cluster_queue, f) for f in subdomain_faults(rule.cluster_queue)
            )
        elif rule.cluster_queue_label:
            label = rule.cluster_queue_label
            yield from (invalid(f"{path}.clusterQueueLabel", label, f) for f in label_key_faults(label))
        else:
            yield required(f"{path}.clusterQueue", "name a ClusterQueue here, or its label in clusterQueueLabel")


def _submission_errors(config: Configuration) -> Iterator[FieldError]:
    section = config.submission
    if section is None:
        return
    refused = section.refuse or []
    for field, named in (("refuse", refused), ("ignore", section.ignore or [])):
        for index, each in enumerate(named):
            path = f"submission.{field}[{index}]"
            if each not in set(About):
                yield not_supported(path, each, sorted(About))
            elif each in named[:index]:
                yield duplicate(path, each)
            elif field == "ignore" and each in refused:
                yield forbidden(path, "must not be ignored and refused")


NOTICES: Final = ("started", "preempted", "cannotstart")
"""The events that a webhook can be told of."""


def _notification_errors(config: Configuration) -> Iterator[FieldError]:
    section = config.notifications
    if section is None:
        return
    yield from _address_errors("notifications.url", section.url, section.token_file)
    for index, each in enumerate(section.events or ()):
        if each not in NOTICES:
            yield not_supported(f"notifications.events[{index}]", each, list(NOTICES))


def _preemption_errors(config: Configuration) -> Iterator[FieldError]:
    if config.preemption is not None:
        yield from _not_negative("preemption.longestMinimumRunTime", config.preemption.longest_minimum_run_time)


def _trace_errors(config: Configuration) -> Iterator[FieldError]:
    if config.traces is not None:
        yield from _address_errors("traces.endpoint", config.traces.endpoint, config.traces.token_file)


def _address_errors(path: str, text: str | None, token_file: str | None) -> Iterator[FieldError]:
    """Faults of an address that Turnstile sends to. Secrets stand in files, and go nowhere without encryption."""
    if not text:
        yield required(path, "give the https:// address")
        return
    try:
        url = urlsplit(text)
        usable = url.scheme in ("https", "http") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or "@" in text:
        yield invalid(path, text, "must be http(s)://HOST[:PORT]/PATH, without a user or password")
    elif token_file and url.scheme != "https":
        yield forbidden(f"{path.partition('.')[0]}.tokenFile", "a token is sent by https only")


def _condition_errors(config: Configuration) -> Iterator[FieldError]:
    named = config.node_failure_conditions or []
    for index, each in enumerate(named):
        path = f"nodeFailureConditions[{index}]"
        if each == "Ready":
            yield forbidden(path, "is True of each node that works; one that is not ready has failed anyway")
        elif each in named[:index]:
            yield duplicate(path, each)
        else:
            yield from (invalid(path, each, fault) for fault in label_key_faults(each))


def _selects(selector: LabelSelector, namespace: str) -> bool:
    return selector.matches({"kubernetes.io/metadata.name": namespace})


def _multikueue_errors(config: Configuration) -> Iterator[FieldError]:
    multi, path = config.multi_kueue, "multiKueue"
    if multi is None:
        return
    yield from _not_negative(f"{path}.gcInterval", multi.gc_interval)
    yield from _not_negative(f"{path}.workerLostTimeout", multi.worker_lost_timeout)
    yield from _not_negative(f"{path}.giveUpTimeout", multi.give_up_timeout)
    yield from _not_negative(f"{path}.keepFinished", multi.keep_finished)
    if multi.origin is not None and (faults := label_value_faults(multi.origin)):
        yield invalid(f"{path}.origin", multi.origin, ",".join(faults))
    yield from _external_errors(config, multi)
    if (profile := multi.cluster_profile) is not None:
        path = f"{path}.clusterProfile"
        if profile.access_providers and profile.credentials_providers:
            detail = "must not be specified when accessProviders is specified"
            yield forbidden(f"{path}.credentialsProviders", detail)
        if profile.access_providers:
            yield from _access_errors(f"{path}.accessProviders", profile.access_providers)
        else:
            yield from _access_errors(f"{path}.credentialsProviders", profile.credentials_providers or [])
    if (dispatcher := multi.incremental_dispatcher_config) is not None:
        path = "multiKueue.incrementalDispatcherConfig"
        if multi.dispatcher_name != INCREMENTAL:
            detail = (
                "incrementalDispatcherConfig is only valid when dispatcherName is set to the incremental dispatcher"
            )
            yield invalid(path, dispatcher.raw(), detail)
        if dispatcher.step_size is not None and dispatcher.step_size < 1:
            yield invalid(f"{path}.stepSize", dispatcher.step_size, "must be greater than or equal to 1")


def _external_errors(config: Configuration, multi: MultiKueue) -> Iterator[FieldError]:
    frameworks = (config.integrations.frameworks or ()) if config.integrations is not None else ()
    adapted = {FRAMEWORKS[name] for name in frameworks if name in FRAMEWORKS and name not in WITHOUT_MULTIKUEUE}
    seen = set()
    for index, framework in enumerate(multi.external_frameworks or ()):
        at, kind = f"multiKueue.externalFrameworks[{index}].name", framework.name
        if not is_kind(kind):
            yield invalid(at, kind, "must be in 'kind.version.group' format")
            continue
        if kind in seen:
            yield duplicate(at, kind)
        seen.add(kind)
        if kind in adapted:
            yield invalid(at, kind, "conflicts with a built-in MultiKueue adapter")
        if framework.plural is not None:
            at = f"multiKueue.externalFrameworks[{index}].plural"
            yield from (invalid(at, framework.plural, fault) for fault in dns_1035_label_faults(framework.plural))


def _access_errors(path: str, providers: list[AccessProvider]) -> Iterator[FieldError]:
    for provider in providers:
        command, at = provider.exec_config, f"{path}.execConfig"
        if not provider.name:
            yield required(f"{path}.name", _UNSPECIFIED)
        if not command.command:
            yield required(f"{at}.command", _UNSPECIFIED)
        if not command.api_version:
            yield required(f"{at}.apiVersion", _UNSPECIFIED)
        for variable in command.env or ():
            if not variable.name:
                yield required(f"{at}.env.name", _UNSPECIFIED)
        if not command.interactive_mode:
            yield required(f"{at}.interactiveMode", _UNSPECIFIED)
        elif command.interactive_mode not in _INTERACTIVE:
            yield not_supported(f"{at}.interactiveMode", command.interactive_mode, _INTERACTIVE)


def _fair_sharing_errors(config: Configuration) -> Iterator[FieldError]:
    if config.fair_sharing is None:
        return
    path, strategies = "fairSharing.preemptionStrategies", config.fair_sharing.preemption_strategies
    if not strategies:
        yield required(path, _UNSPECIFIED)
    elif tuple(strategies) not in _STRATEGY_SETS:
        yield not_supported(path, strategies, (",".join(each) for each in _STRATEGY_SETS))


def _admission_fair_sharing_errors(config: Configuration) -> Iterator[FieldError]:
    sharing, path = config.admission_fair_sharing, "admissionFairSharing"
    if sharing is None:
        return
    half_life = sharing.usage_half_life_time or 0
    yield from _not_negative(f"{path}.usageHalfLifeTime", half_life)
    if (sharing.usage_sampling_interval or 0) <= 0:
        # Kueue shows the half life here, not the interval.
        yield invalid(f"{path}.usageSamplingInterval", render(half_life), "must be greater than 0")
    weights = sharing.resource_weights or {}
    for resource in sorted(weights):
        if weights[resource] < 0:
            yield invalid(f"{path}.resourceWeights[{resource}]", weights, NEGATIVE)


def _certificate_errors(config: Configuration) -> Iterator[FieldError]:
    certificates, path = config.internal_cert_management, "internalCertManagement"
    if certificates is None or not certificates.enable:
        return
    service, secret = certificates.webhook_service_name, certificates.webhook_secret_name
    if service is not None and (faults := dns_1035_label_faults(service)):
        yield invalid(f"{path}.webhookServiceName", service, ",".join(faults))
    if secret is not None and (faults := subdomain_faults(secret)):
        yield invalid(f"{path}.webhookSecretName", secret, ",".join(faults))


def _transformation_errors(config: Configuration) -> Iterator[FieldError]:
    seen = set()
    for index, each in enumerate((config.resources.transformations or ()) if config.resources is not None else ()):
        at = f"resources.transformations[{index}]"
        if each.strategy not in (RETAIN, "Replace"):
            yield not_supported(f"{at}.strategy", each.strategy, (RETAIN, "Replace"))
        if each.input in seen:
            yield duplicate(f"{at}.input", each.input)
        seen.add(each.input)


def _retention_errors(config: Configuration) -> Iterator[FieldError]:
    policies = config.object_retention_policies
    if policies is None or policies.workloads is None:
        return
    path = "objectRetentionPolicies.workloads"
    yield from _not_negative(f"{path}.afterFinished", policies.workloads.after_finished)
    yield from _not_negative(f"{path}.afterDeactivatedByKueue", policies.workloads.after_deactivated_by_kueue)


def _tls_errors(config: Configuration) -> Iterator[FieldError]:
    if config.tls is None:
        return
    try:
        tls.parse(config.tls)
    except ValueError as error:
        yield invalid("tls", config.tls.raw(), str(error))
        return
    if config.tls.min_version == "VersionTLS13" and config.tls.cipher_suites:
        detail = "may not be specified when `minVersion` is 'VersionTLS13'"
        yield invalid("tls.cipherSuites", config.tls.cipher_suites, detail)


def _visibility_errors(config: Configuration) -> Iterator[FieldError]:
    server, path = config.visibility_server, "visibilityServer"
    if server is None:
        return
    if server.bind_address is not None:
        try:
            ipaddress.ip_address(server.bind_address)
        except ValueError:
            yield invalid(f"{path}.bindAddress", server.bind_address, "must be a valid IP address")
    if server.bind_port is not None and not 1 <= server.bind_port <= 65535:
        yield invalid(f"{path}.bindPort", server.bind_port, "must be a valid port number (1-65535)")


def custom_label_errors(config: Configuration) -> Iterator[FieldError]:
    """Faults of `metrics.customLabels`."""
    labels = config.metrics.custom_labels or []
    if len(labels) > 20:
        yield too_many(_LABELS, len(labels), 20)
    names, kinds = set(), Counter[str]()
    for index, label in enumerate(labels):
        at = f"{_LABELS}[{index}]"
        if not (label.name.isascii() and label.name.isidentifier() and label.name[0] != "_"):
            yield invalid(f"{at}.name", label.name, "must match ^[a-zA-Z][a-zA-Z0-9_]*$")
        if label.name in names:
            yield duplicate(f"{at}.name", label.name)
        names.add(label.name)
        yield from _label_source_errors(at, label)
        kind = label.source_kind or "ClusterQueue"
        kinds[kind] += 1
        yield from _tracked_value_errors(f"{at}.trackedValues", label, kind)
    shown = [label.raw() for label in labels]
    for kind in sorted(kinds):
        limit = _LABELS_A_KIND.get(kind)
        if limit is None:
            yield invalid(_LABELS, shown, f"unknown source kind: {kind}")
        elif kinds[kind] > limit:
            detail = f"too many custom labels for source kind {kind}: found {kinds[kind]}, expected <= {limit}"
            yield invalid(_LABELS, shown, detail)


def _label_source_errors(at: str, label: CustomLabel) -> Iterator[FieldError]:
    if label.source_label_key and label.source_annotation_key:
        yield invalid(at, label.raw(), "sourceLabelKey and sourceAnnotationKey are mutually exclusive")
    if label.source_label_key:
        field, key = "sourceLabelKey", label.source_label_key
    elif label.source_annotation_key:
        field, key = "sourceAnnotationKey", label.source_annotation_key
    else:
        field, key = "name", label.name
    if faults := label_key_faults(key):
        yield invalid(f"{at}.{field}", key, "; ".join(faults))


def _tracked_value_errors(at: str, label: CustomLabel, kind: str) -> Iterator[FieldError]:
    values = label.tracked_values
    if kind == "Workload":
        if not values:
            yield invalid(at, values, "must not be empty when sourceKind is 'Workload'")
        elif len(values) > 12:
            yield invalid(at, values, "must not be greater than 12 when sourceKind is 'Workload'")
    elif values and len(values) > 16:
        yield too_many(at, len(values), 16)
    if values and len(set(values)) < len(values):
        yield invalid(at, values, "must not contain duplicates")


def _quota_check_errors(config: Configuration, gates: Collection[str]) -> Iterator[FieldError]:
    if "QuotaCheckStrategy" not in gates or config.resources is None:
        return
    path, strategy = "resources.quotaCheckStrategy", config.resources.quota_check_strategy
    if strategy == "IgnoreUndeclared" and config.resources.exclude_resource_prefixes:
        detail = "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared"
        yield invalid(path, strategy, detail)
    if strategy not in (None, "IgnoreUndeclared", "BlockUndeclared"):
        yield not_supported(path, strategy, ("IgnoreUndeclared", "BlockUndeclared"))
