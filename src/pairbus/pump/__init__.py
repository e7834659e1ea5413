"""The pump: moves messages from backlog queues to where they belong."""
