"""Floor 2: HTTP towards those who call us: the server with its TLS, limits and probes, and the certificates it shows.

Used by webhooks, probes and pages alike. May import `api` alone, and knows neither reviews nor queues.
"""
