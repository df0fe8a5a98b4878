"""Process services: logging, memory, metrics, the configuration file that may change at run time, and the copy of the
ledger that answers questions.

May import every floor but `cli` and `main`; decides nothing about queues.
"""
