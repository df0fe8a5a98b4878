"""Floor 6: the admission webhooks: HTTP in, a verdict and a small patch out. Stateless; any number of replicas.

May import the floors below, never `controllers`.
"""
