"""Who listens to what a client does: logs, metrics, traces, the ledger, the application."""
