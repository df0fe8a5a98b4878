"""Floor 1: the kinds, their fields, defaults and limits, quantities, well-known names, errors, CRD schemas.

Imports nothing of Turnstile. Everything here is a value or a pure function: no I/O, no clock.
"""
