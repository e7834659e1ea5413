"""What an application says of its sends, and what is made of it when it says little."""

import asyncio
import os
import shlex
from functools import partial
from pathlib import Path

import pytest

from pairbus.clock import ManualClock
from pairbus.drill import app as app_module
from pairbus.drill.app import App, parse_line
from pairbus.drill.applications import Equipment
from pairbus.drill.audit import audit
from pairbus.drill.messages import Arrival, Resting, SentMessage
from pairbus.drill.recorder import Recorder
from pairbus.drill.scenario import Scenario, parse_scenario

SCENARIO = parse_scenario(
    'title = "t"\n[[entity]]\npath = "orders"\n[[entity]]\npath = "events"\n', name="t", where="t"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sent order-1\n", ("order-1", None, "returned")),
        ("sent order-1 orders", ("order-1", "orders", "returned")),
        ("refused order-1", ("order-1", None, "raised")),
        ("sent", None),
        ("sent a message to the boss", None),
        ("2026-11-16 INFO sent order-1", None),
        ("", None),
    ],
)
def test_a_line_tells_of_one_send_or_of_none(line: str, expected: object) -> None:
    assert parse_line(line) == expected


def equip(scenario: Scenario, state: Path, recorder: Recorder) -> Equipment:
    return Equipment(scenario=scenario, primary="p", secondary="s", state=state, recorder=recorder)


def make_app(recorder: Recorder, state: Path) -> App:
    return App("shop", equip(SCENARIO, state, recorder))


def arrive(recorder: Recorder, path: str, message_id: str) -> None:
    number = len(recorder.arrivals)
    recorder.note_arrival(
        Arrival(node=path, path=path, message_id=message_id, sequence_number=number, checksum=None)
    )


def test_without_names_all_that_the_namespaces_took_counts_as_sent(tmp_path: Path) -> None:
    recorder = Recorder(SCENARIO.entities, ManualClock())
    arrive(recorder, "orders", "a")
    resting = [Resting(message_id="b", path="events", place="contoso/x-servicebus-transfer/0")]
    found = make_app(recorder, tmp_path).account(resting, [("orders", "c")])
    assert {(one.path, one.message_id, one.outcome) for one in found} == {
        ("orders", "a", "returned"),
        ("events", "b", "returned"),
        ("orders", "c", "returned"),
    }


def test_a_name_without_a_path_is_looked_for_and_one_more_is_of_unknown_outcome(tmp_path: Path) -> None:
    recorder = Recorder(SCENARIO.entities, ManualClock())
    for name in ("a", "b", "lost"):
        recorder.note_reported(
            SentMessage(message_id=name, path="", client="app", position=0, outcome="returned")
        )
    arrive(recorder, "events", "a")
    arrive(recorder, "orders", "late")
    resting = [Resting(message_id="b", path="orders", place="contoso/x-servicebus-transfer/0")]
    found = make_app(recorder, tmp_path).account(resting, [])
    assert [(one.message_id, one.path, one.outcome) for one in found] == [
        ("a", "events", "returned"),
        ("b", "orders", "returned"),
        ("lost", "", "returned"),
        ("late", "orders", "unknown"),
    ]


def test_order_in_a_session_is_judged_by_the_order_of_its_lines(tmp_path: Path) -> None:
    recorder = Recorder(SCENARIO.entities, ManualClock())
    for position, name in enumerate(("a", "b", "c")):
        recorder.note_reported(
            SentMessage(message_id=name, path="orders", client="app", position=position, outcome="returned")
        )
    for number, name in enumerate(("a", "c", "b")):
        recorder.note_arrival(
            Arrival(node="orders", path="orders", message_id=name, sequence_number=number, session="s")
        )
    sent = make_app(recorder, tmp_path).account([], [])
    found = audit(sent, recorder.arrivals, nodes={"orders": ["orders"], "events": ["events"]}, resting=[])
    assert found.by_path["orders"].out_of_order == 1


def test_an_outage_of_an_entity_that_is_never_sent_to_is_told_first(tmp_path: Path) -> None:
    fault = '[[fault]]\nnamespace = "primary"\nat = 1\nkind = "full"\nentity = "Events"\n'
    text = 'title = "t"\n[[entity]]\npath = "orders"\n[[entity]]\npath = "events"\n' + fault
    scenario = parse_scenario(text, name="t", where="t")
    recorder = Recorder(scenario.entities, ManualClock())
    app = App("shop", equip(scenario, tmp_path, recorder))
    arrive(recorder, "orders", "a")
    assert "breaks Events, which the application never sent to" in app.notes()[0]
    arrive(recorder, "events", "b")
    assert app.notes()[0].startswith("Drilled")


@pytest.mark.parametrize(
    ("script", "is_clean"),
    [
        ("echo sent 1; sleep 77; true", True),
        ("sleep 77 & echo sent 1", True),
        ("(trap '' TERM; echo sent 1; sleep 77; sleep 77) & wait", False),
    ],
)
def test_the_children_of_an_application_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, is_clean: bool
) -> None:
    if not is_clean:
        monkeypatch.setattr(app_module, "_END_GRACE", 0.5)
    recorder = Recorder(SCENARIO.entities, ManualClock())
    command = shlex.join(["sh", "-c", script])
    app = App(command, equip(SCENARIO, tmp_path, recorder))
    # A pipe is at its end when the last process that has it open is gone.
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    monkeypatch.setattr(
        asyncio, "create_subprocess_exec", partial(asyncio.create_subprocess_exec, pass_fds=[writing])
    )

    async def run() -> None:
        await app.start()
        await app.close()
        os.close(writing)
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(os.read, reading, 1) == b""

    asyncio.run(run())
    os.close(reading)
    (check,) = app.checks()
    assert (check.passed, "was killed" in check.detail) == (is_clean, not is_clean)
