"""Lines as messages, taken from a thread while the event loop goes on."""

import asyncio
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus.cli.lines import FIELDS, Feed, lines_of, read_json_lines, read_plain_lines
from pairbus.cli.send import SendTally
from pairbus.client.observers.observer import RouteName, Undertaking
from pairbus.clock import ManualClock
from pairbus.errors import ConfigurationError
from pairbus.pairing.errors import tell_taken
from tests.waiting import eventually


def test_plain_lines_are_bodies() -> None:
    lines = [b"one\n", b"two\r\n", b"\n", b"\xff\x00 last"]
    assert [message["body"] for message in read_plain_lines(lines)] == [b"one", b"two", b"", b"\xff\x00 last"]
    assert list(read_plain_lines([b"x"], session="s")) == [{"body": b"x", "session_id": "s"}]


def test_json_lines_have_bodies_and_fields() -> None:
    lines = [
        b'{"body": "text"}\n',
        b"\n",
        b'{"body": {"n": [1, null]}, "message_id": "m", "session_id": "own"}\n',
        b'{"body_base64": "AAH/", "application_properties": {"a": 1, "b": "x", "c": true, "d": 0.5}}\n',
        b'{"body": "", "time_to_live": 90, "scheduled_enqueue_time_utc": "2030-01-31T08:00:00Z"}',
        b'{"body": "", "scheduled_enqueue_time_utc": "2030-01-31T10:00:00+02:00"}',
    ]
    found = list(read_json_lines(lines, session="s"))
    moment = datetime(2030, 1, 31, 8, tzinfo=UTC)
    assert found == [
        {"body": b"text", "session_id": "s"},
        {"body": b'{"n": [1, null]}', "message_id": "m", "session_id": "own"},
        {
            "body": b"\x00\x01\xff",
            "session_id": "s",
            "application_properties": {"a": 1, "b": "x", "c": True, "d": 0.5},
        },
        {
            "body": b"",
            "session_id": "s",
            "time_to_live": timedelta(seconds=90),
            "scheduled_enqueue_time_utc": moment,
        },
        {"body": b"", "session_id": "s", "scheduled_enqueue_time_utc": moment},
    ]


def test_the_fields_are_those_of_the_sdks_message() -> None:
    from azure.servicebus import ServiceBusMessage

    for name in FIELDS:
        assert isinstance(getattr(ServiceBusMessage, name), property), name


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "has no body"),
        ('{"body": "", "body_base64": ""}', "has a body and a body_base64"),
        ('{"body_base64": "*"}', "must be in base64"),
        ('{"body_base64": 3}', "must be in base64"),
        ('{"body": "", "colour": "red"}', "has a field 'colour'"),
        ('{"body": "", "message_id": 3}', "message_id must be a text"),
        ('{"body": "", "time_to_live": 0}', "time_to_live must be a number of seconds above 0"),
        ('{"body": "", "time_to_live": true}', "time_to_live must be a number"),
        ('{"body": "", "time_to_live": NaN}', "time_to_live must be a number"),
        ('{"body": "", "time_to_live": 1e300}', "time_to_live must be a number"),
        (r'{"body": "\ud800"}', "has half a character"),
        (r'{"body": ["\ud800"]}', "has half a character"),
        (r'{"body": "", "subject": "\ud800"}', "subject has half a character"),
        (
            r'{"body": "", "application_properties": {"a": "\ud800"}}',
            "application_properties has half a character",
        ),
        (
            r'{"body": "", "application_properties": {"\ud800": 1}}',
            "application_properties has half a character",
        ),
        (f'{{"body": "", "application_properties": {{"a": {2**63}}}}}', "a whole number has 64 bits"),
        ('{"body": "", "scheduled_enqueue_time_utc": "soon"}', "must be a time such as"),
        # In UTC it is before the first year, or after the last.
        ('{"body": "", "scheduled_enqueue_time_utc": "0001-01-01T00:00+14:00"}', "must be a time such as"),
        ('{"body": "", "scheduled_enqueue_time_utc": "9999-12-31T23:00-14:00"}', "must be a time such as"),
        ('{"body": "", "application_properties": {"a": [1]}}', "application_properties must be an object"),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        list(read_json_lines([b'{"body": ""}\n', line.encode()]))
    assert "line 2: " in str(raised.value)
    assert said in str(raised.value)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            assert end == ends[1]  # closed by the test, to end the feed


def test_lines_are_found_across_chunks(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"one\ntw")
    os.write(writing, b"o\n\nthree")
    os.close(writing)
    assert list(lines_of(reading)) == [b"one\n", b"two\n", b"\n", b"three"]


def test_a_line_without_end_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbus.cli.lines._LONGEST_LINE", 2**20)
    with open("/dev/zero", "rb") as endless, pytest.raises(ConfigurationError, match="more than 1 MB"):
        list(lines_of(endless.fileno()))


async def test_a_slow_source_gives_each_line_at_once(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    feed = Feed(read_plain_lines(lines_of(reading)))
    async with asyncio.timeout(40):
        for text in (b"one", b"two"):
            os.write(writing, text + b"\n")
            assert await feed.take(100) == [{"body": text}]
        os.close(writing)
        assert await feed.take(100) == []


async def test_a_quick_source_gives_full_batches_and_waits_for_the_taker(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    read = lead = 0
    sizes: list[int] = []

    def parse(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        nonlocal read, lead
        for message in (message for line in lines for message in [{"body": line}] * 1000):
            read += 1
            lead = max(lead, read - sum(sizes))
            yield message

    feed = Feed(parse(lines_of(reading)))
    os.write(writing, b"x\n" * 30)
    os.close(writing)
    async with asyncio.timeout(40):
        await eventually(lambda: read > 10_000)
        assert read == 10_001
        while taken := await feed.take(700):
            sizes.append(len(taken))
    assert sum(sizes) == 30_000
    assert max(sizes) == 700
    # What has just been taken may be counted by the source before it is counted here.
    assert lead <= 10_001 + 700


async def test_a_mistake_comes_after_what_was_read_before_it(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b'{"body": "one"}\nnonsense\n{"body": "never"}\n')
    os.close(writing)
    feed = Feed(read_json_lines(lines_of(reading)))
    async with asyncio.timeout(40):
        assert [message["body"] for message in await feed.take(10)] == [b"one"]
        with pytest.raises(ConfigurationError, match="line 2: is not JSON"):
            await feed.take(10)


def play(tally: SendTally, route: RouteName, messages: int, *, error: Exception | None = None) -> None:
    """A call whose messages go that way, or that ends with an error."""
    undertaking = Undertaking(operation="send", path="orders", messages=messages)
    with suppress(ValueError), tally.around(undertaking):
        undertaking.route = route
        if error is not None:
            raise error


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_tally_counts_what_was_taken_and_draws_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, terminal = ManualClock(), Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    tally = SendTally(clock=clock.monotonic)
    assert str(tally) == "0 sent"
    play(tally, "primary", 1500)
    play(tally, "primary", 100, error=ValueError())
    with tally.around(
        Undertaking(operation="send", path="orders", messages=9, route="backlog", is_replay=True)
    ):
        pass  # the spool sends on what was counted when it took it
    assert terminal.getvalue() == ""
    clock.advance(0.5)
    play(tally, "backlog", 500)
    partly = ValueError()
    tell_taken(partly, 500, 700)
    play(tally, "backlog", 700, error=partly)
    drawn = "\r\x1b[K2,000 sent (1,500 to the primary, 500 to the backlog); 0.5 s, 4,000 a second"
    assert terminal.getvalue() == drawn
    tally.finish()
    assert terminal.getvalue() == f"{drawn}\r\x1b[K"
    assert tally.described() == {"sent": 2500, "primary": 1500, "backlog": 1000, "spool": 0, "seconds": 0.5}
