"""Room 5 of the engine: one scheduling cycle.

Nomination of the heads, their order, the decision on each. May import all other rooms and the state.
"""
