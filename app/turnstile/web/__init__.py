"""Floor 6: the page for people: HTML made on the server, brought up to date by server-sent events.

`world` follows the objects; `overview`, `queues`, `workloads`, `supposing` and `health` say what a page shows, as plain
values; `templates/` turn these into HTML; `fragments` finds out what of a page changed, and `application` answers
requests. In the cluster `cluster` finds out who sends a request and `rights` what the sender may see, and `questions`
answers programs. A page shows what its reader may see, and never changes anything: there is no request that writes.

May import the floors below.
"""
