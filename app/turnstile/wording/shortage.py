"""The sentence about amounts that are short: how much a Workload waits for, where, and who holds it.

Accelerators come first, then the resource of which the largest part is missing. Must never leave out a resource.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from turnstile.engine.reasons import Figure
from turnstile.wording.amounts import amount, figure, is_counted, nodes, rank
from turnstile.wording.grammar import listed, sentence, several

NEVER: Final = "Can never start as it is"


class Short(NamedTuple):
    """One resource that is short in a flavor; amounts in the engine's units."""

    flavor: str
    resource: str
    lacking: int
    asked: int | None = None
    """None where only what is lacking is known."""
    free: int = 0
    most: int | None = None
    """The most that the ClusterQueue can ever have; None where that is more than is asked."""
    holders: tuple[str, ...] = ()
    """Who holds it, by the few names that are told to the reader; the largest first."""
    like: str = ""
    """The quantity as the Workload's owner wrote it."""

    @property
    def part(self) -> float:
        """The missing part of what is asked."""
        return self.lacking / self.asked if self.asked else 1.0


def in_order(shorts: Iterable[Short]) -> list[Short]:
    """The flavor in which the smallest part is missing first; within it accelerators, then the scarcest resource."""
    flavors: dict[str, list[Short]] = {}
    for each in shorts:
        flavors.setdefault(each.flavor, []).append(each)
    lists = sorted(flavors.values(), key=lambda found: (_never(found), max(each.part for each in found)))
    return [each for found in lists for each in sorted(found, key=_importance)]


def of_figures(figures: Iterable[Figure]) -> list[Short]:
    """The shortage by the amounts of a decision; the most that is asked of a resource in a flavor counts."""
    found: dict[tuple[str, str], Short] = {}
    for each in figures:
        asked = each.requested + each.assumed
        short = Short(
            each.flavor,
            each.resource,
            asked - each.available,
            asked,
            each.available,
            most=each.maximum if asked > each.maximum else None,
        )
        known = found.get((each.flavor, each.resource))
        if known is None or known.lacking < short.lacking:
            found[each.flavor, each.resource] = short
    return list(found.values())


def explained(shorts: Iterable[Short]) -> str:
    """A sentence for each flavor in which amounts are short, the most hopeful first; empty without any."""
    flavors: dict[str, list[Short]] = {}
    for each in in_order(shorts):
        flavors.setdefault(each.flavor, []).append(each)
    return " ".join(map(headline, flavors.values()))


def headline(shorts: Sequence[Short]) -> str:
    """`Waits for 2 more CPUs on on-demand nodes: asks 6, 4 free; team-a/simulation holds them.`"""
    ordered = in_order(shorts)
    first = ordered[0]
    if first.most is not None:
        return too_much(first)
    here = [each for each in ordered if each.flavor == first.flavor]
    what = listed([amount(each.resource, each.lacking, more=True, like=each.like) for each in here])
    text = f"waits for {what} on {nodes(first.flavor)}"
    if first.asked is not None:
        asks = figure if len(here) == 1 else amount
        free = figure(first.resource, first.free, like=first.like)
        text += f": asks {asks(first.resource, first.asked, like=first.like)}, {free} free"
    if first.holders:
        holds = "hold" if several(first.holders) else "holds"
        what = "them" if is_counted(first.resource, first.lacking) else "it"
        text += f"; {listed(first.holders)} {holds} {what}"
    return sentence(text)


def too_much(short: Short, *, who: str = "it asks", queue: str = "its queue") -> str:
    """The sentence about a Workload that asks for more than its ClusterQueue can ever have. `who` names what asks, with
    its verb."""
    asked = amount(short.resource, short.asked or 0, like=short.like)
    most = f"{figure(short.resource, short.most, like=short.like)} at most" if short.most else "none of it"
    return f"{NEVER}: {who} for {asked} on {nodes(short.flavor)}, where {queue} can have {most}."


def _never(found: Sequence[Short]) -> bool:
    return any(each.most is not None for each in found)


def _importance(short: Short) -> tuple[bool, bool, float, tuple[int, str]]:
    place = rank(short.resource)
    return short.most is None, place[0] != 0, -short.part, place
