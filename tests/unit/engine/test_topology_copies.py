"""Copies of interned amounts, which forecasts make of the whole state."""

import pickle

from turnstile.engine.topology.capacity import Frees


def test_a_copy_interns_what_it_holds() -> None:
    """Equal amounts are one object in the copy too, and amounts that nothing holds are in neither."""
    frees = Frees()
    free = frees.of({"cpu": 1})
    copy, held = pickle.loads(pickle.dumps((frees, free)))
    assert copy.of({"cpu": 1}) is held
    assert copy.of({"cpu": 1}) is not free
