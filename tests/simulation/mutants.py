"""Mistakes that somebody could make, by name. The simulation must find each of them within a bounded search.

A mutant replaces functions of the real code for as long as it lives. A checker that no mutant passes by is
worth something; one that has never been shown a mistake is not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from pairbus import conditions
from pairbus.client.errors import SpoolError
from pairbus.client.hosted.backlog_view import BacklogView
from pairbus.client.observers.ledger import ClientLedger
from pairbus.client.sending import wrapping as wrapping_module
from pairbus.client.sending.backlog_route import BacklogRoute
from pairbus.client.sending.calls import EntityCall
from pairbus.client.sending.link import Ending, SendLink
from pairbus.client.sending.message import raw_of, wrapped_copy
from pairbus.client.sending.pinger import Pinger
from pairbus.client.sending.router import Router
from pairbus.client.sending.sessions import SessionPicture, StayingSessions
from pairbus.client.sending.spool import Spool
from pairbus.client.sending.spool_lane import SpoolLane
from pairbus.client.state import spool_store
from pairbus.client.state.spool_records import SpoolCursor
from pairbus.pairing.errors import BacklogUnavailableError
from pairbus.plumbing.files import publish
from pairbus.pump import intake as intake_module
from pairbus.pump import judgement as judgement_module
from pairbus.pump import lanes as lanes_module
from pairbus.pump.burials import Burials
from pairbus.pump.destinations import Destinations
from pairbus.pump.intake import Intake, Stray
from pairbus.pump.judgement import Remedy
from pairbus.pump.lanes import Lanes
from pairbus.pump.parcel import Parcel
from pairbus.pump.queue import QueuePump
from pairbus.pump.station import Station
from pairbus.pump.unwrapping import OpenedEnvelope, open_envelope
from pairbus.wire.errors import CONNECTION_LOST, UNANSWERED, TransportError

from .search import Finding, find

__all__ = ["MUTANTS", "Mutant", "catch"]

Patches = Callable[[], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake, and where it is made."""

    name: str
    world: str
    patches: Patches

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Make the mistake."""
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


MUTANTS: dict[str, Mutant] = {}


def mutant(name: str, *, world: str = "pump") -> Callable[[Patches], Patches]:
    """Put a mistake into the list."""

    def add(patches: Patches) -> Patches:
        MUTANTS[name] = Mutant(name, world, patches)
        return patches

    return add


def catch(name: str, *, first: int = 0, histories: int = 300) -> Finding | None:
    """The first history that shows a mutant."""
    chosen = MUTANTS[name]
    with chosen.alive():
        return next(find(chosen.world, range(first, first + histories)), None)


# -- the order of safety


@mutant("complete before send")
def _complete_before_send() -> Iterator[Any]:
    original = QueuePump._send

    async def send_units(self: QueuePump, path: str, units: list[list[Parcel]]) -> None:
        await self._source.complete([parcel.delivery for unit in units for parcel in unit])
        await original(self, path, units)

    yield mock.patch.object(QueuePump, "_send", send_units)


@mutant("complete before the receipt")
def _complete_before_the_receipt() -> Iterator[Any]:
    original = QueuePump._complete

    async def complete(self: QueuePump, path: str, moved: list[Parcel], now: float) -> None:
        await self._source.complete([parcel.delivery for parcel in moved])
        await original(self, path, moved, now)

    yield mock.patch.object(QueuePump, "_complete", complete)


@mutant("complete though the receipt failed")
def _complete_though_the_receipt_failed() -> Iterator[Any]:
    original = QueuePump._complete

    async def complete(self: QueuePump, path: str, moved: list[Parcel], now: float) -> None:
        try:
            await original(self, path, moved, now)
        except OSError:
            await self._source.complete([parcel.delivery for parcel in moved])
            raise

    yield mock.patch.object(QueuePump, "_complete", complete)


@mutant("bury without a receipt")
def _bury_without_a_receipt() -> Iterator[Any]:
    async def bury(self: Burials, parcels: list[Parcel], why: Any) -> list[Any]:
        return [await self._bury_one(parcel.delivery, why.reason, "") for parcel in parcels]

    yield mock.patch.object(Burials, "bury", bury)


@mutant("take silence for a yes")
def _take_silence_for_a_yes() -> Iterator[Any]:
    original = QueuePump._refused

    def refused(self: QueuePump, path: str, unit: list[Parcel], error: TransportError, now: float) -> None:
        if error.condition not in (UNANSWERED, CONNECTION_LOST):
            return original(self, path, unit, error, now)
        self.lanes.moved(unit)
        self._finishing += len(unit)
        return self._start(self._complete(path, unit, now))

    yield mock.patch.object(QueuePump, "_refused", refused)


@mutant("settle what was refused")
def _settle_what_was_refused() -> Iterator[Any]:
    def refused(self: QueuePump, path: str, unit: list[Parcel], error: TransportError, now: float) -> None:
        self.lanes.moved(unit)
        self._finishing += len(unit)
        self._start(self._complete(path, unit, now))

    yield mock.patch.object(QueuePump, "_refused", refused)


# -- messages


def _opening(change: Callable[[OpenedEnvelope], OpenedEnvelope]) -> Any:
    original = open_envelope
    return mock.patch.object(
        intake_module, "open_envelope", lambda *given, **named: change(original(*given, **named))
    )


@mutant("forget the message id")
def _forget_the_message_id() -> Iterator[Any]:
    def forget(opened: OpenedEnvelope) -> OpenedEnvelope:
        name = opened.message_id.encode()
        return replace(opened, payload=opened.payload.replace(name, b"x" * len(name), 1))

    yield _opening(forget)


@mutant("alter a byte")
def _alter_a_byte() -> Iterator[Any]:
    yield _opening(lambda opened: replace(opened, payload=opened.payload[:-1] + b"?"))


@mutant("mistake one path for another")
def _mistake_one_path_for_another() -> Iterator[Any]:
    original = Station.destination

    def destination(self: Station, path: str) -> Any:
        return original(self, "orders" if path == "bills" else path)

    yield mock.patch.object(Station, "destination", destination)


@mutant("drop what is malformed")
def _drop_what_is_malformed() -> Iterator[Any]:
    async def bury_stray(self: Burials, stray: Stray) -> Any:
        return (await self._source.complete([stray.delivery]))[0]

    yield mock.patch.object(Burials, "bury_stray", bury_stray)


# -- order


@mutant("send behind a failed head")
def _send_behind_a_failed_head() -> Iterator[Any]:
    yield mock.patch.object(lanes_module._Lane, "first_obstacle", return_value=float("inf"))


@mutant("do not look through the queue")
def _do_not_look_through_the_queue() -> Iterator[Any]:
    async def look_through(self: Intake, source: Any, gap: Any) -> None:
        """Nothing was ever put aside."""

    yield mock.patch.object(Intake, "look_through", look_through)


@mutant("take no heed of gaps")
def _take_no_heed_of_gaps() -> Iterator[Any]:
    yield mock.patch.object(Intake, "find_gap", return_value=None)


@mutant("look at the last gap alone")
def _look_at_the_last_gap_alone() -> Iterator[Any]:
    original = Intake.find_gap

    def find_gap(self: Intake, letters: Any) -> Any:
        gap = original(self, letters)
        return gap and gap._replace(first=gap.until - 1)

    yield mock.patch.object(Intake, "find_gap", find_gap)


@mutant("take what is missing for gone")
def _take_what_is_missing_for_gone() -> Iterator[Any]:
    original = Lanes.rechecked

    def rechecked(self: Lanes[Parcel], number: int, now: float, *, is_there: bool, is_deferred: bool) -> None:
        original(self, number, now, is_there=False, is_deferred=False)

    yield mock.patch.object(Lanes, "rechecked", rechecked)


# -- what comes again


@mutant("send what comes again")
def _send_what_comes_again() -> Iterator[Any]:
    class Forgetful(set[int]):
        def __contains__(self, number: object) -> bool:
            return False

    original = Intake.__init__

    def begin(self: Intake, *given: Any) -> None:
        original(self, *given)
        self.unsettled = Forgetful()

    yield mock.patch.object(Intake, "__init__", begin)


@mutant("remember what is moved too late")
def _remember_what_is_moved_too_late() -> Iterator[Any]:
    class Late(set[int]):
        def update(self, *numbers: Any) -> None:
            """Only a completion that failed is remembered."""

    original, note = Intake.__init__, QueuePump._note_unsettled

    def begin(self: Intake, *given: Any) -> None:
        original(self, *given)
        self.unsettled = Late()

    def note_unsettled(self: QueuePump, number: int, *, is_deferred: bool) -> None:
        self._intake.unsettled.add(number)
        note(self, number, is_deferred=is_deferred)

    yield mock.patch.object(Intake, "__init__", begin)
    yield mock.patch.object(QueuePump, "_note_unsettled", note_unsettled)


@mutant("leave what was moved in the backlog")
def _leave_what_was_moved_in_the_backlog() -> Iterator[Any]:
    yield mock.patch.object(QueuePump, "_note_unsettled", return_value=None)


@mutant("forget what may have been put aside")
def _forget_what_may_have_been_put_aside() -> Iterator[Any]:
    def lost(self: Lanes[Parcel], held: Parcel, now: float) -> None:
        self._let_go(held)

    yield mock.patch.object(Lanes, "lost", lost)


@mutant("forget what could not be fetched")
def _forget_what_could_not_be_fetched() -> Iterator[Any]:
    def unfetched(self: Lanes[Parcel], number: int, now: float, *, is_missing: bool) -> None:
        self.dismiss(number)

    yield mock.patch.object(Lanes, "unfetched", unfetched)


# -- paths, and ends


@mutant("dead-letter on any 401")
def _dead_letter_on_any_401() -> Iterator[Any]:
    table = {conditions.UNAUTHORIZED: (Remedy.GONE, "NotAuthorized")}
    yield mock.patch.dict(judgement_module._TABLE, table)


@mutant("dead-letter on any refusal")
def _dead_letter_on_any_refusal() -> Iterator[Any]:
    table = {conditions.INTERNAL_ERROR: (Remedy.POISON, "NotAllowed")}
    yield mock.patch.dict(judgement_module._TABLE, table)


@mutant("never try a path again")
def _never_try_a_path_again() -> Iterator[Any]:
    yield mock.patch.object(Destinations, "claim_try", return_value=False)


@mutant("fetch only while few wait")
def _fetch_only_while_few_wait() -> Iterator[Any]:
    original = Lanes._fetch

    def fetch(self: Lanes[Parcel], lane: Any, most: int, steps: Any) -> None:
        if len(lane.waiting) < lanes_module.FETCH_MESSAGES:
            original(self, lane, most, steps)

    yield mock.patch.object(Lanes, "_fetch", fetch)


@mutant("end a drain too soon")
def _end_a_drain_too_soon() -> Iterator[Any]:
    async def is_drained(self: QueuePump) -> bool:
        return self._is_idle

    yield mock.patch.object(QueuePump, "_is_drained", is_drained)


@mutant("keep locks at the end")
def _keep_locks_at_the_end() -> Iterator[Any]:
    original = Lanes.take_waiting

    def take_waiting(self: Lanes[Parcel]) -> list[Parcel]:
        original(self)
        return []

    yield mock.patch.object(Lanes, "take_waiting", take_waiting)


@mutant("do not count back")
def _do_not_count_back() -> Iterator[Any]:
    yield mock.patch.object(QueuePump, "_note_activity", lambda self, is_active: _count(self))


def _count(pump: QueuePump) -> None:
    pump._station.active += 1


# -- the client


def _always(kind: type, name: str, around: Callable[..., Any]) -> Any:
    """Replace a method by one that is given the original first."""
    original = getattr(kind, name)
    return mock.patch.object(
        kind, name, lambda self, *given, **named: around(original, self, *given, **named)
    )


@mutant("drop on an empty rotation", world="client")
def _drop_on_an_empty_rotation() -> Iterator[Any]:
    async def send(original: Any, self: BacklogRoute, *given: Any, **named: Any) -> None:
        with suppress(BacklogUnavailableError):
            await original(self, *given, **named)

    yield _always(BacklogRoute, "send", send)


@mutant("ignore what was taken after a split", world="client")
def _ignore_what_was_taken_after_a_split() -> Iterator[Any]:
    async def send(original: Any, self: BacklogRoute, *given: Any, **named: Any) -> None:
        try:
            await original(self, *given, **named)
        except BacklogUnavailableError as error:
            error.taken = 0
            raise

    yield _always(BacklogRoute, "send", send)


@mutant("wait for the end of a cool-down", world="client")
def _wait_for_the_end_of_a_cool_down() -> Iterator[Any]:
    async def look(original: Any, self: BacklogRoute) -> None:
        """Nobody looks for a queue that answers."""

    yield _always(BacklogRoute, "_look_for_queues", look)


@mutant("let a session's calls overtake each other", world="client")
def _let_a_sessions_calls_overtake_each_other() -> Iterator[Any]:
    @asynccontextmanager
    async def in_line(original: Any, self: StayingSessions, *given: Any) -> AsyncIterator[None]:
        yield

    yield _always(StayingSessions, "in_line", in_line)


@mutant("let a session overtake what it has in the spool", world="client")
def _let_a_session_overtake_what_it_has_in_the_spool() -> Iterator[Any]:
    async def lines_up(original: Any, self: Router, *given: Any) -> bool:
        return False

    yield _always(Router, "_lines_up", lines_up)


@mutant("take a time-out for a yes", world="client")
def _take_a_time_out_for_a_yes() -> Iterator[Any]:
    async def call(original: Any, self: SendLink, *given: Any, **named: Any) -> Ending:
        ending: Ending = await original(self, *given, **named)
        return Ending.DONE if ending is Ending.OUT_OF_TIME else ending

    yield _always(SendLink, "call", call)


@mutant("forget the message id in the envelope", world="client")
def _forget_the_message_id_in_the_envelope() -> Iterator[Any]:
    def wrapped(*given: Any, **named: Any) -> Any:
        copy = wrapped_copy(*given, **named)
        properties = raw_of(copy).properties
        assert properties is not None
        properties.message_id = "another"
        return copy

    yield mock.patch.object(wrapping_module, "wrapped_copy", wrapped)


@mutant("forget what was spooled", world="client")
def _forget_what_was_spooled() -> Iterator[Any]:
    async def send(original: Any, self: SpoolLane, store: Any, batch: Any) -> int:
        return len(batch)

    yield _always(SpoolLane, "_send", send)


@mutant("spool without a disk", world="client")
def _spool_without_a_disk() -> Iterator[Any]:
    async def append(original: Any, self: Spool, *given: Any, **named: Any) -> None:
        """It is said to be kept."""

    yield _always(Spool, "append", append)


@mutant("cursor without fsync", world="spool")
def _cursor_without_fsync() -> Iterator[Any]:
    yield mock.patch.object(spool_store, "publish", partial(publish, durable=False))


@mutant("send the spool again from the start of a list", world="spool")
def _send_the_spool_again_from_the_start_of_a_list() -> Iterator[Any]:
    def deal(original: Any, self: SpoolLane, store: Any, place: SpoolCursor, messages: int) -> None:
        if not place.messages:
            original(self, store, place, messages)

    yield _always(SpoolLane, "_deal", deal)


@mutant("spool without fsync", world="spool")
def _spool_without_fsync() -> Iterator[Any]:
    def write(path: Path, data: bytes, *, at: int) -> None:
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(at)
            file.seek(at)
            file.write(data)

    yield mock.patch.object(spool_store, "_write", write)


@mutant("names of the spool without fsync", world="spool")
def _names_of_the_spool_without_fsync() -> Iterator[Any]:
    yield mock.patch.object(spool_store, "sync_directory", return_value=None)


@mutant("never ping", world="client")
def _never_ping() -> Iterator[Any]:
    yield mock.patch.object(Pinger, "start", return_value=None)


@mutant("let sessions go home too soon", world="client")
def _let_sessions_go_home_too_soon() -> Iterator[Any]:
    async def look(original: Any, self: BacklogView, *given: Any) -> SessionPicture:
        return SessionPicture()

    yield _always(BacklogView, "look", look)


@mutant("send again what was taken", world="client")
def _send_again_what_was_taken() -> Iterator[Any]:
    original = EntityCall.transmit

    async def transmit(self: EntityCall, sender: Any) -> None:
        await original(self, sender)
        await original(self, sender)

    yield mock.patch.object(EntityCall, "transmit", transmit)


@mutant("answer though the disk is full", world="client")
def _answer_though_the_disk_is_full() -> Iterator[Any]:
    async def append(original: Any, self: Spool, *given: Any, **named: Any) -> None:
        with suppress(SpoolError):
            await original(self, *given, **named)

    yield _always(Spool, "append", append)


@mutant("count what could not be spooled", world="client")
def _count_what_could_not_be_spooled() -> Iterator[Any]:
    async def keep(original: Any, self: Spool, entry: Any) -> None:
        try:
            await original(self, entry)
        except SpoolError:
            self._count(entry.key, entry.held)
            raise

    yield _always(Spool, "_commit_entry", keep)


@mutant("leave pings out of the ledger", world="client")
def _leave_pings_out_of_the_ledger() -> Iterator[Any]:
    yield mock.patch.object(ClientLedger, "probed", return_value=None)
