"""Drills from beginning to end: short ones, on a machine that may be busy with others."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from pairbus.broker.faults.plan import FaultStep
from pairbus.drill.picture import Display
from pairbus.drill.play import play
from pairbus.drill.result import DrillResult
from pairbus.drill.scenario import Scenario, parse_scenario
from pairbus.drill.stage import DrillStage
from pairbus.errors import ConfigurationError
from pairbus.options import EntityState
from tests.cli.process import call
from tests.guards.sources import ROOT
from tests.processes import killed_at_end
from tests.waiting import PATIENCE, wait_until

from .sample import make_healthy

COMMAND = [sys.executable, "-m", "pairbus.cli", "drill"]
# Each is an application to drill.
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Times that only a machine at a standstill exceeds: what is tested here is what becomes of messages.
PATIENT = "within = 60\nback_within = 60\n"

SHOP = f"""
title = "A short outage"
seed = 1
send_for = 5
clients = 2

[options]
failover_interval = 1
ping_primary_interval = 1
backlog_queue_count = 2

[[entity]]
path = "orders"
duplicate_detection = true
rate = 20

[[entity]]
path = "payments"
sessions = 3
duplicate_detection = true
rate = 10

[[entity]]
path = "events"
kind = "topic"
subscriptions = ["audit", "mail"]
rate = 12
batch = 3

[[fault]]
at = [1, 1.5]
namespace = "primary"
kind = "refuse"
for = 4

[expect]
failover = ["orders", "payments", "events"]
{PATIENT}"""


def command(*arguments: str, cwd: Path, timeout: float = 280) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False
    )


def failures(result: DrillResult) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in result.checks if not check.passed]


# Java, three jobs and a drill of ten seconds; on a machine with other things to do, a multiple of it.
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("java")
def test_the_command_accounts_for_every_message_and_writes_a_report(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(SHOP, encoding="utf-8")
    done = command("shop.toml", "--json", "--report", "out.html", "--state", "state", cwd=tmp_path)
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert (done.returncode, result["passed"]) == (0, True), result["checks"]
    _check_books(result)
    assert result["drain"]["engine"] == "Spark"
    assert any("records say the same" in check["name"] for check in result["checks"])
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8")) == result
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "A short outage" in page
    assert list((tmp_path / "state" / "records").glob("redirects-*"))


def _check_books(result: dict[str, Any]) -> None:
    verdict, entities, last = result["verdict"], result["entities"], result["samples"][-1]
    assert verdict["sent"] == verdict["delivered"] == 100 + 50 + 60
    assert [one["sent"] for one in entities] == [100, 50, 60]
    for one in entities:
        assert one["to_primary"] + one["to_backlog"] == one["sent"] == one["delivered"]
    to_backlog = sum(one["to_backlog"] for one in entities)
    assert last["to_backlog"] == to_backlog > 0
    assert result["drain"]["moved"] == last["moved"] == to_backlog
    stages = {line["name"]: line["operations"] for line in result["cost"]["stages"]}
    assert stages["send to the backlog"] >= to_backlog
    assert stages["receive from the primary"] == 100 + 50 + 2 * 60


BOTH_DOWN = f"""
title = "Both sides are down"
send_for = 5
[options]
failover_interval = 1
ping_primary_interval = 1
backlog_queue_count = 1
enable_spool = true
rotation_cool_down = 0.5
send_timeout = 1
[[entity]]
path = "orders"
rate = 20
duplicate_detection = true
[[fault]]
at = 1
namespace = "primary"
kind = "refuse"
for = 6
# For longer than the machine may stand still: something is sent meanwhile.
[[fault]]
at = 2.5
namespace = "secondary"
kind = "refuse"
for = 3
[expect]
failover = ["orders"]
spool = true
{PATIENT}"""

FULL = f"""
title = "A queue is full"
send_for = 4
[options]
failover_interval = 1
ping_primary_interval = 1
backlog_queue_count = 1
spill_when_full = true
[[entity]]
path = "orders"
rate = 20
duplicate_detection = true
[[entity]]
path = "events"
kind = "topic"
subscriptions = ["audit"]
rate = 10
[[fault]]
at = 1
namespace = "primary"
kind = "full"
entity = "orders"
[syphon]
at = 4
heal_after = 1
[expect]
put_aside = true
{PATIENT}"""


class Thief(Display):
    """Takes a message out of the backlog when nobody looks."""

    def __init__(self) -> None:
        self.stolen: str | None = None
        self.stages: list[DrillStage] = []

    def phase(self, name: str, at: float) -> None:
        if name == "drain":
            (stage,) = (one for one in self.stages if one.scenario.title == "A short outage")
            self.stolen = steal(stage)


def steal(stage: DrillStage) -> str:
    with ServiceBusClient.from_connection_string(stage.secondary.connection_string) as client:
        for queue in filter(stage.secondary.message_count, stage.backlog_queues):
            messages, count = list[ServiceBusReceivedMessage](), stage.secondary.message_count(queue)
            with client.get_queue_receiver(queue) as receiver:
                while len(messages) < count:
                    messages += receiver.receive_messages(max_message_count=count, max_wait_time=PATIENCE)
                # None of the first, which may have reached the primary before their answer was cut off.
                receiver.complete_message(messages[-1])
                for message in messages[:-1]:
                    receiver.abandon_message(message)
                return str(messages[-1].message_id)
    raise AssertionError("there was nothing to steal")


@dataclass(frozen=True)
class Played:
    """What came of three drills that were played side by side, since each of them mostly waits."""

    robbed: DrillResult
    stolen: str | None
    both_down: DrillResult
    full: DrillResult


@pytest.fixture(scope="module")
def played() -> Played:
    thief = Thief()
    enter = DrillStage.__enter__

    def remember(stage: DrillStage) -> DrillStage:
        thief.stages.append(stage)
        return enter(stage)

    take = DrillStage.take_step

    async def answer_late(stage: DrillStage, step: FaultStep) -> float | None:
        told = await take(stage, step)
        await asyncio.sleep(0.3)
        return told

    async def play_all() -> list[DrillResult]:
        dramas = ((SHOP, thief), (BOTH_DOWN, Display()), (FULL, Display()))
        plays = (
            play(
                parse_scenario(text, name="test", where="test"), version="0", on_spark=False, display=display
            )
            for text, display in dramas
        )
        return list(await asyncio.gather(*plays))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DrillStage, "__enter__", remember)
        patch.setattr(DrillStage, "take_step", answer_late)
        robbed, both_down, full = asyncio.run(play_all())
    return Played(robbed, thief.stolen, both_down, full)


def test_a_message_that_is_stolen_from_the_backlog_is_named(played: Played) -> None:
    result = played.robbed
    assert played.stolen is not None
    assert not result.passed
    assert result.verdict.lost == 1
    lost = [one.message_id for one in result.verdict.unaccounted if one.fate == "lost"]
    assert lost == [played.stolen]
    assert played.stolen in failures(result)[0]


def test_no_client_notices_a_fault_before_it_is_said_to_begin(played: Played) -> None:
    """Also where the word that it is set comes late: how long a failover takes counts from there."""
    (fault,) = played.robbed.faults
    away = [span for span in played.robbed.states if span.state != EntityState.HEALTHY.value]
    assert away
    # On a machine that stands still for a second sends stay unanswered as well, whatever the fault does.
    told = [span.begins for span in away if "sends stay unanswered" not in span.reason]
    assert min(told, default=fault.begins) >= fault.begins


def test_with_both_sides_down_the_spool_takes_the_messages(played: Played) -> None:
    assert failures(played.both_down) == []
    assert played.both_down.entities[0].to_spool > 0
    assert played.both_down.verdict.delivered == 100


def test_what_its_entity_has_no_room_for_is_put_aside_and_moved_later(played: Played) -> None:
    result = played.full
    # A full queue that spills need not fail over, and may: its pings are refused as well.
    assert [text for text in failures(result) if "never left" not in text] == []
    assert result.drain is not None
    assert (result.drain.waiting, result.drain.moved > 0) == (0, True)
    assert result.verdict.delivered == result.verdict.sent > 0  # a slow machine sends fewer in the time given


# The outage lasts longer than a failover takes on a machine that stands still meanwhile.
ORDERS = f"""
title = "Orders are down"
send_for = 8
[options]
failover_interval = 2
backlog_queue_count = 4
[[entity]]
path = "orders"
duplicate_detection = true
[[fault]]
at = 1
namespace = "primary"
kind = "refuse"
for = 6
[expect]
failover = ["orders"]
{PATIENT}"""


# For a while no namespace takes a message, and for longer than the machine may stand still.
ORDERS_BOTH_DOWN = f"""{ORDERS.replace("send_for = 8", "send_for = 10").replace("for = 6", "for = 8")}
[[fault]]
at = 4
namespace = "secondary"
kind = "refuse"
for = 3.5
"""


def drill_example(example: Path, scenario: str, at: Path) -> dict[str, Any]:
    (at / "orders.toml").write_text(scenario, encoding="utf-8")
    app = f"{sys.executable} {example}"
    done = command("orders.toml", "--no-spark", "--json", "--app", app, cwd=at, timeout=110)
    result: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, ""), result["checks"]
    assert result["verdict"]["delivered"] == result["verdict"]["sent"] > 20
    return result


@pytest.mark.timeout(120)  # an interpreter more, and the ten seconds of a drill
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_application_is_drilled_by_what_it_says(tmp_path: Path, example: Path) -> None:
    result = drill_example(example, ORDERS, tmp_path)
    (orders,) = result["entities"]
    assert orders["to_backlog"] > 0
    assert result["drain"]["moved"] > 0
    away = [span["reason"] for span in result["states"] if span["state"] == EntityState.FAILED_OVER.value]
    assert orders["failovers"] == len(away) > 0
    # An outage is one failover; any other is that of a drill that stood still, and answered nobody.
    assert sum("sends stay unanswered" not in reason for reason in away) <= 1


@pytest.mark.timeout(120)  # as above
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_application_outlives_an_outage_of_both_sides(tmp_path: Path, example: Path) -> None:
    (orders,) = drill_example(example, ORDERS_BOTH_DOWN, tmp_path)["entities"]
    assert orders["to_spool"] > 0


@pytest.mark.timeout(120)  # as above
def test_seeds_are_played_in_a_row_and_told_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "calm.toml").write_text(
        'title = "Calm"\nsend_for = 1\n[[entity]]\npath = "orders"\n', encoding="utf-8"
    )
    words = ["calm.toml", "--no-spark", "--prove", "2"]
    done = command(*words, "--json", "--seed", "7", cwd=tmp_path, timeout=110)
    told = json.loads(done.stdout)
    assert [row["seed"] for row in told["seeds"]] == [7, 8]
    assert {row["verdict"] for row in told["seeds"]} <= {"passed", "inconclusive"}, told
    assert done.returncode in (0, 4)
    assert (tmp_path / "pairbus-drill.html").exists()
    refused = command(*words, "--state", "state", cwd=tmp_path, timeout=110)
    assert (refused.returncode, "--prove plays several drills" in refused.stderr) == (2, True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_played_before_an_interrupt_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    async def play(scenario: Scenario, **_: object) -> DrillResult:
        if scenario.seed == 8:
            signal.raise_signal(number)
            await asyncio.Event().wait()
        return make_healthy()

    monkeypatch.setattr("pairbus.drill.play.play", play)
    monkeypatch.chdir(tmp_path)
    words = ["drill", "--no-spark", "--seed", "7", "--prove", "3"]
    done = call(*words)
    assert (done.returncode, done.stderr.strip()) == (code, "stopped: 1 of 3 seeds were played")
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:-1]] == [["7", "passed"]]
    page = (tmp_path / "pairbus-drill.html").read_text(encoding="utf-8")
    assert "pairbus drill namespace-down --no-spark --seed" in page, "how to run it again"
    told = json.loads(call(*words, "--json").stdout)
    assert ([row["seed"] for row in told["seeds"]], told["stopped"]) == ([7], True)


LIAR = """
import asyncio, os, signal
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

async def main():
    client = ServiceBusClient.from_connection_string(os.environ["PAIRBUS_DRILL_PRIMARY"])
    async with client, client.get_queue_sender("orders") as sender:
        for number in range(10):
            if number != 7:
                await sender.send_messages(ServiceBusMessage("x", message_id=f"order-{number}"))
            print("sent", f"order-{number}", flush=True)

asyncio.run(main())
"""


@pytest.mark.timeout(120)  # as above
def test_a_message_that_an_application_only_claims_to_have_sent_is_missing(tmp_path: Path) -> None:
    (tmp_path / "calm.toml").write_text(
        'title = "Calm"\nsend_for = 4\n[[entity]]\npath = "orders"\n', encoding="utf-8"
    )
    (tmp_path / "liar.py").write_text(LIAR, encoding="utf-8")
    done = command("calm.toml", "--no-spark", "--app", f"{sys.executable} liar.py", cwd=tmp_path, timeout=110)
    assert (done.returncode, done.stderr) == (1, "")
    assert "order-7" in done.stdout
    result = json.loads((tmp_path / "pairbus-drill.json").read_text(encoding="utf-8"))
    assert (result["verdict"]["lost"], result["verdict"]["delivered"]) == (1, 9)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["silense"], "did you mean 'silence'?"),
        (["nowhere.toml"], "there is no such file"),
        (["--report", "nowhere/out.html"], "there is no directory"),
        (["--report", "out.json"], "name the page"),
        (["--report", "pipe.html"], "it is no file"),
        (["--no-spark", "--state", "."], "is not empty"),
        (["--no-spark", "--json", "--app", " "], "--app needs a command"),
        (["--no-spark", "--json", "--app", "'"], "No closing quotation"),
        (["--no-spark", "--json", "--app", "no-such-command"], "there is no such program"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").touch()
    os.mkfifo("pipe.html")
    done = call("drill", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_without_java_the_command_says_how_to_mend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("drill", "--json", variables={"JAVA_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (3, "")
    assert "JAVA_HOME" in done.stderr
    assert "--no-spark" in done.stderr


def test_scenarios_are_listed_and_shown() -> None:
    listed = json.loads(call("drill", "--list", "--json").stdout)
    assert listed[0]["name"] == "namespace-down"
    assert "topic-down" in call("drill", "--list").stdout
    shown = call("drill", "--show", "topic-down").stdout
    assert parse_scenario(shown, name="mine", where="mine").expect.failover == ("events",)


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Path]:
    """Where an application writes its process id; should the drill not end it, this does."""
    file = tmp_path / "pid"
    yield file
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        os.kill(int(file.read_text(encoding="utf-8")), signal.SIGKILL)


def test_an_interrupt_ends_the_drill_and_its_application(tmp_path: Path, application: Path) -> None:
    (tmp_path / "orders.toml").write_text(ORDERS, encoding="utf-8")
    script = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    (tmp_path / "sleeper.py").write_text(script, encoding="utf-8")
    started = subprocess.Popen(
        [*COMMAND, "orders.toml", "--no-spark", "--app", f"{sys.executable} sleeper.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_at_end(started) as process:
        wait_until(
            lambda: (application.exists() and application.read_text()) or process.poll() is not None,
            what="the application",
        )
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, told.strip()) == (130, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(application.read_text(encoding="utf-8")), 0)


def test_a_command_that_cannot_be_run_is_told() -> None:
    scenario = parse_scenario(ORDERS, name="test", where="test")
    with pytest.raises(ConfigurationError, match="--app no-such-command: there is no such program"):
        asyncio.run(play(scenario, version="0", on_spark=False, app="no-such-command"))
