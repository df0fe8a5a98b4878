"""Wires Turnstile: reads configuration, builds clock, transport and stores, starts the roles. The only place that does."""


def main() -> None:
    """Entry point of the `turnstile` command."""
