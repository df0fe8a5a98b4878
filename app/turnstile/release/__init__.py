"""Floor 7, below the commands: what is done around a release of the chart, from outside: `preflight` looks at a cluster
before an installation or an upgrade, `importing` brings jobs that run already under queues, `uninstall` removes every
trace of Turnstile from the jobs of a cluster.

May import `process` and the floors below. `preflight` never writes.
"""
