"""A broker under load is killed at random moments. What it has said before is still true after a restart."""

import random
import time
from pathlib import Path

import pytest

from tests.crash.journal import Fate, Found, Journal
from tests.crash.load import QUEUE, SESSION_QUEUE, SESSIONS, WORKERS, Load
from tests.crash.process import BrokerProcess
from tests.crash.survey import survey
from tests.waiting import eventually

# Real seconds under load before a kill. The shortest hit clients that are still opening their links.
SHORTEST, LONGEST = 0.2, 2.0
# Real seconds for the clients to read what the broker had said before it was killed.
LAST_WORDS = 0.1

Sight = tuple[list[Found], dict[str, bytes | None]]


def make_queues(broker: BrokerProcess) -> None:
    with broker.administer() as administration:
        administration.create_queue(QUEUE, max_delivery_count=1000)
        administration.create_queue(SESSION_QUEUE, requires_session=True)


async def kill_under_load(broker: BrokerProcess, load: Load, *, after: float, confirmed: int = 0) -> None:
    """Kill the broker after a time, or later: if so much has to be confirmed first, of every kind."""
    async with load.running(broker.connection_string):
        await pause(after)
        while confirmed and (load.journal.confirmed < confirmed or not all_was_tried(load.journal)):
            await pause(LAST_WORDS)  # ended by the test's time-out, if need be
        broker.kill()
        await pause(LAST_WORDS)


async def look(broker: BrokerProcess) -> Sight:
    # All sessions: one may have messages before its first visit.
    return await survey(broker.connection_string, queue=QUEUE, session_queue=SESSION_QUEUE, sessions=SESSIONS)


def all_was_tried(journal: Journal) -> bool:
    """Whether there is something of every kind that the broker may forget. Each who is at work may begin
    something with one message before it hears of the kill: of the rest it is certain where they have to be.
    """
    return all(journal.standing(fate) > WORKERS for fate in Fate) and bool(journal.sessions)


async def pause(seconds: float) -> None:
    """Real time, on a loop that is in a hurry."""
    end = time.monotonic() + seconds
    await eventually(lambda: time.monotonic() >= end)


@pytest.mark.timeout(1800)
async def test_what_was_confirmed_survives_being_killed(tmp_path: Path, seed: int, kills: int) -> None:
    dice, journal = random.Random(seed), Journal()
    load = Load(journal)
    with BrokerProcess(tmp_path) as broker:
        make_queues(broker)
        for kill in range(1, kills + 1):
            after = dice.uniform(SHORTEST, LONGEST)
            await kill_under_load(broker, load, after=after, confirmed=10 * kills if kill == kills else 0)
            broker.start()
            found, states = await look(broker)
            assert journal.judge(found, states) == [], f"after kill {kill}, PAIRBUS_CRASH_SEED={seed}"
            journal.learn(found, states)


async def test_a_broker_that_forgets_is_found_out(tmp_path: Path) -> None:
    """The same load and the same judge, and a broker that keeps nothing: it does not get away with it."""
    journal = Journal()
    with BrokerProcess(tmp_path, durable=False) as broker:
        make_queues(broker)
        await kill_under_load(broker, Load(journal), after=LONGEST, confirmed=1)
        broker.start()
        make_queues(broker)
        wrong = journal.judge(*await look(broker))
    lost = {text.partition(" is absent, not ")[2] for text in wrong}
    assert {"active", "scheduled", "deferred", "dead-lettered"} <= lost
    assert any(text.startswith("session") for text in wrong)
