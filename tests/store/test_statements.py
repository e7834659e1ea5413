"""The SQL files: every statement is named, valid and used."""

import inspect
import re
import sqlite3

from pairbus.broker.store import file as sqlite_file
from pairbus.broker.store import sqlite as sqlite_store
from pairbus.broker.store import wal_marks
from pairbus.broker.store.statements import load_migrations, load_statements, parse_statements


def test_a_block_begins_with_its_name_and_ends_before_the_next() -> None:
    first, second = "-- name: one\n-- Why.\nSELECT 1\n  AS x;\n\n", "-- name: two\nSELECT 2;\n"
    text = f"-- About the file.\n\n{first}-- == A part ==\n\n{second}"
    assert parse_statements(text) == {"one": "SELECT 1\n  AS x", "two": "SELECT 2"}


def test_every_statement_is_understood_by_the_newest_shape() -> None:
    database = _newest_shape()
    for name, statement in load_statements().items():
        if name not in ("begin", "commit", "roll_back"):
            database.execute(f"EXPLAIN {statement}", _nothing(statement))


def test_every_statement_is_used_and_every_used_one_exists() -> None:
    source = inspect.getsource(sqlite_store) + inspect.getsource(wal_marks)
    quoted = set(re.findall(r'"(\w+)"', source))
    assert set(load_statements()) <= quoted
    named = re.findall(r'(?:_sql\[|_write_one\(|_write_many\(|rows\()\s*"(\w+)"', source)
    assert len(named) > 15
    assert set(named) <= set(load_statements())


def test_lookups_use_an_index() -> None:
    database = _newest_shape()
    for name, statement in load_statements().items():
        if statement.startswith(("UPDATE", "DELETE")):
            plan = database.execute(f"EXPLAIN QUERY PLAN {statement}", _nothing(statement))
            assert all("SEARCH" in row[3] for row in plan), name


def test_the_first_script_marks_the_file_as_ours() -> None:
    database = sqlite3.connect(":memory:")
    database.executescript(load_migrations()[0])
    assert database.execute("PRAGMA application_id").fetchone() == (sqlite_file.APPLICATION_ID,)


def _nothing(statement: str) -> tuple[None, ...]:
    """A value for each place of a statement; numbered ones may be named more than once."""
    numbered = {int(number) for number in re.findall(r"\?(\d+)", statement)}
    return (None,) * (max(numbered) if numbered else statement.count("?"))


def _newest_shape() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None)
    for name, function in sqlite_file.FUNCTIONS.items():
        database.create_function(name, -1, function)
    for script in load_migrations():
        database.executescript(script)
    return database
