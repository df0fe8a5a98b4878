"""Floor 6: the visibility API, an aggregated API server that lists the pending Workloads of a queue in order.

May import the floors below, never `webhooks` or `controllers`. Served by every controller process, whether it leads or
not, because the order follows from the stores (`turnstile.insight.positions`).
"""
