"""Process services: logging, memory, metrics, the configuration file that may change at run time, answers from forks.

May import every floor but `cli` and `main`; decides nothing about queues.
"""
