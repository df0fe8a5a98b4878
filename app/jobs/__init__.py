"""Floor 4: what a kind of job is to Turnstile: its pod sets, how it starts, stops and ends. One module a kind. Pure.

May import `engine`, `kube` and `api`. Returns values; writes nothing.
"""
