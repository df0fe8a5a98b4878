"""Wires Turnstile: reads configuration, builds clock, transport and stores, starts the roles. Nothing else wires."""


def main() -> None:
    """Entry point of the `turnstile` command."""
