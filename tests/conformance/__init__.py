"""Conformance: decision cases recorded from Kueue's own tests, run against Turnstile.

The cases are not part of the project: `CASES_DIR` names their directory, by default all `../shared/cases*`.
A case is met by getting the rule right; none is ever special-cased by its name.
"""
