"""How rows are sent: together, in order, again where that helps, and aside where nothing would."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus import conditions
from pairbus.amqp.message import scan
from pairbus.errors import PairbusError, UnreachableError
from pairbus.pump.transport import Refusal, Unit
from pairbus.spark.source.encoding import OutRow, RowEncoder
from pairbus.spark.source.error_table import ErrorTable
from pairbus.spark.source.options import SourceSettings
from pairbus.spark.source.writer import RowSender
from pairbus.wire.errors import CONNECTION_LOST, SUSPECTED, TransportError
from tests.waiting import PATIENCE

BUSY = TransportError(conditions.SERVER_BUSY, "Please wait 0.001 seconds and try again.")
DOWN = TransportError(CONNECTION_LOST, "the line is down")
POISON = TransportError(conditions.MESSAGE_SIZE_EXCEEDED, "too large")


class Outlet:
    """Takes units, except for those that the script refuses, call by call."""

    def __init__(self, script: Sequence[Refusal] = (), *, poison: bytes | None = None) -> None:
        self._script = list(script)
        self._poison = poison
        self.taken: list[tuple[str, str | None, bytes]] = []

    async def send(self, entity: str, units: Sequence[Unit]) -> list[Refusal]:
        return [self._take(entity, unit) for unit in units]

    def _take(self, entity: str, unit: Unit) -> Refusal:
        refusal = self._script.pop(0) if self._script else None
        bodies = [scan(payload).data() for payload in unit.payloads]
        if refusal is None and self._poison is not None and self._poison in bodies:
            refusal = POISON
        if refusal is None:
            self.taken += [(entity, unit.session_id, body) for body in bodies]
        return refusal

    async def close(self) -> None:
        """There is nothing to close."""


async def send(
    outlet: Outlet, rows: list[dict[str, Any]], *, errors: str | None = None, timeout: str = f"{PATIENCE}"
) -> ErrorTable:
    options = {"connectionStringEnv": "CONTOSO", "timeout": timeout}
    table = ErrorTable(errors)
    schema = pa.schema([(name, pa.string()) for name in ("entity", "session_id", "body")])
    sender = RowSender(SourceSettings(options, "write"), outlet, RowEncoder(entity=None, new_id=str), table)
    await sender.send(pa.RecordBatch.from_pylist(rows, schema=schema))
    return table


row_lists = st.lists(
    st.fixed_dictionaries(
        {
            "entity": st.sampled_from(["orders", "carts"]),
            "session_id": st.sampled_from([None, "a", "b"]),
            "body": st.text(st.characters(codec="ascii"), max_size=5),
        }
    ),
    max_size=40,
)
troubles = st.lists(
    st.sampled_from([None, BUSY, DOWN, TransportError(SUSPECTED, "one of several")]), max_size=5
)


@given(rows=row_lists, script=troubles)
async def test_every_row_arrives_once_and_sessions_keep_their_order(
    rows: list[dict[str, Any]], script: list[Refusal]
) -> None:
    outlet = Outlet(script)
    await send(outlet, rows)
    given_rows = [(row["entity"], row["session_id"], row["body"].encode()) for row in rows]
    assert sorted(outlet.taken, key=repr) == sorted(given_rows, key=repr)
    for key in {(entity, session) for entity, session, _ in given_rows if session is not None}:
        arrived = [one for one in outlet.taken if one[:2] == key]
        assert arrived == [one for one in given_rows if one[:2] == key]


async def test_a_row_that_nobody_takes_goes_aside_alone(tmp_path: Path) -> None:
    rows = [{"entity": "orders", "session_id": None, "body": body} for body in ("a", "bad", "c")]
    rows.append({"entity": None, "session_id": None, "body": "nowhere"})
    outlet = Outlet(poison=b"bad")
    table = await send(outlet, rows, errors=str(tmp_path))
    assert [body for _, _, body in outlet.taken] == [b"a", b"c"]
    hidden = table.write("job-0-1")
    assert hidden is not None
    assert list(tmp_path.glob("part-*")) == []
    table.show([hidden])
    (shown,) = tmp_path.glob("part-*")
    found = pyarrow.parquet.read_table(shown).to_pylist()
    assert [row["body"] for row in found] == ["bad", "nowhere"]
    assert "too large" in found[0]["error"]
    assert "`entity` is null" in found[1]["error"]


def test_bytes_that_were_made_text_are_a_body_and_nothing_else() -> None:
    """Spark's `cast(body as string)` looks at none of them."""
    odd = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    plain = pa.array(["1", "2", "3"])

    def encode(body: pa.Array, subject: pa.Array) -> list[OutRow]:
        batch = pa.RecordBatch.from_arrays([body, subject], ["body", "subject"])
        return list(RowEncoder(entity="orders", new_id="m{}".format).encode(batch, now_ms=0))

    assert [scan(row.payload).data() for row in encode(odd, plain)] == [b"a", b"\xff", b"c"]
    first, second, third = encode(plain, odd)
    assert second.problem == "its column 'subject' has text that is not UTF-8"
    assert [scan(row.payload).properties.message_id for row in (first, third)] == ["m0", "m2"]


async def test_without_an_error_table_such_a_row_fails_the_write() -> None:
    with pytest.raises(PairbusError, match="1 rows cannot be sent"):
        await send(Outlet(poison=b"bad"), [{"entity": "orders", "session_id": None, "body": "bad"}])


async def test_a_namespace_that_stays_away_ends_the_write() -> None:
    with pytest.raises(UnreachableError, match="orders"):
        await send(
            Outlet([DOWN] * 50), [{"entity": "orders", "session_id": None, "body": "x"}], timeout="0.3"
        )
