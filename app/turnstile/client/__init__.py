"""The client for users' programs: submit a job to a queue, wait for it, watch it, read its logs, cancel it.

`from turnstile import Client` is for scripts and notebooks, `AsyncClient` for programs with an event loop of their own;
both do the same, by one core. The client speaks to the API server alone, with the rights of its user. It imports `api`
and `kube` and never the engine, the webhooks or the controllers, so that it is quick to import.
"""

from turnstile.client.asynchronous import AsyncClient
from turnstile.client.blocking import Client
from turnstile.client.containers import container_job
from turnstile.client.standing import Standing, State
from turnstile.client.submitted import Submitted

__all__ = ["AsyncClient", "Client", "Standing", "State", "Submitted", "container_job"]
