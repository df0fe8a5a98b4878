"""Which of two ways to get a flavor is preferred, and whether to look at the next flavor at all (KEP-582).

Source: Kueue's flavorassigner. Must never look at quota.
"""

from typing import Final

from turnstile.api.clusterqueue import FlavorFungibility
from turnstile.engine.reasons import Possibility

NO_FIT: Final = Possibility.NO_FIT
NO_CANDIDATES: Final = Possibility.NO_CANDIDATES
FIT: Final = Possibility.FIT


def better(
    how: Possibility,
    level: int,
    than: Possibility,
    than_level: int,
    fungibility: FlavorFungibility,
    *,
    fungible: bool = True,
) -> bool:
    """Whether one way to get a flavor is preferred over another (Kueue: isPreferred)."""
    if how is NO_FIT:
        return False
    if than is NO_FIT:
        return True
    if (how is NO_CANDIDATES) != (than is NO_CANDIDATES):
        return than is NO_CANDIDATES
    if not fungible:
        return how > than
    if fungibility.preference == "PreemptionOverBorrowing":
        return level < than_level if level != than_level else how > than
    return how > than if how is not than else level < than_level


def try_next(how: Possibility, level: int, fungibility: FlavorFungibility) -> bool:
    """Whether another flavor may be better than one that was found so (Kueue: shouldTryNextFlavor)."""
    if how <= NO_CANDIDATES:
        return True
    if how is not FIT and fungibility.when_can_preempt == "TryNextFlavor":
        return True
    return level > 0 and fungibility.when_can_borrow == "TryNextFlavor"
