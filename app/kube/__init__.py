"""Floor 2: the wire to the API server: transport, reflector, store, work queue, lease, events, patches, certificates.

May import `api`. Knows no queue and no quota: it would serve any controller.
"""
