"""Columns of the ledger's rows, and their files, in Spark's words."""

import re
from collections.abc import Iterable
from pathlib import Path

from pairbus.ledger.columns import RowColumn

_SQL = {str: "string", int: "long", float: "double", bool: "boolean"}


def literal(path: Path) -> str:
    """A path for Spark to read as it stands: brackets, braces, stars and question marks are a pattern."""
    return re.sub(r"([][{}*?\\])", r"\\\1", str(path))


def sql_type(column: RowColumn, *, moments: str = "double") -> str:
    """The type of a column. Moments are numbers in segments, and may be something else in a table."""
    return moments if column.is_moment else _SQL[column.plain]


def ddl_of(columns: Iterable[RowColumn], *, moments: str = "double") -> str:
    return ", ".join(f"{column.name} {sql_type(column, moments=moments)}" for column in columns)
