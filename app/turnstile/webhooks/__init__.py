"""Floor 6: the admission webhooks: they answer reviews with a verdict and a patch. Stateless; any number of replicas.

May import the floors below, never `controllers`.
"""
