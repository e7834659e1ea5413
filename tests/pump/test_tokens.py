"""Tokens: renewed while the pump runs, made by a credential of a name, and what happens without one."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jwt
import pytest
from azure.core.credentials import AccessToken

from pairbus.broker import Broker
from pairbus.broker.engine.tiers import RELAXED
from pairbus.pairing.names import parse_connection_string
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair, Side
from pairbus.pump.pump import Pump
from pairbus.pump.transport import BacklogSource
from pairbus.wire.errors import CONNECTION_LOST, TransportError
from pairbus.wire.sign_in import open_line
from pairbus.wire.tokens import CbsToken, SasTokens
from tests.waiting import PATIENCE, eventually

from .bench import Bench, SettableClock, envelope, opened

SECRET = "a secret that the issuer shares with the namespaces"


class Credential:
    """A credential as azure.identity.aio has them; made by its name, so that the class remembers."""

    made: ClassVar[list[Credential]] = []
    life: ClassVar[float] = 3600.0

    def __init__(self) -> None:
        self.asked = 0
        self.is_closed = False
        self.made.append(self)

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        assert [scope.startswith("https://servicebus.azure.net/") for scope in scopes] == [True]
        self.asked += 1
        expires = int(time.time() + self.life)
        claims = {"aud": "https://servicebus.azure.net", "exp": expires, "sub": "pump"}
        claims["roles"] = ["Azure Service Bus Data Owner"]
        return AccessToken(jwt.encode(claims, SECRET, algorithm="HS256"), expires)

    async def close(self) -> None:
        self.is_closed = True


class Moody:
    """Signs tokens of a short life, and has hours in which it does not."""

    def __init__(self, signer: SasTokens) -> None:
        self.signer = signer
        self.is_away = False
        self.given: list[float] = []
        self.refused = 0

    async def token(self, audience: str, now: float) -> CbsToken:
        if self.is_away:
            self.refused += 1
            raise RuntimeError("the token service is away")
        self.given.append(now)
        return await self.signer.token(audience, now)


def short_lived(bench: Bench, *, life: float) -> tuple[PumpPair, Moody, Moody]:
    sides, sources = [], []
    for namespace in (bench.primary, bench.secondary):
        parsed = parse_connection_string(namespace.connection_string)
        assert parsed.key is not None
        assert parsed.key_name is not None
        source = Moody(SasTokens(parsed.key_name, parsed.key, lifetime=life))
        sides.append(Side(connection_string=namespace.connection_string, token_source=source))
        sources.append(source)
    return PumpPair(primary=sides[0], secondary=sides[1]), sources[0], sources[1]


async def feed(bench: Bench, queue: str, is_enough: Callable[[list[str]], bool]) -> list[str]:
    """Put messages into a backlog queue until there are enough; their ids."""
    names: list[str] = []
    while not is_enough(names):
        names.append(f"{len(names):04}")
        bench.load(queue, [envelope("orders", names[-1])])
        await asyncio.sleep(0.02)
    return names


async def arrived(bench: Bench, names: list[str]) -> None:
    async with asyncio.timeout(40):
        await eventually(lambda: set(names) <= set(bench.ids("orders")))


async def test_a_token_that_ends_by_another_clock_is_put_anew() -> None:
    """A lock outlives the link and the token: what was moved can be completed when the clocks agree again."""
    clock = SettableClock()
    with opened(clock=clock) as bench:
        (queue,) = bench.create("orders")
        bench.load(queue, [envelope("orders", "1")])
        side = bench.pair().secondary.resolve()
        transport = AmqpTransport(side.place(), side.tokens())
        try:
            source = transport.source(queue)
            (delivery,) = await source.receive(1, 20.0)
            clock.ahead = 3600.0
            await eventually_denied(source)
            clock.ahead = 0.0
            await eventually_peeked(source)
            assert await source.complete([delivery]) == [None]
        finally:
            await transport.close()


async def eventually_denied(source: BacklogSource) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await source.peek(0, 1)
            except TransportError:
                return
            await asyncio.sleep(0.05)


async def eventually_peeked(source: BacklogSource) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await source.peek(0, 1)
                return
            except TransportError:
                await asyncio.sleep(0.05)


async def test_tokens_are_renewed_before_they_end(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    # Renewed when a quarter is left, which has to be longer than a machine stands still.
    life = 12.0
    pair, primary, secondary = short_lived(bench, life=life)
    pump = Pump(pair, [queue], options=PumpOptions(poll=30.0), receipts=bench.receipts)
    running = asyncio.create_task(pump.run())

    def outlived_their_first() -> bool:
        return all(one.given and time.time() > one.given[0] + life for one in (primary, secondary))

    async with asyncio.timeout(PATIENCE):
        names = await feed(bench, queue, lambda _: outlived_their_first())
    await arrived(bench, names)
    pump.stop()
    summary = await running
    assert min(len(primary.given), len(secondary.given)) >= 2
    # Nobody noticed: no link was lost, nothing was sent twice.
    assert (summary.moved, summary.unknown, summary.queue_errors) == (len(names), 0, {})
    assert bench.ids("orders") == names
    assert summary.paths["orders"].trouble is None


async def test_a_token_that_cannot_be_renewed_is_an_outage_and_no_reason_to_bury(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    pair, primary, _ = short_lived(bench, life=2.0)
    options = PumpOptions(poll=30.0, first_back_off=0.1, longest_back_off=0.2)
    pump = Pump(pair, [queue], options=options, receipts=bench.receipts)
    running = asyncio.create_task(pump.run())
    first = await feed(bench, queue, lambda names: len(names) == 10)
    await arrived(bench, first)
    primary.is_away = True
    bench.load(queue, [envelope("orders", "soon")])
    async with asyncio.timeout(40):
        while not bench.ids(queue, on=bench.secondary) or primary.refused < 3:
            bench.load(queue, [envelope("orders", f"later-{time.monotonic()}")])
            await asyncio.sleep(0.1)
    late = bench.ids(queue, on=bench.secondary)
    primary.is_away = False
    await arrived(bench, [*first, "soon", *late])
    pump.stop()
    summary = await running
    assert summary.dead_lettered == 0
    assert bench.dead_letters(queue) == {}


@pytest.mark.parametrize("transport", ["amqp", "sdk"])
async def test_a_credential_is_made_of_its_name_and_closed_at_the_end(tmp_path: Path, transport: Any) -> None:
    key = tmp_path / "jwt.key"
    key.write_text(SECRET)
    Credential.made.clear()
    with Broker({"contoso": 0, "contoso-dr": 0}, limits=RELAXED, jwt_key=key) as broker:
        bench = Bench(broker)
        (queue,) = bench.create("orders")
        bench.load(queue, [envelope("orders", f"{number:02}") for number in range(20)])
        # What travels to an executor is the name alone.
        ca_file = str(broker.certificate)
        sides = [
            Side(host=f"localhost:{one.port}", credential=f"{__name__}:Credential", ca_file=ca_file)
            for one in (bench.primary, bench.secondary)
        ]
        pair = pickle.loads(pickle.dumps(PumpPair(primary=sides[0], secondary=sides[1], name="contoso")))
        assert Credential.made == []
        options = PumpOptions(drain=True, drain_wait=0.2, transport=transport)
        summary = await Pump(pair, [queue], options=options).run()
        assert summary.moved == 20
        assert bench.ids("orders") == [f"{number:02}" for number in range(20)]
    assert len(Credential.made) == 2
    assert all(one.asked and one.is_closed for one in Credential.made)


class Signer:
    """Signs for all, and for the whole namespace with a policy of its own, or not at all."""

    def __init__(self, bench: Bench, *, widely: str | None = "root") -> None:
        self.asked: list[str] = []
        self._signers = {}
        for name in ("root", widely):
            parsed = parse_connection_string(bench.secondary.policies[name or "root"])
            assert parsed.key is not None
            assert parsed.key_name is not None
            key = parsed.key if name is not None else "a key of an entity"
            self._signers[name] = SasTokens(parsed.key_name, key)
        self._widely = widely

    async def token(self, audience: str, now: float) -> CbsToken:
        path = audience.partition("://")[2].partition("/")[2]
        self.asked.append(path)
        return await self._signers["root" if path else self._widely].token(audience, now)


async def drain_signed(bench: Bench, signer: Signer) -> list[str]:
    """Drain some queues; those that a token was asked for."""
    queues = bench.create("orders", count=5)
    for queue in queues:
        bench.load(queue, [envelope("orders", f"{queue}-{number}", session="s") for number in range(3)])
    primary, secondary = bench.primary.connection_string, bench.secondary.connection_string
    pair = PumpPair(
        primary=Side(connection_string=primary),
        secondary=Side(connection_string=secondary, token_source=signer),
    )
    summary = await Pump(pair, queues, options=PumpOptions(drain=True, drain_wait=0.2)).run()
    assert (summary.moved, summary.queue_errors, summary.retries) == (15, {}, 0)
    return queues


async def test_one_token_is_enough_for_all_queues_of_a_namespace(bench: Bench) -> None:
    signer = Signer(bench)
    await drain_signed(bench, signer)
    assert signer.asked == [""]


@pytest.mark.parametrize("widely", [None, "send"])
async def test_where_a_wide_token_does_not_help_each_queue_gets_its_own(
    bench: Bench, widely: str | None
) -> None:
    """It is refused as such, or it is taken and the links are not."""
    signer = Signer(bench, widely=widely)
    queues = await drain_signed(bench, signer)
    assert signer.asked[0] == ""
    assert sorted(signer.asked[1:]) == queues


async def test_who_waits_for_a_token_on_a_line_that_ends_is_told_so(bench: Bench) -> None:
    """And is not cancelled: nobody would take up again what a cancelled step held."""
    asked = asyncio.Event()

    class Slow:
        async def token(self, audience: str, now: float) -> CbsToken:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("it is called off")

    place = bench.pair().primary.resolve().place()
    line = await open_line(place, Slow(), timeout=PATIENCE, container_id="test")
    waiting = asyncio.create_task(line.authorize("orders"))
    await asyncio.wait_for(asked.wait(), PATIENCE)
    line.cut(CONNECTION_LOST, "pulled out")
    with pytest.raises(TransportError, match="pulled out"):
        await asyncio.wait_for(waiting, PATIENCE)
    await line.close()
