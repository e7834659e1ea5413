"""Real faults on real processes, and afterwards a verdict: nothing that was acknowledged is lost or altered,
and what arrived twice was sent without a known outcome.

A case is a fault and a victim. So that the victim is needed, there may be an outage before: then the backlog
is in use, or, where both sides are away, the spool. Each fault is seen to have come about, else the verdict
would tell nothing. `make test` goes through a few cases, `make soak` through all.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.broker import Broker
from pairbus.broker.engine.message import Incoming
from tests.conftest import SECTIONS

from .journal import body_of
from .lines import Lines
from .world import ACTORS, SIDES, World

Inflict = Callable[[World, str], AbstractContextManager[None]]

# Seconds that a fault lasts, at least and at most: longer than the time-outs of a client, or not.
SHORTEST, LONGEST = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done, to whom it can be done, and what has to be there for it."""

    inflict: Inflict
    victims: tuple[str, ...] = ACTORS
    need: str = ""


FAULTS = {
    "killed": Fault(World.killed),
    "stopped": Fault(World.stopped),
    "an hour ahead": Fault(World.an_hour_ahead),
    "an hour behind": Fault(World.an_hour_behind),
    "without descriptors": Fault(World.without_descriptors),
    "on a full disk": Fault(World.on_a_full_disk, need="small_disk"),
    "cut off": Fault(World.cut_off, tuple(SIDES), need="lines"),
    "heard but not answering": Fault(World.not_answering, tuple(SIDES), need="lines"),
    "behind a slow line": Fault(World.behind_a_slow_line, tuple(SIDES), need="lines"),
}
CASES = [(fault, victim) for fault, row in FAULTS.items() for victim in row.victims]
SHORT = [
    ("killed", "primary"),
    ("stopped", "pump"),
    ("heard but not answering", "primary"),
    ("on a full disk", "application"),
]
CHOSEN = CASES if os.environ.get("PAIRBUS_ORDEALS") == "all" else SHORT


def cases(need: str) -> pytest.MarkDecorator:
    chosen = [case for case in CHOSEN if FAULTS[case[0]].need == need]
    return pytest.mark.parametrize(("fault", "victim"), chosen)


def outage_for(fault: str, victim: str) -> tuple[str, ...]:
    """Who is away before, so that the victim is needed."""
    if victim == "primary":
        return ()
    return tuple(SIDES) if (fault, victim) == ("on a full disk", "application") else ("primary",)


@pytest.fixture(scope="module")
def dice(pytestconfig: pytest.Config) -> random.Random:
    """PAIRBUS_ORDEAL_SEED repeats the lengths of an earlier run."""
    seed = int(os.environ.get("PAIRBUS_ORDEAL_SEED") or random.SystemRandom().randrange(1 << 30))
    pytestconfig.stash[SECTIONS]["ordeals"] = [f"PAIRBUS_ORDEAL_SEED={seed} makes faults as long again"]
    return random.Random(seed)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """A network that can be broken."""
    with Lines().laid() as lines:
        yield lines


def go_through(world: World, fault: str, victim: str, seconds: float) -> None:
    world.create_queues()
    world.start_all()
    world.sends_on()
    with ExitStack() as outage:
        for side in outage_for(fault, victim):
            outage.enter_context(world.stopped(side))
            world.sends_on(40)
        if victim == "pump":
            outage.close()
            world.backlog_moves()
        with FAULTS[fault].inflict(world, victim):
            time.sleep(seconds)  # it lasts so long; nothing is expected of this time
    world.revive()
    world.sends_on()
    world.settle()
    assert world.judge() == [], f"{victim} {fault} for {seconds:.2f} s"


def length(dice: random.Random) -> float:
    return dice.uniform(SHORTEST, LONGEST) if CHOSEN is CASES else 2.0


@pytest.mark.timeout(600)
@cases("")
def test_a_process_in_trouble_loses_nothing(
    tmp_path: Path, dice: random.Random, fault: str, victim: str
) -> None:
    with World(tmp_path) as world:
        go_through(world, fault, victim, length(dice))


@pytest.mark.timeout(600)
@cases("small_disk")
def test_a_disk_without_room_loses_nothing(
    tmp_path: Path, small_disk: Callable[[Path], None], dice: random.Random, fault: str, victim: str
) -> None:
    with World(tmp_path) as world:
        small_disk(world.place(victim))
        go_through(world, fault, victim, length(dice))


@pytest.mark.timeout(600)
@cases("lines")
def test_a_line_in_trouble_loses_nothing(
    tmp_path: Path, lines: Lines, dice: random.Random, fault: str, victim: str
) -> None:
    with World(tmp_path, lines) as world:
        go_through(world, fault, victim, length(dice))


def put(world: World, message_id: str, body: str) -> None:
    payload = encode_properties(Properties(message_id=message_id)) + encode_data(body.encode())
    with Broker({"contoso": 0}, data_dir=world.place("primary")) as broker:
        broker["contoso"]._run(lambda engine, now: engine.send("orders", [Incoming.parse(payload)], now))


def test_a_loss_a_change_and_a_copy_are_found(tmp_path: Path) -> None:
    """The judge, on a journal that tells something else than there is."""
    told = "".join(f"begun m{number}\ndone m{number}\n" for number in range(1, 5))
    with World(tmp_path) as world:
        world.create_queues()
        put(world, "m1", body_of("m1"))
        put(world, "m2", "another body")
        put(world, "m3", body_of("m3"))
        put(world, "m3", body_of("m3"))
        put(world, "m9", body_of("m9"))
        world.journal.write_text(told, encoding="utf-8")
        copied = "duplicated: 1 messages, where 0 had no known outcome"
        assert world.judge() == ["lost: m4", "unexpected: m9", "altered: m2", copied]
        world.journal.write_text(f"{told}unknown 1\n", encoding="utf-8")
        assert copied not in world.judge()
