"""The parts that every controller uses: declarations, work queues, actions, and the executor that sends the writes.

Knows no kind of Turnstile: nothing here decides about a job, a Workload or a queue.
"""
