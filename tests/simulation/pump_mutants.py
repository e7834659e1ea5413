"""Mistakes of the pump."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from pairbus import conditions
from pairbus.pump import intake as intake_module
from pairbus.pump import judgement as judgement_module
from pairbus.pump import lanes as lanes_module
from pairbus.pump.burials import Burials
from pairbus.pump.destinations import Destinations
from pairbus.pump.doubts import Doubts
from pairbus.pump.intake import Intake, Stray
from pairbus.pump.judgement import Remedy
from pairbus.pump.lanes import Lanes
from pairbus.pump.parcel import Parcel
from pairbus.pump.queue import QueuePump
from pairbus.pump.station import Station
from pairbus.pump.unwrapping import OpenedEnvelope, open_envelope
from pairbus.wire.errors import CONNECTION_LOST, UNANSWERED, TransportError

from .mutants import mutant

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

    async def complete(self: QueuePump, path: str, moved: list[Parcel]) -> None:
        await self._source.complete([parcel.delivery for parcel in moved])
        await original(self, path, moved)

    yield mock.patch.object(QueuePump, "_complete", complete)


@mutant("complete though the receipt failed")
def _complete_though_the_receipt_failed() -> Iterator[Any]:
    original = QueuePump._complete

    async def complete(self: QueuePump, path: str, moved: list[Parcel]) -> None:
        try:
            await original(self, path, moved)
        except OSError:
            await self._source.complete([parcel.delivery for parcel in moved])
            raise

    yield mock.patch.object(QueuePump, "_complete", complete)


@mutant("complete what comes again before its receipt")
def _complete_what_comes_again_before_its_receipt() -> Iterator[Any]:
    original = Intake._take_one

    def take_one(self: Intake, *given: Any) -> Stray | None:
        self.unrecorded.clear()
        return original(self, *given)

    yield mock.patch.object(Intake, "_take_one", take_one)


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
            original(self, path, unit, error, now)
            return
        self.lanes.moved(unit)
        self._finishing += len(unit)
        self._start(self._complete(path, unit))

    yield mock.patch.object(QueuePump, "_refused", refused)


@mutant("settle what was refused")
def _settle_what_was_refused() -> Iterator[Any]:
    def refused(self: QueuePump, path: str, unit: list[Parcel], error: TransportError, now: float) -> None:
        self.lanes.moved(unit)
        self._finishing += len(unit)
        self._start(self._complete(path, unit))

    yield mock.patch.object(QueuePump, "_refused", refused)


@mutant("settle before doubts are on record")
def _settle_before_doubts_are_on_record() -> Iterator[Any]:
    async def written(self: Doubts, parcels: list[Parcel]) -> list[Parcel]:
        return parcels

    yield mock.patch.object(Doubts, "written", written)


@mutant("suspect nobody")
def _suspect_nobody() -> Iterator[Any]:
    yield mock.patch.object(Intake, "take_suspects", return_value=[])


@mutant("suspect what was put aside twice")
def _suspect_what_was_put_aside_twice() -> Iterator[Any]:
    yield mock.patch.object(intake_module, "read_accounted", return_value=None)


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
