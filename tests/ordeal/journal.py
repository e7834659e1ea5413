"""What the processes of an ordeal agree on, and what they write down: at once, one line each.

    begun ID        an application is about to send
    done ID         the send has returned
    failed ID       the send has raised
    unknown COUNT   so many messages were sent without an answer, and may arrive twice

The file is open from the start: whoever has no descriptors left still writes.
"""

import os

__all__ = ["BACKLOG", "Journal", "body_of"]

BACKLOG = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]


def body_of(message_id: str) -> str:
    return f"{message_id}: " + message_id * 20


class Journal:
    """A file that outlives whoever writes to it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, word: str, what: object) -> None:
        os.write(self._file, f"{word} {what}\n".encode())
