"""Judges what preflight read of a cluster: each function looks at one thing and yields its findings. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.kinds import KINDS
from turnstile.controllers.installation.definitions import is_ours
from turnstile.release.findings import Check, Finding, danger, listed, warning
from turnstile.release.manifests import (
    OWNER_NAME,
    OWNER_NAMESPACE,
    Manifests,
    Plain,
    annotations,
    is_of_our_chart,
    owner,
    registers_for_kueues_kinds,
    show,
)

OLDEST_SERVER: Final = (1, 30)
"""As `kubeVersion` of the chart: match conditions of webhooks are stable since."""
KUEUE_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
_FRESH: Final = timedelta(seconds=60)
_KEEP: Final = ("helm.sh/resource-policy", "keep")
_APPLY_CRDS: Final = "kubectl apply --server-side --force-conflicts --field-manager=turnstile -f charts/turnstile/crds"
"""With a manager of its own: as kubectl's, which may have applied Kueue's, it would take the conversion away, which is
not in these files, and stored objects would lose the fields that have other names in other versions."""
OPTIONAL: Final[Mapping[tuple[str, str], str]] = {
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): "admissionPolicies.enabled",
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): "admissionPolicies.enabled",
    ("apiregistration.k8s.io/v1", "APIService"): "visibility.enabled",
    ("apps/v1", "Deployment"): "controller.enabled",
    ("cert-manager.io/v1", "Certificate"): "webhook.certs.mode",
    ("cert-manager.io/v1", "Issuer"): "webhook.certs.mode",
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"): "flowSchema.enabled",
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration"): "visibility.flowControl.enabled",
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): "page.httpRoute.enabled",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "metrics.prometheusRule.enabled",
    ("monitoring.coreos.com/v1", "ServiceMonitor"): "metrics.serviceMonitor.enabled",
    ("networking.k8s.io/v1", "Ingress"): "page.ingress.enabled",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkPolicy.enabled",
    ("policy/v1", "PodDisruptionBudget"): "controller.podDisruptionBudget.enabled",
    ("v1", "ConfigMap"): "config",
    ("v1", "Secret"): "webhook.certs.mode",
    ("v1", "Service"): "webhook.enabled",
}
"""Kinds of which the chart makes none with some values, and the value that decides."""


def server(version: Plain) -> Iterator[Finding]:
    """Whether the API server is new enough. `version` is what /version answers."""
    text = str(version.get("gitVersion", ""))
    digits = (str(version.get(part, "")).rstrip("+") for part in ("major", "minor"))
    try:
        major, minor = (int(each) for each in digits)
    except ValueError:
        yield warning(Check.SERVER, f"the server does not say its version: {text!r}", "use Kubernetes 1.30 or newer")
        return
    if (major, minor) < OLDEST_SERVER:
        wanted = ".".join(map(str, OLDEST_SERVER))
        yield danger(Check.SERVER, f"the server is {text}, older than {wanted}", f"upgrade the cluster to {wanted}")


def served(manifests: Manifests, resources: Mapping[tuple[str, str], Any]) -> Iterator[Finding]:
    """Whether the server knows every kind that the chart creates. `resources` has an entry for each apiVersion and kind
    that it serves."""
    missing = {
        (each["apiVersion"], each["kind"])
        for each in manifests.objects
        if (each["apiVersion"], each["kind"]) not in resources
    }
    for version, kind in sorted(missing):
        value = OPTIONAL.get((version, kind))
        cure = f"install what serves it, or do without it (the value {value})" if value else "upgrade the cluster"
        yield danger(Check.SERVED, f"the server does not serve {kind} in {version}", cure)


def kueue(
    manifests: Manifests,
    configurations: Iterable[Plain],
    deployments: Iterable[Plain],
    leases: Iterable[Plain],
    now: datetime,
) -> Iterator[Finding]:
    """Whether Kueue runs, or its webhooks are still registered. Both would act on the same labels."""
    hooks = [show(each) for each in _foreign(manifests, configurations) if not is_of_our_chart(each)]
    if hooks:
        deletion = "remove Kueue first; its webhooks alone: kubectl delete " + " ".join(
            each.replace(" ", "/", 1).lower() for each in hooks
        )
        yield danger(Check.KUEUE, f"Kueue's webhooks are registered: {listed(hooks)}", deletion)
    for each in deployments:
        meta = each["metadata"]
        name = f"{meta['namespace']}/{meta['name']}"
        if each.get("spec", {}).get("replicas", 1):
            cure = f"kubectl -n {meta['namespace']} scale deployment {meta['name']} --replicas=0, before you install"
            yield danger(Check.KUEUE, f"Kueue's Deployment {name} runs", cure)
        else:
            cure = f"remove Kueue when Turnstile manages its jobs: nothing may scale {name} up"
            yield warning(Check.KUEUE, f"Kueue's Deployment {name} is there, with no replicas", cure)
    for each in leases:
        spec = each.get("spec") or {}
        renewed = _moment(spec.get("renewTime"))
        if spec.get("holderIdentity") and renewed is not None and now - renewed < _FRESH:
            says = f"a Kueue leads: {spec['holderIdentity']} holds {show(each)}"
            yield danger(Check.KUEUE, says, "stop it, and wait until its Lease has run out")


def releases(manifests: Manifests, configurations: Iterable[Plain]) -> Iterator[Finding]:
    """Whether another release of the chart is installed: two would decide about the same queues."""
    others = {owner(each) for each in _foreign(manifests, configurations) if is_of_our_chart(each)}
    for name, namespace in sorted(others):
        which = f"release {name} in namespace {namespace}" if name else "objects that no Helm release owns"
        cure = f"upgrade that release, or helm uninstall {name} -n {namespace} first" if name else "delete them first"
        yield danger(Check.RELEASES, f"Turnstile is installed already: {which}", cure)


def _foreign(manifests: Manifests, configurations: Iterable[Plain]) -> Iterator[Plain]:
    """Webhook configurations that are about Kueue's kinds, and not of this release."""
    own = {each["metadata"]["name"] for each in manifests.of_kind(*_CONFIGURATIONS)}
    for each in configurations:
        if registers_for_kueues_kinds(each) and each["metadata"]["name"] not in own:
            yield each


_CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def owners(manifests: Manifests, found: Iterable[Plain]) -> Iterator[Finding]:
    """Whether another Helm release, or none, owns objects with the chart's names: Helm refuses to take them over."""
    by_owner: dict[tuple[str, str], list[str]] = {}
    for each in found:
        if not manifests.owns(each):
            by_owner.setdefault(owner(each), []).append(show(each))
    for (name, namespace), objects in sorted(by_owner.items()):
        who = f"Helm release {name} in namespace {namespace}" if name else "no Helm release"
        cure = f"uninstall that release, or set fullnameOverride ({OWNER_NAMESPACE} says whose they are)"
        yield danger(
            Check.OWNERS,
            f"of {who}, so that Helm refuses to change them: {listed(objects)}",
            cure if name else "delete them, or let Helm adopt them: helm install --take-ownership",
        )


def definitions(found: Mapping[str, tuple[Plain, CustomResourceDefinition]]) -> Iterator[Finding]:
    """Whether the CustomResourceDefinitions that are there, by name, are those of the chart: Helm installs missing ones
    only, and never changes one."""
    unserved, unknown, older, unlabelled, unconverted = [], [], [], [], []
    helm: dict[tuple[str, str], list[str]] = {}
    for kinds in KINDS:
        if kinds.name not in found:
            continue
        plain, definition = found[kinds.name]
        versions = {each.name: each for each in definition.spec.versions}
        wanted, stored = kinds.stored.VERSION, definition.status.stored_versions
        if wanted not in versions or not versions[wanted].served or not versions[wanted].storage:
            unserved.append(kinds.name)
        unknown += [f"{kinds.name} ({each})" for each in stored if each not in (wanted, *kinds.older)]
        older += [f"{kinds.name} ({each})" for each in stored if each in kinds.older]
        if kinds.converted and definition.spec.conversion.strategy == "None" and any(each != wanted for each in stored):
            unconverted.append(kinds.name)
        release = owner(plain)
        if release[0] and not _is_kept_by_helm(plain):
            helm.setdefault(release, []).append(kinds.name)
        if not is_ours(definition):
            unlabelled.append(kinds.name)
    if unknown:
        cure = "let the program that made them store them as v1beta2, and take the version off storedVersions"
        yield danger(
            Check.CRDS, f"objects are stored in versions that Turnstile does not read: {listed(unknown)}", cure
        )
    if unconverted:
        says = (
            f"older stored objects are read without a conversion, and lose fields when written: {listed(unconverted)}"
        )
        yield danger(Check.CRDS, says, "apply the definitions of the Kueue that stored them, with its webhook running")
    for (name, namespace), theirs in sorted(helm.items()):
        says = f"deleted with all queues when Helm release {name} in {namespace} is uninstalled: {listed(theirs)}"
        forget = f"kubectl -n {namespace} delete secret -l owner=helm,name={name}"
        disown = f"kubectl annotate crd {' '.join(sorted(theirs))} {OWNER_NAME}- {OWNER_NAMESPACE}-"
        yield danger(Check.CRDS, says, f"let Helm forget that release: {forget}; {disown}")
    if unserved:
        yield danger(Check.CRDS, f"not stored as v1beta2: {listed(unserved)}", _APPLY_CRDS)
    if unlabelled:
        says = f"not those of the chart, so that their versions and conversion stay as they are: {listed(unlabelled)}"
        yield danger(Check.CRDS, says, _APPLY_CRDS)
    if older:
        cure = "nothing now: each is converted as it is read, by Turnstile's webhook where the versions differ"
        yield warning(Check.CRDS, f"objects may be stored in older versions: {listed(older)}", cure)


def _is_kept_by_helm(definition: Plain) -> bool:
    """Whether uninstalling its Helm release leaves a definition in place. Helm goes by the manifest in its record of
    the release: an annotation that was written to the cluster by other means keeps nothing."""
    if annotations(definition).get(_KEEP[0]) != _KEEP[1]:
        return False
    managers = definition["metadata"].get("managedFields") or ()
    return any(
        str(each.get("manager", "")).startswith("helm")
        and f"f:{_KEEP[0]}" in each.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        for each in managers
    )


def rights(lacking: Sequence[str], not_granted: Sequence[str]) -> Iterator[Finding]:
    """Findings about rights that the caller lacks. `lacking` is needed to create the objects; `not_granted` is in the
    chart's roles, and only who has it, or may escalate, can create these."""
    if lacking:
        yield danger(Check.RIGHTS, f"you may not: {listed(lacking)}", "install as a cluster administrator")
    if not_granted:
        says = f"you may not grant what the chart's roles allow, such as: {listed(not_granted)}"
        yield danger(Check.RIGHTS, says, "install as who may escalate clusterroles, such as a cluster administrator")


def unread(failures: Sequence[str]) -> Iterator[Finding]:
    """Findings about objects that could not be read."""
    if failures:
        cure = "run preflight as who may read it"
        yield warning(Check.UNREAD, f"could not be read, and was not checked: {listed(failures)}", cure)


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
