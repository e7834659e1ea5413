"""Command lines at the end of each command's help. A test parses every one of them."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """An epilog that click leaves as it is: one command line a line, never wrapped."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
