"""Between the two versions of the Configuration: pure functions, v1beta2 is the hub.

The presence of a section in v1beta2 is a switch named `enable` in v1beta1. `queueVisibility` and
`integrations.podOptions` are dropped, as Kueue drops them. Only the defaults of the version that was read have been
set before (Kueue's trap 5: a v1beta1 file without waitForPodsReady leaves it off).
"""

from turnstile.api.config import v1beta1, v1beta2
from turnstile.api.config.defaults import OLD_PODS_READY_TIMEOUT, STRATEGIES
from turnstile.api.durations import render


def to_hub(old: v1beta1.Configuration) -> v1beta2.Configuration:
    """The same in v1beta2."""
    plain = old.plain()
    plain.pop("queueVisibility", None)
    plain.get("integrations", {}).pop("podOptions", None)
    for name in ("fairSharing", "waitForPodsReady"):
        section = plain.pop(name, None)
        if section is not None and section.pop("enable", False):
            plain[name] = section
    if "fairSharing" in plain:
        plain["fairSharing"].setdefault("preemptionStrategies", list(STRATEGIES))
    if "waitForPodsReady" in plain:
        plain["waitForPodsReady"].setdefault("blockAdmission", True)
        plain["waitForPodsReady"].setdefault("timeout", render(OLD_PODS_READY_TIMEOUT))
    if "apiVersion" in plain:
        plain["apiVersion"] = v1beta2.API_VERSION
    return v1beta2.Configuration.model_validate(plain)


def from_hub(new: v1beta2.Configuration) -> v1beta1.Configuration:
    """The same in v1beta1, as far as it can say it."""
    plain = new.plain()
    plain.pop("visibilityServer", None)
    plain.get("resources", {}).pop("quotaCheckStrategy", None)
    for mapping in plain.get("resources", {}).get("deviceClassMappings", ()):
        mapping.pop("sources", None)
    for name in ("clusterProfile", "incrementalDispatcherConfig"):
        plain.get("multiKueue", {}).pop(name, None)
    for label in plain.get("metrics", {}).get("customLabels", ()):
        label.pop("sourceKind", None)
        label.pop("trackedValues", None)
    for name in ("fairSharing", "waitForPodsReady"):
        if name in plain:
            plain[name]["enable"] = True
    if "waitForPodsReady" in plain:
        plain["waitForPodsReady"].setdefault("blockAdmission", False)
    if "apiVersion" in plain:
        plain["apiVersion"] = v1beta1.API_VERSION
    return v1beta1.Configuration.model_validate(plain)
