"""Mistakes of the client and of its spool."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

from pairbus.client.errors import SpoolError
from pairbus.client.hosted.backlog_view import BacklogView
from pairbus.client.observers.ledger import ClientLedger
from pairbus.client.sending.backlog_route import BacklogRoute
from pairbus.client.sending.calls import EntityCall
from pairbus.client.sending.entity import PairedEntity
from pairbus.client.sending.link import SendLink
from pairbus.client.sending.message import raw_of
from pairbus.client.sending.pinger import Pinger
from pairbus.client.sending.redirects import Redirects
from pairbus.client.sending.rounds import Convoy, Round, Shipment
from pairbus.client.sending.router import Router
from pairbus.client.sending.sessions import SessionPicture, StayingSessions
from pairbus.client.sending.spool import Spool
from pairbus.client.sending.spool_lane import SpoolLane
from pairbus.client.sending.ticket import Ending, Ticket
from pairbus.client.sending.wrapping import WrappedMessage, Wrapping
from pairbus.client.state import spool_file, spool_store
from pairbus.client.state.records import UNANSWERED, UNKNOWN
from pairbus.client.state.spool_records import SpoolCursor
from pairbus.client.state.spool_store import Held, LineKey, SpoolStore
from pairbus.pairing.errors import BacklogUnavailableError
from pairbus.pairing.scheduling import BacklogNumbers
from pairbus.plumbing.files import publish, write_all

from .mutants import mutant


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
    original = Wrapping.wrap

    def wrapped(self: Wrapping, message: Any, *given: Any, **named: Any) -> WrappedMessage:
        copy = deepcopy(raw_of(message))
        assert copy.properties is not None
        copy.properties.message_id = "another"
        return original(self, copy, *given, **named)

    yield mock.patch.object(Wrapping, "wrap", wrapped)


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


@mutant("take the next file of the spool for the one that is done with", world="spool")
def _take_the_next_file_of_the_spool_for_the_one_that_is_done_with() -> Iterator[Any]:
    settle = SpoolStore.settle

    def careless(self: SpoolStore, key: LineKey, path: Path, place: SpoolCursor, messages: int) -> Held:
        return settle(self, key, self._lines[key].files[0].path, place, messages)

    yield mock.patch.object(SpoolStore, "settle", careless)


@mutant("spool without fsync", world="spool")
def _spool_without_fsync() -> Iterator[Any]:
    def put(self: Any, data: bytes, ahead: int) -> int:
        write_all(self._descriptor, data)
        self._room = end = self._end + len(data)
        return cast(int, end)

    yield mock.patch.object(spool_file.OpenFile, "_put", put)


@mutant("names of the spool without fsync", world="spool")
def _names_of_the_spool_without_fsync() -> Iterator[Any]:
    for module in (spool_file, spool_store):
        yield mock.patch.object(module, "sync_directory", return_value=None)


@mutant("never ping", world="client")
def _never_ping() -> Iterator[Any]:
    yield mock.patch.object(Pinger, "start", return_value=None)


@mutant("open a new link where a ping has opened one", world="client")
def _open_a_new_link() -> Iterator[Any]:
    yield mock.patch.object(SendLink, "take_over", return_value=None)


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

    yield _always(Spool, "_keep", keep)


@mutant("leave pings out of the ledger", world="client")
def _leave_pings_out_of_the_ledger() -> Iterator[Any]:
    yield mock.patch.object(ClientLedger, "probed", return_value=None)


# -- records and schedules


def _without_rows(left_out: str) -> Any:
    def rows(original: Any, self: Redirects, *given: Any) -> Any:
        return [] if given[-1] == left_out else original(self, *given)

    return _always(Redirects, "_rows", rows)


@mutant("note no doubts", world="client")
def _note_no_doubts() -> Iterator[Any]:
    yield _without_rows(UNKNOWN)


@mutant("do not note what the primary may have", world="client")
def _do_not_note_what_the_primary_may_have() -> Iterator[Any]:
    yield _without_rows(UNANSWERED)


@mutant("note what is not taken yet", world="client")
def _note_what_is_not_taken_yet() -> Iterator[Any]:
    async def ship(original: Any, self: BacklogRoute, wanted: Shipment) -> None:
        await self._redirects.record(wanted, self.queues[0])
        await original(self, wanted)

    yield _always(BacklogRoute, "_ship", ship)


@mutant("forget when a message is due in the envelope", world="client")
def _forget_when_a_message_is_due_in_the_envelope() -> Iterator[Any]:
    original = Wrapping.wrap
    yield mock.patch.object(
        Wrapping, "wrap", lambda self, message, when, **named: original(self, message, None, **named)
    )


@mutant("forget when a message is due in the spool", world="client")
def _forget_when_a_message_is_due_in_the_spool() -> Iterator[Any]:
    async def append(original: Any, self: Spool, *given: Any, stays: bool, **named: Any) -> None:
        await original(self, *given, stays=stays)

    yield _always(Spool, "append", append)


@mutant("number the backlog like the primary", world="client")
def _number_the_backlog_like_the_primary() -> Iterator[Any]:
    def take(original: Any, self: BacklogNumbers, count: int) -> list[int]:
        return [-number for number in original(self, count)]

    yield _always(BacklogNumbers, "take", take)


# -- the order of sessions


@mutant("let a session go on in any queue", world="order")
def _let_a_session_go_on_in_any_queue() -> Iterator[Any]:
    def bound(original: Any, self: BacklogRoute, *_: Any) -> None:
        return None

    yield _always(BacklogRoute, "_bound_queue", bound)


@mutant("wait for no first look", world="order")
def _wait_for_no_first_look() -> Iterator[Any]:
    async def find_out(original: Any, self: StayingSessions, *_: Any) -> None:
        pass

    yield _always(StayingSessions, "find_out", find_out)


# -- those who go together


@mutant("tell of the first in a convoy alone", world="convoy")
def _tell_of_the_first_in_a_convoy_alone() -> Iterator[Any]:
    def disband(original: Any, self: Convoy) -> list[Round]:
        rounds: list[Round] = original(self)
        for each in rounds[1:]:
            each.called_at = None
        return rounds

    yield _always(Convoy, "disband", disband)


@mutant("take a convoy that failed for a convoy that arrived", world="convoy")
def _take_a_convoy_that_failed_for_one_that_arrived() -> Iterator[Any]:
    def ended(original: Any, self: BacklogRoute, link: Any, queue: str, convoy: Convoy, _: Ending) -> None:
        original(self, link, queue, convoy, Ending.DONE)

    yield _always(BacklogRoute, "_convoy_ended", ended)


@mutant("forget those whom a throttled queue has refused together", world="convoy")
def _forget_those_whom_a_throttled_queue_has_refused_together() -> Iterator[Any]:
    yield mock.patch.object(SendLink, "readmit", return_value=None)


# -- callers that go, and clients that end


@mutant("keep the turn of who is cancelled", world="client")
def _keep_the_turn_of_who_is_cancelled() -> Iterator[Any]:
    async def wait_turn(self: SendLink, ticket: Ticket, deadline: float | None) -> Ending:
        waiter = ticket.waiter(self._loop)
        self._waiting.append(ticket)
        timer = None if deadline is None else self._timers.call_at(deadline, ticket.expire)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()

    yield mock.patch.object(SendLink, "wait_turn", wait_turn)


@mutant("keep the attempt of who is cancelled", world="client")
def _keep_the_attempt_of_who_is_cancelled() -> Iterator[Any]:
    yield mock.patch.object(PairedEntity, "_take_back", return_value=None)


@mutant("keep links that were given up", world="client")
def _keep_links_that_were_given_up() -> Iterator[Any]:
    yield mock.patch.object(SendLink, "_retire", return_value=None)


@mutant("close the spool without a word on how far it has come", world="spool")
def _close_the_spool_without_a_word_on_how_far_it_has_come() -> Iterator[Any]:
    async def save(original: Any, self: Spool) -> None:
        """The next one will see."""

    yield _always(Spool, "_save_lanes", save)


@mutant("keep the locks of a closed spool", world="spool")
def _keep_the_locks_of_a_closed_spool() -> Iterator[Any]:
    async def let_go(original: Any, self: Spool) -> None:
        """Nobody else may have it."""

    yield _always(Spool, "_let_go", let_go)


# -- states


@mutant("postpone nothing", world="client")
def _postpone_nothing() -> Iterator[Any]:
    async def postpone(original: Any, self: Spool, spooled: Any) -> None:
        """It is said to be kept."""

    yield _always(Spool, "postpone", postpone)


@mutant("take every ping for a good one", world="client")
def _take_every_ping_for_a_good_one() -> Iterator[Any]:
    def ended(
        original: Any, self: PairedEntity, number: int, ending: Ending, error: Any, *given: Any
    ) -> None:
        original(self, number, Ending.DONE, None, *given)

    yield _always(PairedEntity, "_ping_ended", ended)


@mutant("take what comes late for a failback", world="client")
def _take_what_comes_late_for_a_failback() -> Iterator[Any]:
    def late(original: Any, self: PairedEntity, error: BaseException | None) -> None:
        if error is None:
            self.carry_out(self.health.mark_healthy(self._timers.now()))
        original(self, error)

    yield _always(PairedEntity, "_answered_late", late)
