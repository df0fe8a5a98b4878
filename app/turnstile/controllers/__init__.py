"""Floor 6: the reconcilers: each decides without I/O about one object, then a small executor writes the decision.

May import the floors below, never `webhooks`. Only the holder of the Lease writes.
"""
