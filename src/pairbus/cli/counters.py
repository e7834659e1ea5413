"""`pairbus counters`: the billable operations that a running broker has counted."""

from collections import Counter
from pathlib import Path

import click

from .candidates import offer_namespaces
from .group import examples
from .ready_file import connect, ready_file_option
from .tables import draw_table, json_option, tell


@examples(
    "pairbus counters --ready-file ready.json",
    "pairbus counters contoso-dr --ready-file ready.json --json",
)
@click.command()
@click.argument("namespace", required=False, shell_complete=offer_namespaces)
@ready_file_option
@json_option
def counters(namespace: str | None, *, ready_file: Path, as_json: bool) -> None:
    """Show the billable operations a broker counted.

    They are summed over connections, for NAMESPACE or for all; --json has one row for each connection.
    """
    counted = connect(ready_file).counters(namespace)
    sums: dict[tuple[str, str, str], Counter[str]] = {}
    for name, rows in counted.items():
        for row in rows:
            cell = sums.setdefault((name, row["entity"], row["kind"]), Counter())
            cell.update({column: row[column] for column in ("count", "units", "bytes")})
    rows = [(*key, cell["count"], cell["units"], cell["bytes"]) for key, cell in sorted(sums.items())]
    head = ("NAMESPACE", "ENTITY", "KIND", "COUNT", "UNITS", "BYTES")
    tell(counted, draw_table(head, rows, empty="no operations yet"), as_json=as_json)
