"""The leader's metrics: counters of what happened, and gauges that are read at a scrape.

Nothing here may change a decision.
"""
