"""The command line: one module a command, imported only when that command is asked for."""

from __future__ import annotations

__all__: list[str] = []
