"""Sentences about a job for which there is no Workload. Must never find out which of them is true."""

from collections.abc import Sequence

from turnstile.wording.grammar import listed


def no_such_job(kind: str, name: str, namespace: str, elsewhere: Sequence[str], near: str) -> str:
    """`elsewhere` are the namespaces that have one of this name, `near` is the name that is most like it."""
    text = f'There is no {kind or "job"} "{name}" in namespace {namespace}.'
    if elsewhere:
        return f"{text} Did you mean namespace {listed(elsewhere, most=3, joint='or')}?"
    return f"{text} Did you mean {near}?" if near else text


def no_right(namespace: str) -> str:
    """The Workloads of the namespace cannot be listed."""
    return f"You may not list Workloads in namespace {namespace}, so it is not known whether there is one for it."


def kind_off(kind: str, name: str, framework: str) -> str:
    """The job kind is not among those that are queued."""
    return (
        f"{kind} {name} is not queued: its kind is switched off. An administrator adds {framework} to"
        " integrations.frameworks of the configuration."
    )


def not_managed(kind: str, name: str, namespace: str, label: str) -> str:
    """The namespace is not among those that are managed; `label` is the one that it lacks, if that is all."""
    cure = f" An administrator labels it: kubectl label namespace {namespace} {label}." if label else ""
    return f"{kind} {name} is not queued: Turnstile does not manage namespace {namespace}.{cure}"


def no_queue(kind: str, name: str, label: str) -> str:
    """The job names no queue, and its namespace has none for such jobs."""
    return (
        f"{kind} {name} is not queued: it names no queue, and its namespace has no LocalQueue named default. Give it"
        f" the label {label}."
    )


def no_leader(kind: str, name: str, since: str) -> str:
    """Nobody makes Workloads now."""
    when = f" since {since}" if since else ""
    return f"{kind} {name} is not queued yet: no replica of Turnstile leads{when}."


def not_yet(kind: str, name: str, framework: str) -> str:
    """Nothing that can be read explains it."""
    return (
        f"{kind} {name} has no Workload yet. Ask again in a moment; if it stays so, its namespace is not managed, or"
        f" {framework} is not among integrations.frameworks of the configuration."
    )


def unknown(name: str, namespace: str) -> str:
    """Nothing but Workloads can be read, as in a dump."""
    return f"No Workload is for {name} in namespace {namespace}: is it in a managed namespace, with a queue?"
