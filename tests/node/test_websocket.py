"""The npm client over a WebSocket."""

from typing import Any

SCRIPT = "websocket.js"


def test_message_over_a_websocket(seen: Any) -> None:
    assert seen == {"body": "hello", "state": "seen", "left": 0}
