"""Floor 5: explanations, forecasts and the audit: thin layers over the engine. Pure.

May import the floors below. `whatif` runs the scheduler's cycles on a ledger that is thrown away. `audit`
compares the pods that run with quotas and admissions; `capacity` answers whether demands fit the quotas, wherever they
may be charged.
"""
