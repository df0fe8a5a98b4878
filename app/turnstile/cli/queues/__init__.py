"""The commands about queues that `kueuectl` has: create, list, stop, resume, delete, and those passed on to kubectl.

Objects are plain JSON here, exactly as the API server has them, so that `-o yaml` shows every field. Nothing here may
import the engine or what `turnstile serve` runs: a command is done within the time that kubectl takes.
"""
