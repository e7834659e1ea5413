"""Azurite as our tests start it says nothing that `pyarrow` reads wrong (`tests/azurite/continue.js`)."""

import select
import socket

from tests.object_places import AZURITE_ACCOUNT
from tests.waiting import PATIENCE

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def ask(address: str, size: int) -> socket.socket:
    """Begin a request that it will refuse."""
    host, _, port = address.rpartition(":")
    line = socket.create_connection((host, int(port)), timeout=PATIENCE)
    line.sendall(
        f"PUT /{AZURITE_ACCOUNT}/records/receipts HTTP/1.1\r\nhost: {address}\r\n"
        f"content-length: {size}\r\nexpect: 100-continue\r\n\r\n".encode()
    )
    return line


def hear(line: socket.socket) -> bytes:
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        piece = line.recv(1)
        assert piece, "the line has ended"
        said += piece
    return said


def test_who_sends_no_body_is_answered_at_once(azurite: str) -> None:
    with ask(azurite, 0) as line:
        assert hear(line).startswith(b"HTTP/1.1 4")


def test_who_is_told_to_continue_is_answered_when_it_has(azurite: str) -> None:
    with ask(azurite, 5) as line:
        assert hear(line) == CONTINUE
        with ask(azurite, 0) as later:
            hear(later)
        assert select.select([line], [], [], 0)[0] == [], "it has not been answered yet"
        line.sendall(b"12345")
        assert hear(line).startswith(b"HTTP/1.1 4")
