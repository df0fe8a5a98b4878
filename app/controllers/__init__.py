"""Floor 6: the reconcilers: each decides purely what to do about one object, then a small executor writes it.

May import the floors below, never `webhooks`. Only the holder of the Lease writes.
"""
