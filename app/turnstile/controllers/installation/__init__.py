"""Keeps Turnstile's own certificate and CustomResourceDefinitions up to date, in the leader.

Nothing here knows of jobs or queues.
"""
