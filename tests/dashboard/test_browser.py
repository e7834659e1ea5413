"""The page in a real browser: each view, each action, live, reconnecting, read-only, by keyboard, on a phone.

One browser goes through it all once (`tests/node/dashboard.js`); a test looks at what each check has seen.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.aio import PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.dashboard.server import Serving, serving
from pairbus.dashboard.watched import LookPace, Watched
from pairbus.pump.options import PumpOptions
from tests.guards.sources import ROOT
from tests.node.script import Report

from .scene import STAYS, TOKEN, open_client, send, watch

# A quarter of a minute on a machine that has nothing else to do.
DEADLINE = 280.0
# Messages of a path that are put into the backlog: few enough that one look into a queue sees them all.
FILL = 100
INVOICES = "invoices-with-a-rather-long-name/of-the-north-west/2026"
# Often enough that nobody waits for a look, and seldom enough that a busy machine does something else too.
PACE = LookPace(glance=0.2, count=0.5, peek=0.5)
pytestmark = pytest.mark.timeout(DEADLINE + 20)


class Stage:
    """A dashboard that can be restarted, of a pair whose backlog can be filled."""

    def __init__(self, watched: Watched, broker: Broker, place: Path) -> None:
        self._watched = watched
        self._broker = broker
        self._history = place / "history.jsonl"
        self._stack = AsyncExitStack()
        self._port = 0
        self.address = ""

    async def start(self) -> None:
        """Serve the page; its drains are as fast as they can be."""
        await self._serve(self._watched)

    async def start_slow(self) -> None:
        """Serve it at the same address; a drain of what `fill` sends outlasts all checks."""
        slow = PumpOptions(max_rate=FILL / DEADLINE)
        await self._serve(replace(self._watched, pairs=[replace(self._watched.pairs[0], options=slow)]))

    async def _serve(self, watched: Watched) -> None:
        how = Serving(port=self._port, token=TOKEN, control=True, history=self._history)
        address = await self._stack.enter_async_context(serving(watched, how))
        self.address = address.partition("#")[0]
        self._port = int(self.address.rstrip("/").rpartition(":")[2])

    async def stop(self) -> None:
        await self._stack.aclose()

    async def fill(self) -> None:
        """Send orders and payments to the backlog."""
        await self._fill("orders", "payments")

    async def fill_invoices(self) -> None:
        await self._fill(INVOICES)

    async def _fill(self, *paths: str) -> None:
        async with open_client(self._broker, None, **STAYS) as client:
            for path in paths:
                client.fail_over(path, reason="to fill the backlog")
                async with client.get_queue_sender(path) as sender:
                    await sender.send_messages([ServiceBusMessage("one of many") for _ in range(FILL)])


@asynccontextmanager
async def sending(client: PairedServiceBusClient) -> AsyncIterator[None]:
    """Orders and payments, all the time."""

    async def keep_sending(path: str) -> None:
        async with client.get_queue_sender(path) as sender:
            while True:
                await sender.send_messages(ServiceBusMessage(f"<b>{path}</b>"))
                await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(keep_sending(path)) for path in ("orders", "payments")]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def browse(node: Path, chromium: Path, stage: Stage, read_only: str) -> Report:
    process = await asyncio.create_subprocess_exec(
        str(node),
        str(ROOT / "tests" / "node" / "dashboard.js"),
        *(stage.address, TOKEN, read_only, str(chromium)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors: list[str] = []

    async def obey(asked: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        async for raw in asked:
            line = raw.decode().strip()
            if line.startswith("please "):
                try:
                    await getattr(stage, line.removeprefix("please "))()
                except BaseException:
                    process.kill()  # it would wait for an answer until the deadline
                    raise
                answer.write(b"done\n")
            else:
                errors.append(line)

    obeying = asyncio.create_task(obey(process.stderr, process.stdin))
    lines: list[str] = []
    try:
        with suppress(TimeoutError):  # what it has seen until then is told
            async with asyncio.timeout(DEADLINE):
                async for line in process.stdout:
                    lines.append(line.decode())
                await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        obeying.cancel()
        with suppress(asyncio.CancelledError):
            await obeying
    return Report(lines, f"the script ended with {process.returncode}: {errors}")


async def play(node: Path, chromium: Path, place: Path) -> Report:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for path in ("orders", "payments"):
            broker["contoso"].create_queue(path)
        broker["contoso"].create_queue(INVOICES)
        watched = replace(watch(broker, place), pace=PACE)
        async with open_client(broker, watched) as client:
            await send(client, "orders", ["first"])
            broker["contoso"].create_queue("gone")
            async with open_client(broker, None, **STAYS) as other:
                other.fail_over("gone", reason="to make a dead letter of it")
                await send(other, "gone", ["dead"])
            broker["contoso"].delete_queue("gone")
            stage = Stage(watched, broker, place)
            async with sending(client), serving(watched, Serving()) as read_only:
                await stage.start()
                try:
                    return await browse(node, chromium, stage, read_only)
                finally:
                    await stage.stop()


@pytest.fixture(scope="module")
def report(node: Path, chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return asyncio.run(play(node, chromium, tmp_path_factory.mktemp("browser")))


@pytest.fixture
def seen(request: pytest.FixtureRequest, report: Report) -> Any:
    """What the check with the name of this test has seen."""
    return report[request.node.name.removeprefix("test_").replace("_", " ")]


def test_sign_in(seen: str) -> None:
    assert seen.endswith("/#/")
    assert TOKEN not in seen


def test_a_view_that_there_is_not(seen: None) -> None:
    assert seen is None


def test_what_is_stranded_is_told_first(seen: Any) -> None:
    assert seen == ["▲ 1 message waits in the backlog, and nobody drains it – Overview – Pairbus", 1]


def test_an_outage_is_seen(seen: str) -> None:
    assert seen == "▲ orders is down – Overview – Pairbus"


def test_nothing_sticks_out(seen: Any) -> None:
    assert seen == []


def test_names_for_a_screen_reader(seen: Any) -> None:
    assert seen == []


def test_by_keyboard(seen: list[str]) -> None:
    assert seen[0] == "Skip to content"
    assert seen[-2:] == ["Backlog", "main of backlog"]


def test_a_look_into_a_queue(seen: Any) -> None:
    assert seen == ["body of first", 0]


def test_an_error_is_seen_over_a_dialog(seen: None) -> None:
    assert seen is None


def test_heal_and_drain(seen: bool) -> None:
    assert seen


def test_redrive(seen: None) -> None:
    assert seen is None


def test_one_path_only(seen: int) -> None:
    assert seen == 1, "what is for others stays"


def test_a_choice_stays(seen: list[str]) -> None:
    assert seen == ["orders", "Drain only this: orders"]


def test_reconnect_after_a_restart(seen: Any) -> None:
    assert seen == ["✖ No answer – Pairbus", 1], "the history is there again"


def test_pause_resume_and_stop(report: Report) -> None:
    assert report["pause, resume and stop"] is None


def test_read_only(report: Report) -> None:
    buttons, words = report["read-only"]
    assert buttons == ["Look"]
    assert words == 1


def test_what_is_not_seen_is_not_known(seen: list[list[str]]) -> None:
    assert seen == [
        ["Waiting in the backlog", "Drain", "Dead letters", "Spool"],
        ["Not known: no answer in time"] * 3,
    ]


def test_without_a_pair(seen: list[list[str]]) -> None:
    assert seen == [["No pair."]] * 2


def test_what_nobody_saw_is_not_drawn_as_well(seen: list[list[str]]) -> None:
    now, later, legends = ([one.replace("\N{NO-BREAK SPACE}", " ") for one in told] for told in seen)
    back = "back: not known for 5 min, healthy for 5 min, faulted for 10 min, not known for 20 min"
    gone = "gone: failed over for 30 min, not known for 30 min"
    new = "new: not known for 45 min, healthy for"
    assert now[:3] == [f"{back}, healthy for 20 min", gone, f"{new} 15 min"]
    assert later[:3] == [
        f"{back}, healthy for 10 min, not known for 10 min",
        gone,
        f"{new} 5 min, not known for 10 min",
    ]
    assert now[3] == later[3] == "Waiting in the backlog 7, at most 7 not known not known"
    assert legends[0].startswith("not known\nhealthy\n")
    assert legends[1] == "waiting\nnot known"


def test_a_long_name_does_not_stick_out(seen: list[int]) -> None:
    assert not any(seen), seen


def test_signed_out(seen: list[str]) -> None:
    assert seen == ["Sign in – Pairbus", "line-state"]


def test_of_many_entities(seen: list[str]) -> None:
    assert seen == ["None is called so."] * 2


def test_nothing_to_complain_about(seen: Any) -> None:
    assert seen == []
