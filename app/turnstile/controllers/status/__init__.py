"""The rules about one Workload's status: its conditions, its admission checks, and who owns which fields.

Drafts are changed in memory and written as one patch; nothing here reads a store.
"""
