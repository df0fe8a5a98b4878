"""Floor 5: advice at submission: a job that can never be admitted, or not until its queue is mended.

Used by the webhook in each review and by `turnstile lint`, so nothing here may be slow or need more than queues, quotas
and flavors. May import the floors below.
"""
