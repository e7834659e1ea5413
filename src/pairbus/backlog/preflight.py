"""The pre-flight check of a pair: what would go wrong in an outage, found before it.

1. Each question is asked of the service itself: may this credential send, is the queue there, how large may a
   message be. Opening a send link answers all three, without a message and without a charge.
2. What can only be asked with the Manage claim is left out without it, and a note says so.
3. A side that cannot be reached does not stop the check of the other.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueProperties, TopicProperties

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.failures import FailureKind, classify
from pairbus.pairing.names import parse_backlog_queue_name
from pairbus.sdk.administration import REQUEST_LIMIT, TROUBLES, Trouble, ask, describe_trouble, judge_trouble
from pairbus.sdk.failures import describe
from pairbus.sdk.graveyard import Graveyard
from pairbus.sdk.side import SdkSide, SideName

from .findings import (
    Capacity,
    Finding,
    Plan,
    judge_capacity,
    judge_contents,
    judge_duplicates,
    judge_headroom,
    judge_names,
    judge_options,
    judge_queues,
    measure_capacity,
)
from .provisioner import Provisioner

EntityProperties = dict[str, QueueProperties | TopicProperties | None]

# Links at a time: quick for a hundred entities, and no storm.
_AT_A_TIME = 4
# A namespace may have thousands of entities; whoever wants others looked at names them.
_MOST_ENTITIES = 100
_MEGABYTE = 1024 * 1024
_CLOSE_WAIT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """What the check found."""

    primary_name: str
    unreachable: tuple[str, ...]
    findings: tuple[Finding, ...]
    capacity: Capacity | None

    @property
    def has_findings(self) -> bool:
        """Whether anything was found that someone should do something about."""
        return any(finding.severity != "note" for finding in self.findings)


class Preflight:
    """Checks one pair, once, for one planned outage."""

    def __init__(
        self,
        primary: SdkSide,
        secondary: SdkSide,
        *,
        name: str,
        options: SendAvailabilityOptions,
        plan: Plan,
        entities: Sequence[str] = (),
        limit: float = REQUEST_LIMIT,
    ) -> None:
        """Without `entities` all that may be listed are looked at. `limit` is for a request, or a link."""
        self._sides: dict[SideName, SdkSide] = {"primary": primary, "secondary": secondary}
        self._name = name
        self._options = options
        self._plan = plan
        self._entities = list(entities)
        self._limit = limit
        self._gate = asyncio.Semaphore(_AT_A_TIME)
        self._graveyard = Graveyard()
        self._findings: list[Finding] = []
        self._unreachable: set[str] = set()

    async def run(self) -> PreflightReport:
        endpoint = self._sides["primary"].endpoint
        count = self._options.backlog_queue_count
        self._note(judge_names(self._name, endpoint, count=count, entities=self._entities))
        self._note(judge_options(self._options))
        try:
            capacity, backlog_limit = await self._check_secondary()
            await self._check_primary(backlog_limit)
        finally:
            await self._graveyard.wait(_CLOSE_WAIT)
            for side in self._sides.values():
                await side.close(_CLOSE_WAIT)
        return PreflightReport(
            primary_name=self._name,
            unreachable=tuple(sorted(self._unreachable)),
            findings=tuple(self._findings),
            capacity=capacity,
        )

    def _note(self, findings: Iterable[Finding]) -> None:
        self._findings.extend(findings)

    # -- the secondary

    async def _check_secondary(self) -> tuple[Capacity | None, int | None]:
        report = await Provisioner(
            self._sides["secondary"].open_administration,
            self._name,
            count=self._options.backlog_queue_count,
            create=False,
            request_limit=self._limit,
        ).run()
        if report.state == "unreachable":
            self._mark_unreachable("secondary", str(report.queues[0].error))
            return None, None
        self._note(judge_queues(report))
        blind = report.state == "not_permitted"
        names = [queue.name for queue in report.queues if queue.existed or blind]
        limits = await asyncio.gather(*(self._try_link("secondary", name) for name in names))
        capacity = await self._measure(names) if names and not blind else None
        return capacity, min((limit for limit in limits if limit is not None), default=None)

    async def _measure(self, names: Sequence[str]) -> Capacity:
        free = waiting = dead = 0
        async with self._sides["secondary"].open_administration() as admin:
            for name in names:
                try:
                    settings = await ask(admin.get_queue(name), limit=self._limit)
                    runtime = await ask(admin.get_queue_runtime_properties(name), limit=self._limit)
                except TROUBLES as error:
                    self._note([Finding("warning", "capacity", name, describe_trouble(error))])
                    continue
                size = (settings.max_size_in_megabytes or 0) * _MEGABYTE
                free += max(size - (runtime.size_in_bytes or 0), 0)
                waiting += runtime.active_message_count or 0
                dead += runtime.dead_letter_message_count or 0
        self._note(judge_contents(waiting, dead))
        capacity = measure_capacity(free, self._plan)
        self._note([judge_capacity(capacity, self._plan)])
        return capacity

    # -- the primary

    async def _check_primary(self, backlog_limit: int | None) -> None:
        entities = await self._describe_entities()
        limits = await asyncio.gather(*(self._try_link("primary", path) for path in entities))
        for (path, settings), limit in zip(entities.items(), limits, strict=True):
            if settings is not None:
                self._note(judge_duplicates(path, _duplicate_window(settings), outage=self._plan.outage))
            if limit is not None and backlog_limit is not None:
                largest = _largest(settings, limit)
                compressing = self._options.compress_oversized
                self._note(
                    judge_headroom(path, largest, backlog_limit=backlog_limit, compressing=compressing)
                )

    async def _describe_entities(self) -> EntityProperties:
        """The entities to look at, with their settings where those may be known."""
        async with self._sides["primary"].open_administration() as admin:
            try:
                if self._entities:
                    return {path: await self._describe(admin, path) for path in self._entities}
                return await self._list(admin)
            except TROUBLES as error:
                if judge_trouble(error) is Trouble.UNREACHABLE:
                    self._mark_unreachable("primary", describe_trouble(error))
                    return {}
        self._note([_without_manage(self._entities)])
        return dict.fromkeys(self._entities)

    async def _list(self, admin: ServiceBusAdministrationClient) -> EntityProperties:
        found: EntityProperties = {}
        async with asyncio.timeout(self._limit * 4):
            async for queue in admin.list_queues():
                if parse_backlog_queue_name(queue.name) is None:  # of pairs that this one is the secondary of
                    found[queue.name] = queue
            async for topic in admin.list_topics():
                found[topic.name] = topic
        if len(found) > _MOST_ENTITIES:
            text = f"{len(found)} entities, of which the first {_MOST_ENTITIES} are looked at; name others"
            self._note([Finding("note", "names", "primary", text)])
        return dict(sorted(found.items())[:_MOST_ENTITIES])

    async def _describe(
        self, admin: ServiceBusAdministrationClient, path: str
    ) -> QueueProperties | TopicProperties | None:
        try:
            return await ask(admin.get_queue(path), limit=self._limit)
        except ResourceNotFoundError:
            return None  # opening a link will tell
        except AttributeError:
            # How the SDK answers who asks for a queue and gets the description of a topic.
            return await ask(admin.get_topic(path), limit=self._limit)

    # -- links

    async def _try_link(self, name: SideName, path: str) -> int | None:
        """Open a send link and tell the size that it takes at most; what goes wrong becomes a finding."""
        async with self._gate:
            if name in self._unreachable:  # it is not asked for each of its entities
                return None
            sender = self._sides[name].open_sender(path)
            try:
                async with asyncio.timeout(self._limit):
                    batch = await sender.create_message_batch()
                return int(batch.max_size_in_bytes)
            except Exception as error:
                if not self._judge_link(name, path, error):
                    raise
                return None
            finally:
                self._graveyard.bury(sender)

    def _judge_link(self, name: SideName, path: str, error: Exception) -> bool:
        """Note what an error tells of the service; False for one that is ours."""
        failure = describe(error)
        match classify(failure):
            case FailureKind.CALLER:
                return False
            case FailureKind.CONNECTION | FailureKind.TIMEOUT | FailureKind.CERTIFICATE:
                self._mark_unreachable(name, failure.summary)
            case FailureKind.UNAUTHORIZED:
                text = f"the credential of the {name} may not send here; it needs the Send claim"
                if "ServiceBusAuthenticationError" in failure.classes:
                    text = f"the {name} refuses the credential: is its key right?"
                self._note([Finding("error", "claims", path, text)])
            case FailureKind.MISSING:
                self._note([Finding("error", "names", path, f"the {name} has no such entity")])
            case _:
                self._note([Finding("error", "reach", path, failure.summary)])
        return True

    def _mark_unreachable(self, name: SideName, text: str) -> None:
        if name not in self._unreachable:
            self._unreachable.add(name)
            self._note([Finding("error", "reach", name, f"cannot be reached: {text}")])


def _without_manage(entities: Sequence[str]) -> Finding:
    """A sender needs no Manage claim; but a check that looked at nothing must not say that all is well."""
    text = "no Manage claim, which a sender does not need; duplicate detection could not be looked at"
    if entities:
        return Finding("note", "claims", "primary", text)
    text += ", nor any entity, nor whether this credential may send: name entities with --entity"
    return Finding("warning", "claims", "primary", text)


def _duplicate_window(settings: QueueProperties | TopicProperties) -> float | None:
    window = settings.duplicate_detection_history_time_window
    if not settings.requires_duplicate_detection or not isinstance(window, timedelta):
        return None
    return window.total_seconds()


def _largest(settings: QueueProperties | TopicProperties | None, limit: int) -> int:
    """The largest message: a link may tell the smaller limit of a batch."""
    kilobytes = None if settings is None else settings.max_message_size_in_kilobytes
    return max(limit, kilobytes * 1024) if kilobytes else limit
