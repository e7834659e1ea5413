"""The backlog queues of a pair: looked for, created where missing, used as they are where they exist.

1. Nothing that exists is changed or deleted. A queue with other settings is used as it is, and what differs
   is reported; so are queues with an index beyond the count.
2. This needs the Manage claim. Without it the report says so, and senders work all the same if the queues
   are there: they need the Send claim only.
3. A secondary that does not answer is no error of this client: the report says so, and `keep_trying` asks
   again after pauses that grow.
4. Each request is told to `on_request`, for the ledger, since the service bills it. A list concerns the
   namespace itself, and is one request for each page.
5. The service may not take the highest delivery count there is. Then the highest one that it takes is looked
   for, once, on the first queue that is created, and used for all.
6. With them goes a queue with sessions, by which syphons see to it that one of them works at a time. Where it
   cannot be had, that is told, and all else works.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueProperties

from pairbus.pairing.names import backlog_queue_names, lease_queue_name
from pairbus.sdk.administration import (
    REQUEST_LIMIT,
    TROUBLES,
    OpenAdministration,
    Trouble,
    ask,
    describe_trouble,
    judge_trouble,
    with_advice,
)
from pairbus.timers import LoopTimers, Timers, sleep_by

from .requests import OnRequest, list_extra, telling

ProvisioningState = Literal["pending", "ready", "unreachable", "not_permitted"]
T = TypeVar("T")

log = logging.getLogger(__name__)

_INT32_MAX = 2**31 - 1
#: What Azure's portal takes at most, and so the best guess for a service that refuses more.
_LIKELY_DELIVERY_COUNT = 2000
# The service's way to say for ever, TimeSpan.MaxValue; what comes back has lost some digits.
_FOR_EVER = "P10675199DT2H48M5.4775807S"
_ALMOST_FOR_EVER = timedelta(days=10_000_000)
# Requests at a time: quick for ten queues, and far below what a namespace lets an application ask.
_AT_A_TIME = 4
_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 300.0

# What a backlog queue is created with. `None` stands for ever.
WANTED: dict[str, Any] = {
    "max_size_in_megabytes": 5120,
    "max_delivery_count": _INT32_MAX,
    "default_message_time_to_live": None,
    "auto_delete_on_idle": None,
    "lock_duration": timedelta(minutes=1),
    "dead_lettering_on_message_expiration": True,
    "enable_batched_operations": True,
}
# Rule 6. What holders say of themselves is taken away by the next one, whatever became of it.
_LEASE: dict[str, Any] = {
    "requires_session": True,
    "lock_duration": WANTED["lock_duration"],
    "default_message_time_to_live": _FOR_EVER,
    "auto_delete_on_idle": _FOR_EVER,
}
# What is left at the service's default, and would change what a backlog queue does.
_DEFAULTS: dict[str, Any] = {
    "requires_session": False,
    "requires_duplicate_detection": False,
    "status": "Active",
    "forward_to": None,
    "forward_dead_lettered_messages_to": None,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting of an existing queue that is not what a backlog queue is created with."""

    setting: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.setting} is {self.found}, not {self.wanted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogQueueReport:
    """What became of one backlog queue."""

    name: str
    existed: bool = False
    created: bool = False
    differences: tuple[Difference, ...] = ()
    error: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether the queue can be used."""
        return self.existed or self.created


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningReport:
    """What became of the backlog queues of a pair.

    `state`: *ready*, all are there; *pending*, some are not, and each says why; *unreachable*, the
    secondary did not answer; *not_permitted*, the credential lacks the Manage claim, so nobody knows.
    """

    state: ProvisioningState
    queues: tuple[BacklogQueueReport, ...] = ()
    extra: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def created(self) -> tuple[str, ...]:
        """The names of the queues that were created."""
        return tuple(queue.name for queue in self.queues if queue.created)


class Provisioner:
    """Sees to the backlog queues of one pair."""

    def __init__(
        self,
        open_administration: OpenAdministration,
        primary: str,
        *,
        count: int,
        create: bool = True,
        request_limit: float = REQUEST_LIMIT,
        timers: Timers | None = None,
        random: Callable[[], float] = randomness.random,
        on_request: OnRequest | None = None,
    ) -> None:
        """`primary` begins the queues' names. Without `create` it only looks."""
        self._open_administration = open_administration
        self._names = backlog_queue_names(primary, count)
        self._primary = primary
        self._count = count
        self._create_missing = create
        self._limit = request_limit
        self._timers = timers
        self._random = random
        self._on_request = on_request
        self._searching = asyncio.Lock()
        #: The queues that it has asked the secondary to create, whatever the answer was.
        self.attempted: set[str] = set()
        self._delivery_count: int | None = None

    async def run(self) -> ProvisioningReport:
        """Check and create the queues once. Failures of the service or the connection are in the report."""
        async with self._open_administration() as admin:
            first = await self._attend(admin, self._names[0])
            if isinstance(first, _Stop):
                return first.report(self._names)
            gate = asyncio.Semaphore(_AT_A_TIME)
            rest = await asyncio.gather(*(self._attend(admin, name, gate) for name in self._names[1:]))
            queues: list[BacklogQueueReport] = [first]
            for outcome in rest:
                if isinstance(outcome, _Stop):
                    return outcome.report(self._names)
                queues.append(outcome)
            extra, warnings = await self._look_for_extra(admin)
            return self._sum_up(queues, extra, warnings + await self._see_to_lease(admin))

    async def keep_trying(self, on_report: Callable[[ProvisioningReport], object]) -> ProvisioningReport:
        """Run until the queues are there, or it is clear that this credential may not see to them.

        Each report is handed to `on_report`.
        """
        timers = self._timers or LoopTimers(asyncio.get_running_loop())
        pause = _FIRST_PAUSE
        while True:
            report = await self.run()
            on_report(report)
            if report.state in ("ready", "not_permitted"):
                return report
            # Early by up to a half, so that a fleet that started together does not ask together.
            await sleep_by(timers, pause * (1.0 - 0.5 * self._random()))
            pause = min(pause * 2.0, _LONGEST_PAUSE)

    async def _ask(self, entity: str, request: Awaitable[T]) -> T:
        with telling(self._on_request, entity):
            return await ask(request, limit=self._limit)

    # -- one queue

    async def _attend(
        self, admin: ServiceBusAdministrationClient, name: str, gate: asyncio.Semaphore | None = None
    ) -> BacklogQueueReport | _Stop:
        async with gate or asyncio.Semaphore():
            try:
                return await self._look_or_create(admin, name)
            except AttributeError:
                # How the SDK answers who asks for a queue and gets the description of a topic.
                return BacklogQueueReport(name=name, error="a topic has this name")
            except TROUBLES as error:
                trouble = judge_trouble(error)
                if trouble is Trouble.REFUSED:
                    return BacklogQueueReport(name=name, error=describe_trouble(error))
                return _Stop(trouble, describe_trouble(error))

    async def _look_or_create(self, admin: ServiceBusAdministrationClient, name: str) -> BacklogQueueReport:
        found = await self._look(admin, name)
        if found is None and self._create_missing:
            try:
                created = await self._create(admin, name)
                return BacklogQueueReport(name=name, created=True, differences=self._compare(created))
            except ResourceExistsError as error:
                # Somebody else was quicker.
                found = await self._look(admin, name)
                if found is None:
                    return BacklogQueueReport(name=name, error=describe_trouble(error))
        if found is None:
            return BacklogQueueReport(name=name, error="it does not exist")
        return BacklogQueueReport(name=name, existed=True, differences=self._compare(found))

    async def _see_to_lease(self, admin: ServiceBusAdministrationClient) -> list[str]:
        """Rule 6: what is wrong with the queue of the lease, in words."""
        name = lease_queue_name(self._primary)
        try:
            found = await self._look(admin, name)
            if found is None and self._create_missing:
                with suppress(ResourceExistsError):  # somebody else was quicker
                    await self._ask(name, admin.create_queue(name, **_LEASE))
                return []
        except (*TROUBLES, AttributeError) as error:
            return [f"the queue of the syphon's lease, {name}, cannot be made: {describe_trouble(error)}"]
        if found is None:
            return [f"there is no queue {name}: two syphons may work on this pair at a time"]
        if not found.requires_session:
            return [f"{name} has no sessions: two syphons may work on this pair at a time; delete it"]
        return []

    async def _look(self, admin: ServiceBusAdministrationClient, name: str) -> QueueProperties | None:
        try:
            return await self._ask(name, admin.get_queue(name))
        except ResourceNotFoundError:
            return None

    async def _create(self, admin: ServiceBusAdministrationClient, name: str) -> QueueProperties:
        async with self._searching:  # one creates and learns what the service takes, the others wait for that
            if self._delivery_count is None:
                return await self._create_first(admin, name)
        return await self._create_with(admin, name, self._delivery_count)

    async def _create_first(self, admin: ServiceBusAdministrationClient, name: str) -> QueueProperties:
        try:
            created = await self._create_with(admin, name, _INT32_MAX)
            self._delivery_count = _INT32_MAX
        except HttpResponseError as error:
            if error.status_code != 400:
                raise
            # Which setting was refused is not said. If it is another one, this is refused as well.
            created = await self._create_with(admin, name, None)
            self._delivery_count = await self._raise_delivery_count(admin, created)
        return created

    async def _create_with(
        self, admin: ServiceBusAdministrationClient, name: str, delivery_count: int | None
    ) -> QueueProperties:
        self.attempted.add(name)
        settings: dict[str, Any] = {**WANTED, "max_delivery_count": delivery_count}
        for setting in ("default_message_time_to_live", "auto_delete_on_idle"):
            settings[setting] = _FOR_EVER
        return await self._ask(name, admin.create_queue(name, **settings))

    async def _raise_delivery_count(
        self, admin: ServiceBusAdministrationClient, queue: QueueProperties
    ) -> int:
        """Find the highest delivery count that the service takes, and leave the queue with it."""
        taken, refused = queue.max_delivery_count or 1, _INT32_MAX
        guesses = [_LIKELY_DELIVERY_COUNT + 1, _LIKELY_DELIVERY_COUNT]
        while refused - taken > 1:
            guess = guesses.pop() if guesses else (taken + refused) // 2
            if not taken < guess < refused:
                continue
            if await self._takes(admin, queue, guess):
                taken = guess
            else:
                refused = guess
        queue.max_delivery_count = taken
        return taken

    async def _takes(
        self, admin: ServiceBusAdministrationClient, queue: QueueProperties, delivery_count: int
    ) -> bool:
        queue.max_delivery_count = delivery_count
        try:
            await self._ask(queue.name, admin.update_queue(queue))
        except HttpResponseError as error:
            if error.status_code != 400:
                raise
            return False
        return True

    @staticmethod
    def _compare(found: QueueProperties) -> tuple[Difference, ...]:
        return tuple(
            Difference(setting, _in_words(wanted), _in_words(value))
            for setting, wanted in {**WANTED, **_DEFAULTS}.items()
            if (value := _normal(getattr(found, setting))) != wanted
        )

    # -- all of them

    async def _look_for_extra(self, admin: ServiceBusAdministrationClient) -> tuple[list[str], list[str]]:
        """Queues beyond the count: lists the namespace, one request for each hundred of its queues."""
        try:
            async with asyncio.timeout(self._limit * 4):
                return await list_extra(admin, self._primary, self._count, self._on_request), []
        except TROUBLES as error:
            return [], [f"extra backlog queues could not be looked for: {describe_trouble(error)}"]

    def _sum_up(
        self, queues: Sequence[BacklogQueueReport], extra: list[str], warnings: list[str]
    ) -> ProvisioningReport:
        count = self._delivery_count
        if count is not None and count != _INT32_MAX and any(queue.created for queue in queues):
            warnings.append(
                f"the service takes a delivery count of {count} at most, so the queues have that one instead "
                f"of {_INT32_MAX}"
            )
        if extra:
            warnings.append(
                f"{len(extra)} backlog queues have an index beyond the count and are left alone: "
                f"{', '.join(extra)}"
            )
        return ProvisioningReport(
            state="ready" if all(queue.is_there for queue in queues) else "pending",
            queues=tuple(queues),
            extra=tuple(extra),
            warnings=tuple(warnings),
        )


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why nothing can be said of any queue."""

    trouble: Trouble
    text: str

    def report(self, names: Sequence[str]) -> ProvisioningReport:
        not_permitted = self.trouble is Trouble.NOT_PERMITTED
        return ProvisioningReport(
            state="not_permitted" if not_permitted else "unreachable",
            queues=tuple(BacklogQueueReport(name=name, error=self.text) for name in names),
            warnings=(
                f"the secondary refuses the credential ({self.text.rstrip('.')}): is its key right, and has "
                "it the Manage claim? Senders need the Send claim alone if the queues exist"
                if not_permitted
                else f"the secondary cannot be reached: {with_advice(self.text)}",
            ),
        )


def _normal(value: Any) -> Any:
    """A setting as WANTED has it: an unlimited duration and an empty text are None."""
    if isinstance(value, timedelta) and value >= _ALMOST_FOR_EVER:
        return None
    return None if value == "" else value


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    return str(value).lower() if isinstance(value, bool) else str(value)
