"""What observes a client: logs, metrics, traces, the ledger, the application."""
