"""The stores, options and clock that a decision may read. Read-only: nothing here writes to the API server."""
