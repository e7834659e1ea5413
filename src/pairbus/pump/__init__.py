"""The pump: moves messages from backlog queues to where they belong."""

__all__: list[str] = []
