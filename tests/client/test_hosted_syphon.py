"""The syphon inside a client: the backlog comes home by itself; nothing is lost, locked or left behind."""

import asyncio
import errno
import json
import logging
import os
import socket
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jwt
import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential

from pairbus.aio import PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.cli.pictures import draw_client
from pairbus.client.hosted import syphon, transport
from pairbus.client.hosted.syphon import HostedSyphon
from pairbus.client.state.status_file import read_status_files
from pairbus.clock import SystemClock
from pairbus.lease.lease import PairLease
from pairbus.ledger.operations import read_operations
from pairbus.ledger.segment import closed_segments
from pairbus.options import SendAvailabilityOptions
from pairbus.sdk.side import SdkSide
from pairbus.testing import ManualTimers
from pairbus.wire.tokens import SasTokens
from tests.ledger.receipts import read_receipts

from .scene import Scene, eventually, text

# Seconds of the hurried loop, for a broker that has to share the machine: ten of ours.
PATIENT = 300.0
# A ping each second of the hurried loop, and so a path that is down is tried by the syphon each second.
HOSTING: dict[str, Any] = {
    "enable_syphon": True,
    "failover_interval": 0.0,
    "ping_primary_interval": 1.0,
    "send_timeout": PATIENT,
}


async def fill(client: PairedServiceBusClient, count: int) -> list[str]:
    """Have so many messages in the backlog."""
    names = [f"{number:05}" for number in range(count)]
    client.fail_over("orders")
    sender = client.get_queue_sender("orders")
    for first in range(0, count, 250):
        await sender.send_messages([text(name) for name in names[first : first + 250]])
    return names


def moved(client: PairedServiceBusClient) -> int:
    syphon = client.status().syphon
    assert syphon is not None
    return syphon.moved


async def receive_session(client: PairedServiceBusClient, session: str, count: int) -> list[str]:
    bodies: list[str] = []
    async with client.get_queue_receiver("bills", session_id=session) as receiver:
        while len(bodies) < count:
            messages = await receiver.receive_messages(count, max_wait_time=600.0)
            assert messages, f"{len(bodies)} of {count} arrived"
            for message in messages:
                bodies.append(str(message))
                await receiver.complete_message(message)
    return bodies


async def test_the_backlog_comes_home_by_itself_in_the_order_of_each_session(scene: Scene) -> None:
    scene.primary.create_queue("bills", QueueSettings(requires_session=True))
    async with scene.client(**HOSTING) as client:
        sender = client.get_queue_sender("bills")
        scene.primary.faults.set("refuse")
        client.fail_over("bills")
        for number in range(10):
            for session in ("a", "b"):
                await sender.send_messages(text(f"{session}{number}", session_id=session))
        assert len(scene.backlog()) == 20
        # The syphon finds the path down while the outage lasts, and puts aside what it has received.
        await eventually(lambda: scene.secondary.count(OperationKind.DEFER) > 0)
        scene.primary.faults.clear()
        await eventually(lambda: not scene.backlog(), what="an empty backlog")
        for session in ("a", "b"):
            expected = [f"{session}{number}" for number in range(10)]
            assert await receive_session(client, session, 10) == expected
        await eventually(lambda: moved(client) == 20)
        status = client.status().syphon
        assert status is not None
        assert (status.state, status.waiting, status.dead_lettered) == ("running", 0, 0)
        assert status.last_error is None


async def test_closing_in_the_middle_of_a_drain_leaves_nothing_locked_and_nothing_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.client(send_timeout=PATIENT) as filling:
        names = await fill(filling, 3000)
    given = syphon._pump_options
    with monkeypatch.context() as pace:  # at which the drain takes a minute
        pace.setattr(syphon, "_pump_options", lambda options: replace(given(options), max_rate=50.0))
        client = scene.client(**HOSTING)
        await client.start()
        await eventually(lambda: scene.primary.message_count("orders") > 100, what="the drain")
        await client.close()
    arrived, left = scene.ids(), scene.backlog()
    assert left, "the drain was over before the client closed"
    assert not [message for message in left if message.lock_token is not None]
    assert sorted(arrived + [message.message_id for message in left]) == names
    # The next one takes up what is left, at once.
    async with scene.client(**HOSTING):
        await eventually(lambda: not scene.backlog(), what="an empty backlog")
    assert sorted(scene.ids()) == names


@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_closing_does_not_wait_for_ever_for_a_silent_peer(scene: Scene, side: str) -> None:
    async with scene.client(send_timeout=PATIENT) as filling:
        names = await fill(filling, 20)
    namespace = scene.primary if side == "primary" else scene.secondary
    namespace.faults.set("silence")
    client = scene.client(**HOSTING)
    await client.start()
    if side == "primary":
        await eventually(
            lambda: any(message.lock_token is not None for message in scene.backlog()), what="a delivery"
        )
    else:
        await eventually(lambda: syphon_state(client) == "waiting", what="the question for the lease")
    await asyncio.wait_for(client.close(), 1000)  # of the hurried loop
    namespace.faults.clear()
    assert not [message for message in scene.backlog() if message.lock_token is not None]
    assert scene.backlog_ids() == names


async def test_several_clients_host_a_syphon_for_one_pair_and_nothing_is_lost(scene: Scene) -> None:
    async with scene.client(send_timeout=PATIENT) as filling:
        names = await fill(filling, 600)
    clients = [scene.client(**HOSTING) for _ in range(3)]
    await asyncio.gather(*(client.start() for client in clients))
    await eventually(lambda: not scene.backlog(), what="an empty backlog")
    assert sorted(scene.ids()) == names
    await eventually(lambda: sum(map(moved, clients)) == 600)
    # One of them has the lease, and the others say who.
    holder = f"is held by a syphon (hosted) on {socket.gethostname()}, process {os.getpid()}, since "

    def have_settled() -> bool:
        waiting = [lease_of(one) or "" for one in clients if syphon_state(one) == "waiting"]
        running = [lease_of(one) for one in clients if syphon_state(one) == "running"]
        return running == [None] and len(waiting) == 2 and all(holder in why for why in waiting)

    await eventually(have_settled)
    (first,) = [client for client in clients if syphon_state(client) == "running"]
    clients.remove(first)
    await first.close()
    await eventually(lambda: Counter(map(syphon_state, clients)) == {"running": 1, "waiting": 1})


def lease_of(client: PairedServiceBusClient) -> str | None:
    """What is wrong with the lease, in words."""
    syphon = client.status().syphon
    assert syphon is not None
    return syphon.lease


async def test_receipts_and_operations_are_kept_where_verify_and_cost_look(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene.client(state_dir=tmp_path, **HOSTING) as client:
        names = await fill(client, 10)
        client.mark_path_healthy("orders")
        await eventually(lambda: len(scene.ids()) == 10)
        await eventually(lambda: not scene.backlog())
        await eventually(lambda: status_of(tmp_path).get("syphon", {}).get("moved") == 10)
        assert status_of(tmp_path)["syphon"]["state"] == "running"
        [picture] = read_status_files(tmp_path / "status", now=time.time())
        assert "  hosted syphon running: 10 moved, 0 waiting, 0 dead-lettered" in draw_client(
            picture, now=time.time()
        )
        assert status_of(tmp_path)["sides"] == {"primary": "open", "secondary": "open"}
    records = tmp_path / "records"
    receipts = read_receipts(closed_segments(records, "receipts"))
    assert sorted(receipt["message_id"] for receipt in receipts.values()) == names
    assert {receipt["pair"] for receipt in receipts.values()} == {"contoso"}
    ledger = read_operations(closed_segments(records, "operations"))
    counts = {
        stage: sum(one.count for one in ledger.operations if one.role == "pump" and one.stage == stage)
        for stage in ("send", "backlog_receive", "backlog_complete")
    }
    assert counts == {"send": 10, "backlog_receive": 10, "backlog_complete": 10}


def status_of(state_dir: Path) -> dict[str, Any]:
    for path in (state_dir / "status").glob("*.json"):
        return dict(json.loads(path.read_text())["status"])
    return {}


async def test_a_pump_that_fails_is_replaced_after_a_rest(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where receipts cannot be written nothing is moved: it would be moved again and again."""

    def refuse(directory: Path, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))

    with monkeypatch.context() as disk:
        disk.setattr("pairbus.client.hosted.syphon.try_directory", refuse)
        client = still.client(state_dir=tmp_path, **HOSTING)
        await client.start()
        names = await fill(client, 5)
        await eventually(lambda: syphon_state(client) == "resting", what="the failure")
        status = client.status().syphon
        assert status is not None
        assert "Error" in (status.last_error or "")
        assert still.backlog_ids() == names
        assert still.ids() == []
        await manual_timers.advance(0.9)
        assert syphon_state(client) == "resting"
    await manual_timers.advance(0.2)
    await eventually(lambda: not still.backlog(), what="an empty backlog")
    assert still.ids() == names
    status = client.status().syphon
    assert status is not None
    assert status.restarts == 1


def syphon_state(client: PairedServiceBusClient) -> str:
    syphon = client.status().syphon
    assert syphon is not None
    return syphon.state


async def test_missing_queues_are_named_once_and_do_not_disturb_the_others(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A client without the right to manage cannot create what is missing."""
    policies = scene.secondary.policies
    caplog.set_level(logging.DEBUG, "pairbus.pump")
    async with scene.client(secondary=policies["listen"], backlog_queue_count=4, **HOSTING) as client:
        async with scene.client(send_timeout=PATIENT) as filling:
            await fill(filling, 10)
        await eventually(lambda: len(scene.ids()) == 10)
        missing = "contoso/x-servicebus-transfer/3"
        await eventually(lambda: asked_for(caplog, missing) >= 3, what="a third try")
        status = client.status().syphon
        assert status is not None
        assert list(status.queue_errors) == [missing]
    told = [one for one in caplog.records if missing in one.getMessage() and one.levelno >= logging.WARNING]
    assert len(told) == 1


def asked_for(caplog: pytest.LogCaptureFixture, queue: str) -> int:
    return sum(f"cannot be read: {queue}" in record.getMessage() for record in caplog.records)


async def test_a_client_that_is_not_started_hosts_nothing_and_closes(scene: Scene) -> None:
    client = scene.client(**HOSTING)
    assert syphon_state(client) == "pending"
    await client.close()


SECRET = "a secret that the issuer shares with the namespace"
ROLE = "Azure Service Bus Data Owner"


class Credential:
    """A credential as azure.identity.aio has them."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        assert scopes == ("https://servicebus.azure.net/.default",)
        self.asked += 1
        expires = int(time.time()) + 3600
        claims = {"aud": "https://servicebus.azure.net", "exp": expires, "roles": [ROLE], "sub": "till"}
        return AccessToken(jwt.encode(claims, SECRET, algorithm="HS256"), expires)


async def credential_of(kind: str, broker: Broker, name: str) -> Any:
    fields = dict(part.split("=", 1) for part in broker[name].connection_string.split(";") if part)
    policy, key = fields["SharedAccessKeyName"], fields["SharedAccessKey"]
    if kind == "key":
        return AzureNamedKeyCredential(policy, key)
    signed = await SasTokens(policy, key).token("sb://127.0.0.1", time.time())
    return AzureSasCredential(signed.value)


@pytest.mark.parametrize("kind", ["token", "key", "signature"])
async def test_the_syphon_signs_in_as_the_client_does_and_trusts_the_same_certificate(
    certificate: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    key = tmp_path / "jwt.key"
    key.write_text(SECRET)
    with Broker({"contoso": 0, "contoso-dr": 0}, certificate=certificate, jwt_key=key) as broker:
        scene = Scene(broker)
        credential = Credential()
        given = [
            credential if kind == "token" else await credential_of(kind, broker, name)
            for name in ("contoso", "contoso-dr")
        ]
        hosts = [f"127.0.0.1:{broker[name].port}" for name in ("contoso", "contoso-dr")]
        async with scene.client(send_timeout=PATIENT) as filling:
            names = await fill(filling, 5)
        async with PairedServiceBusClient(
            hosts[0],
            given[0],
            hosts[1],
            given[1],
            options=SendAvailabilityOptions(backlog_queue_count=3, **HOSTING),
            primary_name="contoso",
            sdk_options={"connection_verify": str(certificate[0])},
        ) as client:
            await eventually(lambda: not scene.backlog(), what="an empty backlog")
            place = transport.pump_side(client.pair.primary).resolve().place()
            assert place.tls is not None
        assert scene.ids() == names
        assert bool(credential.asked) is (kind == "token")


async def test_where_the_sdk_has_to_go_another_way_the_pump_goes_with_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy, or over web sockets, the SDK carries the syphon too."""
    monkeypatch.setattr(transport, "_SDK_ONLY", ("user_agent",))
    async with scene.client(send_timeout=PATIENT) as filling:
        names = await fill(filling, 5)
    async with scene.client(sdk_options={"user_agent": "behind/proxy"}, **HOSTING):
        await eventually(lambda: not scene.backlog(), what="an empty backlog")
        agents = {
            connection.client.get("user-agent", "")
            for connection in scene.secondary.connections()
            if connection.closed_at is None
        }
        assert any(agent.startswith("behind/proxy") for agent in agents)
    assert scene.ids() == names


async def let_all_run() -> None:
    """Until each waits for something of the test's."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lease_that_is_lost_before_the_pump_has_begun_lets_none_begin() -> None:
    """Whoever waits for it wakes a moment after it was had."""
    side = cast(SdkSide, None)
    hosted = HostedSyphon(
        side,
        side,
        name="shop",
        queues=["q"],
        options=SendAvailabilityOptions(),
        records=None,
        clock=SystemClock(),
    )
    lease = SimpleNamespace(why=None, may_work=True)
    waiting = asyncio.create_task(hosted._await_lease())
    await let_all_run()
    for lease.may_work in (True, False):
        hosted._note_lease(cast(PairLease, lease))
    await let_all_run()
    assert not waiting.done()
    assert hosted._halt.is_set(), "a pump that began now would end at once"
    lease.may_work = True
    hosted._note_lease(cast(PairLease, lease))
    await waiting
    assert not hosted._halt.is_set()
