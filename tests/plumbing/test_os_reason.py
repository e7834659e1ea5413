"""Why the system refused something."""

import asyncio
import socket
import ssl

import pytest

from pairbus.plumbing.hosts import os_reason


async def test_a_refused_connection_is_told_without_python() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(ConnectionRefusedError) as caught:
            await asyncio.open_connection(*held.getsockname())
    assert os_reason(caught.value) == "Connection refused"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ssl.SSLError(1, "bad record"), "bad record"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("Multiple exceptions: a, b"), "Multiple exceptions: a, b"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_what_the_system_has_no_number_for_is_told_as_it_is(error: OSError, told: str) -> None:
    assert os_reason(error) == told
