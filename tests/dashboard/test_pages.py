"""What a dashboard shows of a pair in an outage, and what it can do about it."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus.exceptions import ServiceBusError

from pairbus.broker import Broker
from pairbus.client.state.directory import verdict_file
from pairbus.dashboard import collector
from pairbus.dashboard.pages import _MOST_LISTENERS
from pairbus.dashboard.server import Serving, serving
from pairbus.dashboard.watched import LookPace, Watched, WatchedPair
from tests.waiting import eventually

from .scene import PAIR, STAYS, TOKEN, Visitor, open_client, send, send_many, served, watch

PATIENCE = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for path in ("orders", "payments"):
            broker["contoso"].create_queue(path)
        yield broker


async def seen(visitor: Visitor, is_so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The first picture in which something is so."""
    async with asyncio.timeout(PATIENCE):
        while True:
            state = await visitor.state()
            if state.get("pairs") and is_so(state):
                return state
            await asyncio.sleep(0.05)


def pair_of(state: dict[str, Any]) -> dict[str, Any]:
    (pair,) = state["pairs"]
    return dict(pair)


def waiting(state: dict[str, Any]) -> dict[str, int]:
    return {one["path"]: one["messages"] for one in pair_of(state)["waiting"]["paths"]}


def states(state: dict[str, Any]) -> dict[str, str]:
    return {one["path"]: one["state"] for one in pair_of(state)["entities"]}


async def test_an_outage_from_beginning_to_end(broker: Broker, tmp_path: Path) -> None:
    watched, history = watch(broker, tmp_path), tmp_path / "history.jsonl"
    async with served(watched, history=history) as visitor, open_client(broker, watched) as client:
        await send(client, "payments", ["p1"])
        await send(client, "orders", ["o1"])
        # Before all that it asks has answered for the first time, it says that it sees nothing there.
        both = {"orders": "healthy", "payments": "healthy"}
        state = await seen(visitor, lambda one: states(one) == both and one["headline"]["level"] == "good")
        assert state["headline"]["said"] == []

        status, _ = await visitor.do(action="fault", namespace="contoso", kind="refuse", entity="orders")
        assert status == 200
        await send(client, "orders", ["o2", "o3"])
        away = {"orders": "failed_over", "payments": "healthy"}
        state = await seen(
            visitor,
            lambda one: (
                waiting(one) == {"orders": 2}
                and pair_of(one)["backlog"]["active"] == 2
                and states(one) == away
            ),
        )
        assert state["headline"]["level"] == "warn"
        assert [one["alert"] for one in state["headline"]["said"]] == ["EntityFailedOver"]
        assert (await seen(visitor, lambda one: one["broker"]["namespaces"][0]["faults"]))["broker"][
            "error"
        ] is None

        await visitor.do(action="heal", namespace="contoso")
        await seen(visitor, lambda one: states(one)["orders"] == "healthy")
        status, said = await visitor.do(action="drain", pair=PAIR)
        assert (status, said) == (200, {"done": "draining everything"})
        state = await seen(
            visitor, lambda one: pair_of(one)["drain"]["state"] == "ended" and not waiting(one)
        )
        assert pair_of(state)["drain"]["moved"] == 2
        assert broker["contoso"].message_count("orders") == 3
        _, found = await visitor.ask("api/history")
        changes = [one["new"] for one in found["pairs"][PAIR]["changes"] if one["path"] == "orders"]
        assert changes[-2:] == ["failed_over", "healthy"]
    async with served(watched, history=history) as visitor:
        _, found = await visitor.ask("api/history")
        assert [one["new"] for one in found["pairs"][PAIR]["changes"] if one["path"] == "orders"] == changes


async def test_clients_of_one_process_are_told_apart(broker: Broker, tmp_path: Path) -> None:
    """In an order that stays: each writes its status when it likes."""
    watched = watch(broker, tmp_path)
    async with (
        served(watched) as visitor,
        open_client(broker, watched) as one,
        open_client(broker, watched) as other,
    ):
        await send(one, "orders", ["o1"])
        await send(other, "orders", ["o2"])
        state = await seen(visitor, lambda found: len(pair_of(found)["clients"]) == 2)
        first, second = (client["id"] for client in pair_of(state)["clients"])
        assert second == f"{first}#2"
        _, text = await visitor.ask("metrics")
        samples = Counter(line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#"))
        assert max(samples.values()) == 1


async def test_one_path_only_and_redrive(broker: Broker, tmp_path: Path) -> None:
    watched = watch(broker, tmp_path)
    async with served(watched) as visitor, open_client(broker, watched, **STAYS) as client:
        for path in ("orders", "payments"):
            client.fail_over(path, reason="to see it")
            await send(client, path, [f"{path}-1"])
        await seen(visitor, lambda one: waiting(one) == {"orders": 1, "payments": 1})
        await visitor.do(action="drain", pair=PAIR, path="payments")
        await seen(
            visitor,
            lambda one: pair_of(one)["drain"]["state"] == "ended" and waiting(one) == {"orders": 1},
        )
        assert broker["contoso"].message_count("payments") == 1

        broker["contoso"].delete_queue("orders")
        await visitor.do(action="drain", pair=PAIR)
        state = await seen(visitor, lambda one: pair_of(one)["waiting"]["dead"])
        (dead,) = pair_of(state)["waiting"]["dead"]
        assert (dead["messages"], dead["paths"]) == (1, {"orders": 1})
        broker["contoso"].create_queue("orders")
        await seen(visitor, lambda one: pair_of(one)["drain"]["state"] == "ended")
        status, said = await visitor.do(action="redrive", pair=PAIR, reason=dead["reason"])
        assert (status, said) == (200, {"done": "1 dead letter is back in the backlog"})
        await visitor.do(action="drain", pair=PAIR)
        # The picture may still be that of the drain before.
        await eventually(lambda: broker["contoso"].message_count("orders") == 1)
        await seen(visitor, lambda one: pair_of(one)["drain"]["state"] == "ended" and not waiting(one))


async def test_a_healthy_entity_that_refuses_what_is_sent_is_no_calm(broker: Broker, tmp_path: Path) -> None:
    watched = watch(broker, tmp_path)

    def alerts(state: dict[str, Any]) -> list[str]:
        return [one["alert"] for one in state["headline"]["said"]]

    async with served(watched) as visitor, open_client(broker, watched, failover_interval=600) as client:
        await send(client, "payments", ["p1"])
        await send(client, "orders", ["o1"])
        await seen(visitor, lambda one: states(one).keys() == {"orders", "payments"} and not alerts(one))
        client.fail_over("orders", reason="to be healthy since a moment")
        client.mark_path_healthy("orders")
        well = await seen(visitor, lambda one: pair_of(one)["entities"][0]["since"])
        broker["contoso"].delete_queue("orders")
        for number in range(3):
            with pytest.raises(ServiceBusError):
                await send(client, "orders", [f"refused-{number}"])
        state = await seen(visitor, alerts)
        assert well["at"] <= state["headline"]["said"][0]["since"] <= state["at"]
        assert states(state) == {"orders": "healthy", "payments": "healthy"}
        (said,) = state["headline"]["said"]
        assert (said["alert"], said["text"]) == ("EntityRefuses", "orders refuses what is sent")
        assert "could not be found" in said["why"]
        broker["contoso"].create_queue("orders")
        await send(client, "orders", ["o2"])
        await seen(visitor, lambda one: not alerts(one))


async def test_what_a_drain_has_left_is_looked_at_when_it_ends(broker: Broker, tmp_path: Path) -> None:
    """Or the page would say for a while that nobody drains what is gone."""
    seldom = LookPace(glance=0.1, count=3600, peek=3600)
    watched = replace(watch(broker, tmp_path), pace=seldom)
    async with open_client(broker, watched, **STAYS) as client:
        client.fail_over("orders", reason="to see it")
        await send_many(client, "orders", 2)
        async with served(watched) as visitor:
            await seen(visitor, lambda one: pair_of(one)["backlog"] and waiting(one))
            await visitor.do(action="drain", pair=PAIR)
            state = await seen(
                visitor, lambda one: not pair_of(one)["backlog"]["active"] and not waiting(one)
            )
            drain = pair_of(state)["drain"]
            assert (drain["state"], drain["rate"]) == ("ended", 0.0)


async def test_a_drain_is_paused_resumed_and_stopped(broker: Broker, tmp_path: Path) -> None:
    watched = watch(broker, tmp_path, max_rate=5)

    def is_in(name: str) -> Callable[[dict[str, Any]], bool]:
        return lambda state: pair_of(state)["drain"]["state"] == name

    async with served(watched) as visitor, open_client(broker, watched, **STAYS) as client:
        client.fail_over("orders", reason="to see it")
        await send_many(client, "orders", 2)
        await visitor.do(action="drain", pair=PAIR)
        status, said = await visitor.do(action="drain", pair=PAIR)
        assert (status, "under way" in said["error"]) == (400, True)
        await seen(visitor, is_in("running"))
        await visitor.do(action="pause", pair=PAIR)
        await seen(visitor, is_in("paused"))
        await visitor.do(action="resume", pair=PAIR)
        await seen(visitor, is_in("running"))
        await visitor.do(action="stop", pair=PAIR)
        state = await seen(visitor, is_in("ended"))
        moved = pair_of(state)["drain"]["moved"]
        assert moved < 400
        assert broker["contoso"].message_count("orders") == moved


async def test_a_namespace_that_is_gone_hides_nothing_else(broker: Broker, tmp_path: Path) -> None:
    watched = watch(broker, tmp_path)
    async with served(watched) as visitor, open_client(broker, watched) as client:
        await send(client, "orders", ["o1"])
        await seen(visitor, lambda one: states(one).get("orders") == "healthy")
        broker["contoso-dr"].faults.set("refuse")
        state = await seen(visitor, lambda one: pair_of(one)["sources"]["backlog"]["error"])
        assert states(state) == {"orders": "healthy"}
        assert pair_of(state)["sources"]["clients"]["error"] is None
        status, text = await visitor.ask("metrics")
        assert status == 200
        assert 'pairbus_source_up{pair="shop",source="backlog"} 0.0' in text
        assert 'pairbus_source_up{pair="shop",source="clients"} 1.0' in text


async def test_a_look_into_a_queue_shows_bodies_and_moves_nothing(broker: Broker, tmp_path: Path) -> None:
    watched = watch(broker, tmp_path)
    async with served(watched) as visitor, open_client(broker, watched) as client:
        await send(client, "orders", ["<b>o1</b>", "o2"])
        status, found = await visitor.ask("api/peek?namespace=contoso&path=orders")
        assert status == 200
        assert [(one["id"], one["body"]) for one in found["messages"]] == [
            ("<b>o1</b>", "body of <b>o1</b>"),
            ("o2", "body of o2"),
        ]
        assert broker["contoso"].message_count("orders") == 2
        for query in ("namespace=control&path=orders", "namespace=&path=orders", ""):
            assert (await visitor.ask(f"api/peek?{query}"))[0] == 400
        assert (await visitor.ask("api/peek?namespace=contoso&path=nowhere"))[0] == 502


async def test_no_key_leaves_the_server(broker: Broker, tmp_path: Path) -> None:
    watched = watch(broker, tmp_path)
    async with served(watched) as visitor:
        state = await seen(visitor, lambda one: one["broker"]["namespaces"])
        told = json.dumps(state) + json.dumps((await visitor.ask("api/history"))[1])
        for name in ("contoso", "contoso-dr"):
            key = broker[name].connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
            assert key
            assert key not in told
        assert str(broker.describe()["control"]["token"]) not in told


async def events_of(visitor: Visitor) -> AsyncIterator[tuple[str, Any]]:
    url = visitor.address.partition("#")[0] + "api/events"
    async with visitor.session.get(url, headers={"Authorization": f"Bearer {visitor.token}"}) as answer:
        assert answer.content_type == "text/event-stream"
        name = ""
        async for raw in answer.content:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


async def test_events_tell_news_and_end_with_the_server(broker: Broker, tmp_path: Path) -> None:
    told: list[str] = []
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        async with serving(watch(broker, tmp_path), Serving(token=TOKEN, control=True)) as address:
            listener = events_of(Visitor(address, session))
            async for name, data in listener:
                told.append(name)
                if name == "state" and data["broker"]["namespaces"]:
                    break
        # The server has ended, and has waited for no listener.
        async for name, _ in listener:
            told.append(name)
    assert told[0] == "hello"
    assert {"history", "state"} <= set(told)


async def test_listeners_that_come_together_are_counted_as_well(broker: Broker, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE), served(watch(broker, tmp_path)) as visitor:
        url, headers = visitor.address.partition("#")[0], {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as crowd:
            answers = await asyncio.gather(
                *(crowd.get(f"{url}api/events", headers=headers) for _ in range(_MOST_LISTENERS + 20))
            )
            assert Counter(answer.status for answer in answers) == {200: _MOST_LISTENERS, 503: 20}
            for answer in answers:
                answer.close()
        # All are gone, and others may come.
        while True:
            if await is_listened_to(visitor):
                break
            await asyncio.sleep(0.05)


async def is_listened_to(visitor: Visitor) -> bool:
    url = visitor.address.partition("#")[0] + "api/events"
    async with visitor.session.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        return answer.status == 200


async def test_an_action_that_cannot_be_meant_is_refused_by_name(broker: Broker, tmp_path: Path) -> None:
    async with served(watch(broker, tmp_path)) as visitor:
        fault = {"action": "fault", "namespace": "contoso", "kind": "refuse"}
        mistakes: list[tuple[dict[str, Any], str]] = [
            ({**fault, "for": -5}, "a number of seconds above 0, not -5"),
            ({**fault, "for": float("nan")}, "a number of seconds above 0, not nan"),
            ({**fault, "for": "nan"}, "a number of seconds above 0, not 'nan'"),
            ({**fault, "for": 10**400}, "a number of seconds above 0"),
            ({**fault, "entity": ["orders"]}, "'entity' is a text"),
            ({**fault, "entity": "\ud800"}, "an entity is the path of a queue"),
            ({"action": "fault", "kind": "refuse"}, "say which namespace"),
            ({"action": "redrive", "pair": PAIR, "reason": 3}, "'reason' is a text, not 3"),
            ({"action": "drain", "pair": PAIR, "path": {}}, "'path' is a text"),
        ]
        for wrong, told in mistakes:
            status, said = await visitor.do(**wrong)
            assert (status, told in said["error"]) == (400, True), (wrong, said)
        status, said = await visitor.do(action="heal", namespace="x" * 100_000)
        assert (status, said) == (413, {"error": "an action has at most 65,536 bytes"})
        assert not broker["contoso"].faults.list()


async def test_an_entity_whose_name_is_no_text_is_shown(tmp_path: Path) -> None:
    left = Path(__file__).parents[1] / "client" / "version_0_1_0" / "status" / "9734.json"
    told = json.loads(left.read_text(encoding="utf-8")) | {"written_at": time.time(), "interval": 3600.0}
    told["status"]["entities"][0]["health"]["path"] = "\ud800x"
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "1.json").write_text(json.dumps(told), encoding="utf-8")
    (tmp_path / "status" / "caf\udce9.json").write_text("{", encoding="utf-8")
    async with served(Watched(pairs=[WatchedPair(name=PAIR, state_dir=tmp_path)])) as visitor:
        await seen(visitor, lambda state: pair_of(state)["sources"]["status files"]["error"])
        state = await seen(visitor, lambda state: pair_of(state)["entities"])
        pair = pair_of(state)
        assert "\\ud800x" in [one["path"] for one in pair["entities"]]
        assert pair["sources"]["status files"]["error"] == "1 status file cannot be read: caf\\udce9.json"
        status, text = await visitor.ask("metrics")
        assert (status, 'path="\\\\ud800x"' in text) == (200, True)


async def test_a_file_that_says_what_json_cannot_blinds_no_page(tmp_path: Path) -> None:
    odd = '"half": "\\ud83d", "none": NaN, "huge": [1e999]'
    verdict_file(tmp_path).write_text(f'{{"is_clean": true, "lost": 0, "at": 1, {odd}}}', encoding="utf-8")
    change = f'{{"kind": "change", "at": {time.time()}, "pair": "{PAIR}", "path": "\\ud83d", "old": "healthy"'
    (tmp_path / "dashboard.jsonl").write_text(f'{change}, "new": "faulted"}}\n', encoding="utf-8")
    watched = Watched(pairs=[WatchedPair(name=PAIR, state_dir=tmp_path)])
    async with served(watched, history=tmp_path / "dashboard.jsonl") as visitor:
        state = await seen(visitor, lambda state: pair_of(state)["verdict"])
        told = pair_of(state)["verdict"]
        assert (told["half"], told["none"], told["huge"]) == ("\ud83d", None, [None])
        status, was = await visitor.ask("api/history")
        assert (status, was["pairs"][PAIR]["changes"][0]["path"]) == (200, "\ud83d")


async def test_a_mistake_in_drawing_is_no_calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(Watched(pairs=[WatchedPair(name=PAIR, state_dir=tmp_path)])) as visitor:
        await seen(visitor, lambda state: pair_of(state)["sources"]["clients"]["at"])
        with monkeypatch.context() as broken:
            broken.setattr(collector, "picture_pair", lambda *given, **named: 1 / 0)
            state = await seen(visitor, lambda state: "cannot draw" in str(state["headline"]))
            assert state["headline"]["level"] == "bad"
            assert state["headline"]["said"][0]["why"] == "division by zero"
            assert 'pairbus_source_up{pair="",source="dashboard"} 0.0' in (await visitor.ask("metrics"))[1]
        await seen(visitor, lambda state: "cannot draw" not in str(state["headline"]))
        assert 'source="dashboard"' not in (await visitor.ask("metrics"))[1]
