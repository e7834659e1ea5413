"""A store that version 0.1.0 has written is read, and brought up to date.

`fixtures/v0.1.0.tar.gz` was made with that version: the same namespace as a broker that was closed left it,
and as one that was killed did, with most of it in its WAL.
"""

import tarfile
from pathlib import Path

import pytest

from pairbus.broker import Broker
from pairbus.broker.engine.filters import SqlFilter
from pairbus.broker.engine.message import MessageState
from pairbus.broker.store.counter import CommitCounter
from tests.engine.observing import check_books, observe
from tests.engine.samples import START
from tests.store.damage import contents_of
from tests.store.files import load, query, store_path

FIXTURE = Path(__file__).parent / "fixtures" / "v0.1.0.tar.gz"


@pytest.fixture(params=["closed", "killed"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    directory: Path = tmp_path / request.param
    return directory


def test_everything_is_there(old: Path) -> None:
    space = load(store_path(old))
    check_books(space)
    contents = {(path, fields[0]): fields for (path, _), fields in contents_of(space).items()}
    assert sorted(contents) == [
        ("news/Subscriptions/all", "n0"),
        ("news/Subscriptions/all", "n1"),
        ("news/Subscriptions/red", "n0"),
        *[("orders", name) for name in ("later", "o1", "o2", "o4", "o5", "o6", "o7")],
        ("orders/$DeadLetterQueue", "o3"),
        *[("sessions", f"s{index}") for index in range(3)],
    ]
    assert [contents["orders", f"o{index}"][4:6] for index in (1, 2, 4)] == [
        (MessageState.ACTIVE, 1),
        (MessageState.DEFERRED, 1),
        (MessageState.ACTIVE, 0),
    ]
    assert contents["orders", "later"][4] is MessageState.SCHEDULED
    assert contents["news/Subscriptions/all", "n1"][8].endswith(b"m" * 20000)
    assert contents["news/Subscriptions/all", "n1"][3] == START + 8 + 1e6
    assert space.get_queue("sessions").get_session_state("s0") == b"state of s0"
    (rule,) = space.get_subscription("news", "red").rules
    assert rule.filter == SqlFilter("color = 'red'")
    history = space.get_queue("orders").duplicates
    assert history is not None
    assert history.knows("o0", START + 1)
    assert space.get_queue("orders").last_sequence == 9


def test_it_is_brought_up_to_date_and_used_on(old: Path) -> None:
    before = observe(load(store_path(old)))
    path = store_path(old)
    assert query(path, "SELECT count(*) FROM message") == [(14,)]
    assert query(path, "SELECT turn, total FROM account") == [(0, 14)]
    assert observe(load(path)) == before
    with Broker({"contoso": 0}, data_dir=old) as broker:
        broker["contoso"].create_queue("more")
        assert broker["contoso"].message_count("sessions") == 3
    mark = CommitCounter(path).read()
    assert mark is not None
    assert mark.turn > 0
