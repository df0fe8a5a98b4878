"""Process services: logging, memory, metrics, and the configuration file that may change at run time.

May import every floor but `cli` and `main`; decides nothing about queues.
"""
