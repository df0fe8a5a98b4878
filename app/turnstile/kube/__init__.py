"""Floor 2: access to the API server: transport, reflector, store, work queue, lease, events, patches, certificates.

May import `api`. Knows no queue and no quota, so that any controller could use this package.
"""
