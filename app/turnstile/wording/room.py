"""Sentences about room for pods on nodes: how many fit on one rack, and what would make room for all."""

from collections.abc import Sequence
from typing import Final

from turnstile.wording.amounts import nodes
from turnstile.wording.grammar import counted, listed

_HOSTNAME: Final = "kubernetes.io/hostname"


def level_name(label: str) -> str:
    """The level that a node label means, as people call it: `rack` for `example.com/rack`."""
    return "node" if label == _HOSTNAME else label.rpartition("/")[2]


def waits(pods: int, level: str, flavor: str, domain: str, fit: int) -> str:
    """There would be room if other jobs were not there; `level` is empty if any domains will do."""
    if not level:
        return f"Waits for room for {counted(pods, 'pod')}: {nodes(flavor)} have room for {fit} now."
    one = level_name(level)
    has = f"the largest hole is on {one} {domain}, for {fit}" if fit else f"no {one} has room for any of them now"
    return f"Waits for room for {counted(pods, 'pod')} on one {one}: {has}."


def never(pods: int, level: str, flavor: str, most: int) -> str:
    """There is no room whatever ends."""
    if not level:
        return f"Can never start as it is: {nodes(flavor)} have room for {most} of its {pods} pods, without other jobs."
    one = level_name(level)
    has = f"without other jobs the largest has room for {most}" if most else f"no {one} has room for any of them"
    return f"Can never start as it is: it needs room for {counted(pods, 'pod')} on one {one}, and {has}."


def after(workloads: Sequence[str], domain: str) -> str:
    """Room for all pods, once one of these has ended; empty without any."""
    if not workloads:
        return ""
    where = f" on {domain}" if domain else ""
    return f" All fit{where} once {listed(workloads, joint='or')} has ended."


def fits(pods: int, domain: str, level: str) -> str:
    """The largest hole of a level."""
    return f"{level_name(level)}: {counted(pods, 'pod')} on {domain}" if pods else f"{level_name(level)}: none"
