"""Text that should be JSON, from files and peers that anybody may have written."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """What the text says. ValueError if it is no JSON, whatever else it is: bytes that are no text, a number
    without end, a list in a list in a list ...
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
