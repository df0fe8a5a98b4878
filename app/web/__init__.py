"""Floor 6: pages and REST for people. Empty until the first of them is built.

May import the floors below.
"""
