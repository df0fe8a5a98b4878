"""v1beta1 of every kind: how it differs from v1beta2, for the schemas and for the objects.

Turnstile itself reads and writes v1beta2 alone. `views` says what the schemas of v1beta1 say otherwise, `conversion`
turns objects of one version into the other. Imports nothing above `turnstile.api`.
"""
