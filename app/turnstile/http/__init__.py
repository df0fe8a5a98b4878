"""Floor 2: the HTTP server with its TLS, limits and probes, and the serving certificates.

Used by webhooks, probes and pages alike. May import only `api`, and knows neither reviews nor queues.
"""
