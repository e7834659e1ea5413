"""The runbook by alert, for the page: what it means, what to look at, what to do, and when it is over.

`runbook.md` is that of the documentation to the letter (a test compares): the page works where no
other page does.
"""

from __future__ import annotations

import re
from importlib import resources

_SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| ([a-z ]+) \| (.+) \|$", re.MULTILINE)
# Links of the documentation lead nowhere on this page: their words stay.
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


def read_runbook() -> dict[str, dict[str, str]]:
    """Alert by alert, the rows of its section."""
    text = resources.files(__package__).joinpath("runbook.md").read_text(encoding="utf-8")
    return {alert: dict(_ROW.findall(_LINK.sub(r"\1", body))) for alert, body in _SECTION.findall(text)}
