"""What a process does for itself: its log, its memory, and the configuration file that may change while it runs.

May import every floor but `cli` and `main`; decides nothing about queues.
"""
