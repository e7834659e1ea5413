"""The backlog as a table: views in a session, and `pairbus backlog sql`."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairbus.cli.main import main
from pairbus.spark import PumpPair, create_views

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter
from .traffic import letters

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def kept_session(monkeypatch: pytest.MonkeyPatch, spark: Any) -> Any:
    """The command takes the session that is there, and must not end it for the tests that follow."""
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    return spark


def sql(query: str, *options: str) -> int:
    pair = ["--primary-env", PRIMARY_ENV, "--secondary-env", SECONDARY_ENV]
    return main(["backlog", "sql", query, *pair, *options])


@pytest.mark.long
def test_the_backlog_is_asked_in_sql(
    kept_session: Any, bus: Bus, pair: PumpPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bus.put(letters(70))
    bus.put([Letter(path="orders", id="late", session="s", ttl_ms=1000)])
    query = (
        "select path, count(*) as messages, min(enqueued) as oldest from backlog group by path order by path"
    )
    assert sql(query, "--json", "--state", str(tmp_path)) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["path"]: row["messages"] for row in rows} == {
        "carts": 10, "chats": 10, "invoices": 10, "news": 10, "orders": 11, "prices": 10, "returns": 10,
    }  # fmt: skip
    assert sql(query, "--state", str(tmp_path)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["PATH", "MESSAGES", "OLDEST"]
    assert len(shown) == 8
    create_views(kept_session, pair, names=["backlog", "dead_letters"])
    (row,) = kept_session.sql("select * from backlog where session_id = 's'").collect()
    assert (row.message_id, row.time_to_live, row.path) == ("late", 1.0, "orders")
    assert kept_session.table("dead_letters").count() == 0
    assert bus.left() == 71


def test_what_is_wrong_with_a_query_is_one_line(
    kept_session: Any, bus: Bus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sql("select nothing from nowhere", "--state", str(tmp_path)) == 2
    told = capsys.readouterr().err.splitlines()
    assert len([line for line in told if line.startswith("pairbus: The query is wrong")]) == 1
    assert sql("select * from receipts", "--state", str(tmp_path)) == 2
    assert "--records" in capsys.readouterr().err


@pytest.mark.long
def test_records_are_views_too(
    kept_session: Any, bus: Bus, pair: PumpPair, tmp_path: Path, drained: Path
) -> None:
    create_views(kept_session, pair, records=[drained], names=["receipts", "redirects", "ledger"])
    moved = kept_session.sql("select count(*) as n from receipts where outcome = 'moved'").collect()
    assert moved[0].n == 20
    assert kept_session.table("redirects").count() == 0
    assert kept_session.sql("select sum(count) from ledger where kind = 'complete'").collect()[0][0] >= 20


@pytest.fixture
def drained(spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path) -> Path:
    """Records of a drain of twenty messages."""
    from pairbus.spark import Syphon

    full_bus.put(letters(20))
    Syphon(None, pair, state=tmp_path / "state").run(once=True)
    return tmp_path / "state" / "records"
