"""The observer interface: logs, metrics, the ledger and tests listen here to what the client does.

An observer is called on the event loop and must not block. What one of them raises is logged and stops
neither the others nor the send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple

from pairbus.options import EntityState, PingRole, StateChange
from pairbus.pairing.failures import Fate
from pairbus.pairing.headroom import HeadroomNotice

if TYPE_CHECKING:
    from pairbus.backlog.provisioner import ProvisioningReport

RouteName = Literal["primary", "backlog", "spool"]
AttemptOutcome = Literal["ok", "failed", "unknown"]

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)  # not frozen, which would make it three times as dear: one a send
class Sending:
    """One attempt to send that reached the wire, or the spool.

    `failed`: what was sent was certainly not taken. `unknown`: it may have been. `size` is that of the bodies
    as far as they are bytes.
    """

    path: str
    route: RouteName
    outcome: AttemptOutcome
    messages: int
    size: int
    seconds: float


@dataclass(slots=True, kw_only=True)
class Undertaking:
    """One call of the application, from beginning to end, or of the spool. `route` is the way that was taken
    last, None before the first; `state` is that of the entity.
    """

    operation: Literal["send", "schedule"]
    path: str
    messages: int
    #: Whether the spool sends what it has taken before.
    is_replay: bool = False
    route: RouteName | None = None
    state: EntityState = EntityState.HEALTHY


class SendNote(NamedTuple):
    """An attempt that reached a namespace, as its bill sees it. A tuple, as there is one for every send."""

    path: str
    route: RouteName
    backlog_queue: str | None
    #: What was refused is billed, and what was never sent is not.
    fate: Fate
    messages: int
    #: On the wire, all together.
    size: int
    #: Of each of them above 64 KB.
    large: tuple[int, ...]
    #: Whether they were scheduled by a request.
    by_request: bool


class Observer:
    """Hears of everything; override what is of interest."""

    def paired(self, primary_name: str, backlog_queues: int) -> None:
        """The client has begun; all that it tells comes after this."""

    def around(self, undertaking: Undertaking) -> AbstractContextManager[object]:
        """Entered when a call begins and left when it ends, in the context of its caller."""
        return nullcontext()

    def state_changed(self, change: StateChange) -> None:
        """An entity has changed its state."""

    def sent(self, sending: Sending) -> None:
        """An attempt to send has ended."""

    def tallied(self, tally: SendNote) -> None:
        """The same, as the bill sees it; not told of what goes to the spool."""

    def answered_late(self, path: str, *, succeeded: bool) -> None:
        """A send that a failover gave up was answered after all: taken, and so perhaps twice, or refused."""

    def pinged(self, path: str, *, succeeded: bool, seconds: float) -> None:
        """A ping has been answered, or not."""

    def ping_role_changed(self, path: str, role: PingRole | None) -> None:
        """Another pings an entity that is down than before; None: nobody needs to any more."""

    def probed(self, path: str, fate: Fate) -> None:
        """A ping that is a message has ended, also one that nobody waited for any more."""

    def requested(self, path: str, fate: Fate) -> None:
        """The primary was asked for something that is no send."""

    def administered(self, entity: str, fate: Fate) -> None:
        """The secondary was asked at its administration address, about an entity or the namespace itself."""

    def rotation_changed(self, usable: int, total: int) -> None:
        """A backlog queue has left the rotation or come back."""

    def shipped(self, lag: float, waiting: int) -> None:
        """A round of shipping has ended: what is older than `lag` seconds is there, so many segments wait."""

    def headroom_lacked(self, notice: HeadroomNotice) -> None:
        """A message was sent that would not fit a backlog queue as it is; told once an entity."""

    def oversized(self, path: str, messages: int) -> None:
        """Messages were sent that would not fit a backlog queue as they are; told every time."""

    def provisioned(self, report: ProvisioningReport) -> None:
        """The backlog queues have been looked after, or could not be."""


class LogObserver(Observer):
    """One line a change. Of the rotation: when the first queue leaves it, the last one, one is back, and all
    are: a silent secondary with hundreds of queues loses them one by one. The status counts each.
    """

    def __init__(self) -> None:
        self._in_rotation = "all"

    def state_changed(self, change: StateChange) -> None:
        level = logging.INFO if change.new.value == "healthy" else logging.WARNING
        log.log(
            level,
            "%s: %s -> %s (%s)",
            change.path,
            change.old.value,
            change.new.value,
            change.reason,
            extra={"fields": {"path": change.path, "old": change.old.value, "new": change.new.value}},
        )

    def answered_late(self, path: str, *, succeeded: bool) -> None:
        if succeeded:
            log.warning("%s: a send that was given up has arrived; its messages may be there twice", path)

    def rotation_changed(self, usable: int, total: int) -> None:
        now = "all" if usable == total else "some" if usable else "none"
        if now == self._in_rotation:
            return
        self._in_rotation = now
        level = logging.INFO if usable == total else logging.WARNING
        log.log(level, "%d of %d backlog queues are in the rotation", usable, total)

    def headroom_lacked(self, notice: HeadroomNotice) -> None:
        log.warning("%s", notice, extra={"fields": {"path": notice.path, "size": notice.size}})


class _Unobtrusive:
    """An observer around a call, of which it changes nothing: it raises no error, and swallows none."""

    def __init__(self, observer: Observer, undertaking: Undertaking) -> None:
        self._observer = observer
        self._undertaking = undertaking
        self._manager: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            manager = self._observer.around(self._undertaking)
            manager.__enter__()
        except Exception:
            log.exception("an observer failed: %r", self._observer)
        else:
            self._manager = manager

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._manager is None:
            return
        try:
            self._manager.__exit__(kind, error, trace)
        except Exception as raised:
            if raised is not error:
                log.exception("an observer failed: %r", self._observer)


class Observers:
    """All observers of a client."""

    __slots__ = ("_all", "_around", "_of_sends", "_of_tallies", "hear_sends", "hear_tallies", "surround")

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._all = tuple(observers)
        self._of_sends = tuple(one for one in self._all if type(one).sent is not Observer.sent)
        #: Whether anybody listens to sends; describing one costs more than all else that a send does here.
        self.hear_sends = bool(self._of_sends)
        self._of_tallies = tuple(one for one in self._all if type(one).tallied is not Observer.tallied)
        #: Whether anybody counts sends.
        self.hear_tallies = bool(self._of_tallies)
        self._around = tuple(one for one in self._all if type(one).around is not Observer.around)
        #: Whether anybody wants to be around calls.
        self.surround = bool(self._around)

    @contextmanager
    def around(self, undertaking: Undertaking) -> Iterator[None]:
        """Have those who want it around a call. One that fails to begin is left out."""
        with ExitStack() as stack:
            for observer in self._around:
                stack.enter_context(_Unobtrusive(observer, undertaking))
            yield

    def tell(self, event: Callable[[Observer], None]) -> None:
        """Call each of them."""
        _tell(self._all, event)

    def tell_sent(self, sending: Sending) -> None:
        """Call each that listens to sends."""
        _tell(self._of_sends, lambda observer: observer.sent(sending))

    def tell_tally(self, tally: SendNote) -> None:
        """Call each that counts sends."""
        _tell(self._of_tallies, lambda observer: observer.tallied(tally))


def _tell(observers: tuple[Observer, ...], event: Callable[[Observer], None]) -> None:
    for observer in observers:
        try:
            event(observer)
        except Exception:
            log.exception("an observer failed: %r", observer)
