"""A producer: an application of the drill, which sends to every entity of the scenario through one paired
client, at a given rate, with ids and bodies that the seed fixes.

The plan is fixed in advance: the n-th message of an entity is due at a certain time. A producer that was held
up catches up, so that a drill always sends the same messages.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.client.aio import PairedServiceBusClient
from pairbus.client.observers.observer import Observer, Undertaking
from pairbus.client.sender import PairedSender
from pairbus.errors import PairbusError
from pairbus.options import EntityState, StateChange

from .applications import Applications, Equipment
from .messages import SendOutcome, SentMessage, checksum
from .recorder import Recorder
from .scenario import EntityPlan

_undertaking: ContextVar[Undertaking | None] = ContextVar("undertaking", default=None)
_ERROR_LENGTH = 200


class _Listener(Observer):
    """Tells the recorder what a client goes through, and the producer which way a send took."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self._name = name
        self._recorder = recorder

    @contextmanager
    def around(self, undertaking: Undertaking) -> Iterator[None]:
        # The call runs in the task of its caller, who therefore sees this.
        _undertaking.set(undertaking)
        yield

    def state_changed(self, change: StateChange) -> None:
        self._recorder.note_state(self._name, change)

    def pinged(self, path: str, *, succeeded: bool, seconds: float) -> None:
        self._recorder.note_ping(path)


class Producers(Applications):
    """All applications of a scenario."""

    def __init__(self, given: Equipment) -> None:
        super().__init__(given)
        self._all = [Producer(given, index) for index in range(given.scenario.clients)]
        self._closed = False

    async def start(self) -> None:
        for one in self._all:
            await one.start()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for one in self._all:
                group.create_task(one.run())

    def spooled(self) -> int:
        return 0 if self._closed else sum(one.spooled() for one in self._all)

    def have_reached_primary(self) -> bool:
        """Whether each client has had a success; one without takes an outage for a mistyped host."""
        return all(one.client.status().had_success for one in self._all)

    def is_settled(self) -> bool:
        return self._closed or all(one.is_settled() for one in self._all)

    async def retire(self) -> None:
        """They go on pinging, so that their last states are told too."""

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.gather(*(one.close() for one in self._all))


class Producer:
    """One of the applications: number `index` of `scenario.clients`."""

    def __init__(self, given: Equipment, index: int) -> None:
        self.name = f"app-{index + 1}"
        self._scenario = given.scenario
        self._index = index
        self._recorder = given.recorder
        self.client = PairedServiceBusClient.from_connection_strings(
            given.primary,
            given.secondary,
            options=given.scenario.options,
            state_dir=given.state,
            observers=[_Listener(self.name, given.recorder)],
        )

    async def start(self) -> None:
        """Pair, and open the ways to all entities."""
        await self.client.start()
        for plan in self._scenario.entities:
            self._recorder.watch(self.name, plan.path)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for plan in self._scenario.entities:
                group.create_task(self._send_to(plan))

    async def close(self) -> None:
        await self.client.close()

    def spooled(self) -> int:
        """Messages that lie on this application's disk."""
        spool = self.client.status().spool
        return 0 if spool is None else spool.messages

    def is_settled(self) -> bool:
        """Whether all is as it was before the outage: every entity healthy, the spool empty."""
        status = self.client.status()
        is_healthy = all(one.health.state is EntityState.HEALTHY for one in status.entities)
        return is_healthy and (status.spool is None or status.spool.messages == 0)

    # -- sending

    async def _send_to(self, plan: EntityPlan) -> None:
        get = self.client.get_queue_sender if plan.kind == "queue" else self.client.get_topic_sender
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with get(plan.path) as sender:
            for due, numbers in self._calls(plan):
                await asyncio.sleep(max(0.0, began + due - loop.time()))
                await self._send(sender, plan, numbers)

    def _calls(self, plan: EntityPlan) -> Iterator[tuple[float, range]]:
        """The calls of this application: when each is due, and the numbers of its messages."""
        total = plan.messages(self._scenario.send_for)
        for number, first in enumerate(range(0, total, plan.batch)):
            if number % self._scenario.clients == self._index:
                yield first / plan.rate, range(first, min(first + plan.batch, total))

    async def _send(self, sender: PairedSender, plan: EntityPlan, numbers: Sequence[int]) -> None:
        seed = self._scenario.seed  # the same bodies for the same seed
        bodies = [Random(f"{seed}/{plan.path}-{number}").randbytes(plan.size) for number in numbers]
        session = self._session(plan, numbers[0])
        records = [
            SentMessage(
                message_id=f"{plan.path}-{number}",
                path=plan.path,
                client=self.name,
                position=number,
                session=session,
                checksum=checksum(body),
            )
            for number, body in zip(numbers, bodies, strict=True)
        ]
        messages = [
            ServiceBusMessage(body, message_id=record.message_id, session_id=session)
            for record, body in zip(records, bodies, strict=True)
        ]
        self._recorder.begin_sends(records)
        _undertaking.set(None)
        try:
            await sender.send_messages(messages if plan.batch > 1 else messages[0])
        except OperationTimeoutError as error:
            self._end(records, "unknown", error)
        except (ServiceBusError, PairbusError, ValueError) as error:
            self._end(records, "raised", error)
        except BaseException as error:
            self._end(records, "unknown", error)
            raise
        else:
            self._end(records, "returned", None)

    def _end(self, records: Sequence[SentMessage], outcome: SendOutcome, error: BaseException | None) -> None:
        taken = _undertaking.get()
        for record in records:
            record.outcome = outcome
            record.route = None if taken is None else taken.route
            record.error = "" if error is None else f"{type(error).__name__}: {error}"[:_ERROR_LENGTH]
        self._recorder.end_sends(records)

    def _session(self, plan: EntityPlan, number: int) -> str | None:
        """The sessions of this application in turn."""
        clients = self._scenario.clients
        mine = plan.session_names(clients)[self._index :: clients]
        return mine[number // plan.batch // clients % len(mine)] if mine else None
