"""SQL that lives in files of its own, where it can be read, commented and highlighted.

`sql/NNNN_what.sql` bring a store from one shape to the next. `sql/statements.sql` holds everything else
as named blocks.
"""

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

_MIGRATION = re.compile(r"\d{4}_\w+\.sql")
_BLOCK = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


@cache
def load_migrations() -> tuple[str, ...]:
    """The scripts that change a store's shape, oldest first; the first one makes an empty file a store."""
    files = [file for file in _directory().iterdir() if _MIGRATION.fullmatch(file.name)]
    return tuple(file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name))


@cache
def load_statements() -> dict[str, str]:
    """The named statements."""
    text = _directory().joinpath("statements.sql").read_text(encoding="utf-8")
    return parse_statements(text)


def parse_statements(text: str) -> dict[str, str]:
    """The statements of a file by their names, without comments."""
    return {name: _COMMENT.sub("", block).strip().removesuffix(";") for name, block in _BLOCK.findall(text)}


def _directory() -> Traversable:
    return resources.files("pairbus.broker.store").joinpath("sql")
