"""Each kind says whether its objects are in namespaces: paths and rights depend on it."""

from turnstile.api.meta import Kind
from turnstile.engine.intake import FEEDING, PLACES


def test_each_kind_that_a_state_is_fed_with_says_whether_it_has_a_namespace() -> None:
    """A kind that a reader may not list everywhere is read in one namespace, if it has any."""
    kinds: list[type[Kind]] = [*FEEDING, *PLACES]
    assert [kind.__name__ for kind in kinds if not hasattr(kind, "NAMESPACED")] == []
