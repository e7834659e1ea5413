"""Dead letters back into play: those that are meant, at the pace that was asked for."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from pairbus.amqp.message import encode_annotations, scan
from pairbus.amqp.types import Symbol
from pairbus.backlog.redrive import DeadLetterChoice, redrive, survey_dead_letters
from pairbus.broker import Broker
from pairbus.pairing.envelope import ACCOUNTED
from pairbus.pump.amqp_transport import AmqpDestination
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import open_transport
from pairbus.pump.transport import Refusal, Unit
from pairbus.spark import Syphon
from pairbus.testing.messages import messages_in
from pairbus.words import PARTITION_KEY, POSTMARKS, VIA_PARTITION_KEY
from tests.cli.process import call
from tests.pump.bench import envelope, opened
from tests.spark.bus import Bus, Letter
from tests.spark.test_local import fill

COUNT = 12


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield Bus(broker, queues=3)


def pair_of(bus: Bus) -> PumpPair:
    return PumpPair.from_connection_strings(bus.primary.connection_string, bus.secondary.connection_string)


def bury(bus: Bus, tmp_path: Path) -> dict[str, str]:
    """Dead letters for two entities that are not there; the variables by which commands find the pair."""
    fill(bus, COUNT, path="gone")
    fill(bus, COUNT // 2, path="lost")
    variables = {"P": bus.primary.connection_string, "S": bus.secondary.connection_string}
    done = call(
        "syphon", "run", "--engine", "local", "--once", "--state", str(tmp_path),
        "--primary-env", "P", "--secondary-env", "S", "--count", "3",
        variables=variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(bus.dead_letters()) == COUNT + COUNT // 2
    return variables


def test_a_dry_run_tells_and_touches_nothing_and_the_rest_goes_back(bus: Bus, tmp_path: Path) -> None:
    variables = bury(bus, tmp_path)
    words = ["redrive", "--primary-env", "P", "--secondary-env", "S", "--count", "3", "--path", "Gone"]
    dry = json.loads(call(*words, "--dry-run", "--json", variables=variables).stdout)
    assert dry["redriven"] == {"EntityNotFound": COUNT}
    assert dry["left"] == {"EntityNotFound": COUNT // 2}
    assert len(bus.dead_letters()) == COUNT + COUNT // 2
    assert bus.left() == 0
    shown = call(*words, variables=variables).stdout
    assert f"{COUNT} dead letters went back into play, {COUNT // 2} stay" in shown
    assert bus.left() == COUNT
    rest = json.loads(call(*words[:-2], "--older-than", "1d", "--json", variables=variables).stdout)
    assert rest["redriven"] == {}
    assert [(row["path"], row["left"]) for row in rest["rows"]] == [("lost", COUNT // 2)]
    newer = json.loads(call(*words[:-2], "--newer-than", "1d", "--json", variables=variables).stdout)
    assert newer["redriven"] == {"EntityNotFound": COUNT // 2}
    assert bus.dead_letters() == {}


def test_a_survey_tells_what_a_redrive_does(bus: Bus, tmp_path: Path) -> None:
    bury(bus, tmp_path)
    for choice in (DeadLetterChoice(paths=["lost"]), DeadLetterChoice(reasons=["entitynotfound"])):
        now = max(
            one.enqueued_at for one in bus.found(f"{bus.backlog[0]}/$DeadLetterQueue", on_secondary=True)
        )
        before = asyncio.run(
            survey_dead_letters(pair_of(bus), bus.backlog, choice, options=PumpOptions(), now=now)
        )
        done = asyncio.run(redrive(pair_of(bus), bus.backlog, choice))
        assert (before.by_path, before.left_by_path) == (done.by_path, done.left_by_path)


def test_what_goes_back_has_no_mark_of_a_pump(bus: Bus, tmp_path: Path) -> None:
    """It begins anew, and nothing of it is accounted for."""
    (name,) = fill(bus, 1, path="gone")
    bus.primary.faults.set("refuse")
    for _ in range(2):
        assert Syphon(None, pair_of(bus), state=tmp_path).run(once=True).waiting == 1
    bus.primary.faults.clear()
    queue = next(one for one in bus.backlog if messages_in(bus.secondary, one))
    (marked,) = messages_in(bus.secondary, queue)
    Syphon(None, pair_of(bus), state=tmp_path).run(once=True)
    assert [*bus.dead_letters()] == [name]
    asyncio.run(redrive(pair_of(bus), bus.backlog, DeadLetterChoice()))
    (again,) = messages_in(bus.secondary, queue)
    assert marked.application_properties == {**again.application_properties, ACCOUNTED: 2}
    assert ACCOUNTED not in again.application_properties


@pytest.mark.parametrize("transport", ["amqp", "sdk"])
def test_what_goes_back_has_every_annotation_of_its_sender(transport: Literal["amqp", "sdk"]) -> None:
    """Also those that are named as if they were the service's; what a queue writes on it is its own."""
    own = {"x-opt-tenant": "contoso", "tenant": "contoso", PARTITION_KEY: "key", VIA_PARTITION_KEY: "via"}
    plain = envelope("gone", "m")
    header = scan(plain).header_bytes
    said = encode_annotations({Symbol(name): value for name, value in own.items()})
    sent = header + said + plain[len(header) :]
    with opened() as bench:
        queues = bench.create("orders")
        bench.load(queues[0], [sent])
        asyncio.run(bench.drain(queues))
        assert bench.dead_letters(queues[0]) == {"m": "EntityNotFound"}
        asyncio.run(
            redrive(bench.pair(), queues, DeadLetterChoice(), options=PumpOptions(transport=transport))
        )
        (again,) = bench.stored(queues[0], on=bench.secondary)
    assert {key: again.annotations[key] for key in again.annotations if key not in POSTMARKS} == own


def test_the_pace_is_that_of_all_queues_together(bus: Bus, tmp_path: Path) -> None:
    bury(bus, tmp_path)
    begun = time.monotonic()
    done = asyncio.run(redrive(pair_of(bus), bus.backlog, DeadLetterChoice(), max_rate=9.0))
    assert sum(done.redriven.values()) == COUNT + COUNT // 2
    # The first ones go at once, a second's worth of them at most; the others never sooner.
    assert time.monotonic() - begun >= (COUNT + COUNT // 2 - 9) / 9.0


def test_what_another_one_has_locked_stays_and_is_told(bus: Bus, tmp_path: Path) -> None:
    variables = bury(bus, tmp_path)
    words = ["redrive", "--primary-env", "P", "--secondary-env", "S", "--count", "3"]

    async def beside_a_holder() -> list[subprocess.CompletedProcess[str]]:
        transport = open_transport(pair_of(bus).secondary.resolve(), PumpOptions())
        sources = [transport.source(f"{queue}/$DeadLetterQueue") for queue in bus.backlog]
        try:
            held = 0
            async with asyncio.timeout(60):
                while held < COUNT + COUNT // 2:
                    held += sum([len(await source.receive(COUNT * 2, 0.2)) for source in sources])
            only = ["--path", "gone", "--json"]
            return [await asyncio.to_thread(call, *words, *more, variables=variables) for more in ([], only)]
        finally:
            await transport.close()

    every, some = asyncio.run(beside_a_holder())
    assert every.returncode == some.returncode == 4
    assert f"0 dead letters went back into play, {COUNT + COUNT // 2} stay" in every.stdout
    assert f"incomplete: {COUNT + COUNT // 2} of those that stay are locked by somebody else" in every.stdout
    told = json.loads(some.stdout)
    assert (told["left"], told["locked"]) == ({"EntityNotFound": COUNT + COUNT // 2}, COUNT)


@pytest.mark.parametrize("text", ["soon", "-1", "1w", ""])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    done = call("redrive", "--primary-env", "P", "--secondary-env", "S", "--older-than", text)
    assert (done.returncode, "is not a duration such as 90, 15m, 2h or 1d" in done.stderr) == (2, True)


def test_what_is_older_than_the_oldest_that_is_meant_is_a_mistake() -> None:
    sides = ("--primary-env", "P", "--secondary-env", "S")
    done = call("redrive", *sides, "--older-than", "2h", "--newer-than", "1h")
    assert (done.returncode, "nothing is between them" in done.stderr) == (2, True)


def test_a_pace_slower_than_locks_sends_nothing_twice(bus: Bus, tmp_path: Path) -> None:
    """What waited for its turn under a lock that ends meanwhile would be sent, and come again."""
    buried = fill(bus, 2, path="gone")
    Syphon(None, pair_of(bus), state=tmp_path).run(once=True)
    assert sorted(bus.dead_letters()) == sorted(buried)
    bus.shorten_locks(5.0)  # no queue has shorter ones
    done = asyncio.run(redrive(pair_of(bus), bus.backlog, DeadLetterChoice(), max_rate=0.16))
    back = [one.message_id for queue in bus.backlog for one in messages_in(bus.secondary, queue)]
    assert sorted(back) == sorted(buried)
    assert sum(done.redriven.values()) == len(buried)
    assert bus.dead_letters() == {}


def test_what_is_held_and_comes_again_ends_nothing(tmp_path: Path) -> None:
    """A pace under which locks end shows those again that are not meant; those that are stand behind them."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        bus = Bus(broker, queues=1)
        kept = [*fill(bus, 2, path="lost")]
        meant = fill(bus, 4, path="gone")
        Syphon(None, pair_of(bus), state=tmp_path).run(once=True)
        assert sorted(bus.dead_letters()) == sorted([*kept, *meant])
        bus.shorten_locks(5.0)
        done = asyncio.run(redrive(pair_of(bus), bus.backlog, DeadLetterChoice(paths=["gone"]), max_rate=0.4))
        assert (done.redriven, done.left, done.locked) == (
            {"EntityNotFound": len(meant)},
            {"EntityNotFound": len(kept)},
            0,
        )
        assert sorted(bus.dead_letters()) == sorted(kept)


def test_what_is_buried_again_at_once_does_not_go_round(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a syphon that runs, where the cause was not mended."""
    buried = [f"m{number}" for number in range(400)]
    bus.put([Letter(path="gone", id=one) for one in buried], spread=lambda index, letter: 0)
    Syphon(None, pair_of(bus), state=tmp_path).run(once=True)
    send = AmqpDestination.send

    async def send_in_vain(self: AmqpDestination, units: Sequence[Unit]) -> list[Refusal]:
        outcomes = await send(self, units)
        for queue in bus.backlog:
            bus.bury(queue)
        return outcomes

    monkeypatch.setattr(AmqpDestination, "send", send_in_vain)
    done = asyncio.run(redrive(pair_of(bus), bus.backlog, DeadLetterChoice(), max_rate=1000))
    assert (done.redriven.total(), done.locked) == (len(buried), len(buried))
    assert sorted(bus.dead_letters()) == sorted(buried)
