"""Floor 5: explanations and forecasts: thin layers that ask the engine. Empty until the first of them is built.

May import the floors below.
"""
