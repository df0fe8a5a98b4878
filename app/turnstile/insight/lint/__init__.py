"""Rules about manifests and quota set-ups: each looks at the objects of a `World` and tells what is wrong with them.

Pure. `rules` has the table; `world` what a rule may read. A rule must never tell what an object that nobody has read
could disprove.
"""
