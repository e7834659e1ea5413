"""A backlog queue as it is handed from one process to another. Workers start with it: it imports nothing."""

from typing import NamedTuple


class ServedQueue(NamedTuple):
    """A backlog queue, and the index of its pair."""

    pair: int
    name: str
