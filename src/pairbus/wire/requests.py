"""Requests to a node and their answers: a sender and a receiver that belong together."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from pairbus import conditions, words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import TransferReceived
from pairbus.amqp.message import (
    MessageSections,
    Properties,
    encode_application_properties,
    encode_value,
    scan,
)
from pairbus.amqp.performatives import ACCEPTED
from pairbus.pairing.failures import Fate

from .errors import UNANSWERED, TransportError
from .line import AmqpLine
from .links import LinkEnd, SenderLink, Wave, attach_link

_ANSWER_CREDIT = 100
_CORRELATION_ID = [field.name for field in fields(Properties)].index("correlation_id")


class _Asked(Wave):
    """A request on its way. Its future is that of the answer, which does not come if it is refused."""

    __slots__ = ("answer",)

    def __init__(self, answer: asyncio.Future[Any]) -> None:
        super().__init__(answer, 1)
        self.answer = answer

    def settle(self, index: int, error: TransportError | None) -> None:
        self.left -= 1
        if error is not None and not self.answer.done():
            self.errors[index] = error
            self.answer.set_exception(TransportError(error.condition, error.description))
            self.answer.exception()  # looked at: whoever asked may have gone


class RequestLink:
    """Requests to a node, `$cbs` or `…/$management`, and its answers."""

    def __init__(self, line: AmqpLine, sender: SenderLink, answers: _AnswerLink) -> None:
        self._line = line
        self._sender = sender
        self._answers = answers
        self._ids = itertools.count(1)

    @classmethod
    async def open(cls, line: AmqpLine, address: str, *, timeout: float) -> RequestLink:
        """Both links, attached."""
        sender = SenderLink(line, address)
        answers = _AnswerLink(line, address)
        try:
            await answers.await_attached(timeout)  # which is answered last
            await sender.await_attached(timeout)
            sender.check()
        except (TransportError, asyncio.CancelledError):
            sender.abandon()
            answers.abandon()
            raise
        answers.link.flow(_ANSWER_CREDIT)
        line.flush_soon()
        return cls(line, sender, answers)

    @property
    def lost(self) -> TransportError | None:
        """Why the links are lost, if they are."""
        return self._sender.lost or self._answers.lost

    async def ask(
        self,
        properties: dict[str, str],
        body: Any,
        *,
        timeout: float,
        on_fate: Callable[[Fate, int], None] | None = None,
        read: Callable[[MessageSections], Any] | None = None,
    ) -> tuple[Mapping[str, Any], Any]:
        """Make a request; the answer's application properties and body. `on_fate` hears what became of the
        request, and its size; `read` reads the body, if it is not to be decoded as it is. A body of bytes is
        a section already.
        """
        number = f"{next(self._ids)}"
        asked = _Asked(self._line.loop.create_future())
        payload = b"".join(
            (
                encode_ids(number, self._answers.address),
                _encode_words(*properties.items()),
                body if isinstance(body, bytes) else encode_value(body),
            )
        )
        self._answers.waiting[number] = asked.answer
        try:
            self._sender.post(payload, asked)
            is_moving = self._sender.mover(asked)
            answer: MessageSections = await self._line.answer(asked.answer, timeout, is_moving=is_moving)
            asked.fates[0] = "taken"  # an answer may come before the word that the request was taken
            found = _read_words(answer.application_properties_bytes)
            if read is not None:
                return found, read(answer)
            return found, answer.value() if answer.body_kind == "value" else None
        except DecodeError as error:
            raise TransportError(error.condition, error.description) from error
        finally:
            self._answers.waiting.pop(number, None)
            self._sender.give_up(asked, TransportError(UNANSWERED, "called off"))
            if on_fate is not None:
                on_fate(asked.fates[0], len(payload))

    async def request(
        self,
        operation: str,
        body: dict[str, Any] | bytes,
        *,
        timeout: float,
        on_fate: Callable[[Fate, int], None] | None = None,
        read: Callable[[MessageSections], Any] | None = None,
    ) -> Any:
        """Ask a `…/$management` for an operation; the body of its answer, or TransportError if it refuses."""
        asked = {"operation": f"{words.OPERATION_PREFIX}{operation}"}
        answer, found = await self.ask(asked, body, timeout=timeout, on_fate=on_fate, read=read)
        status = answer.get(words.STATUS)
        if not isinstance(status, int) or not 200 <= status < 300:
            condition = str(answer.get(words.STATUS_CONDITION) or conditions.INTERNAL_ERROR)
            raise TransportError(condition, f"{status}: {answer.get(words.STATUS_TEXT) or ''}")
        if read is not None:
            return found
        return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}

    def abandon(self) -> None:
        """Detach both links."""
        self._sender.abandon()
        self._answers.abandon()


class _AnswerLink(LinkEnd):
    def __init__(self, line: AmqpLine, node: str) -> None:
        super().__init__(line)
        self.waiting: dict[str, asyncio.Future[Any]] = {}
        self.link = line.attach(self, partial(attach_link, sends=False, address=node, mode=0))
        self.address = self.link.name

    def on_received(self, event: TransferReceived) -> None:
        if not event.settled:
            self.link.settle(event.delivery_id, ACCEPTED)
        if self.link.credit < _ANSWER_CREDIT // 2:
            self.link.flow(_ANSWER_CREDIT)
        try:
            answer = scan(event.payload)
            number = str(answer.property_values[_CORRELATION_ID])
        except (DecodeError, IndexError):
            return  # whoever asked hears nothing and says so
        future = self.waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def on_lost(self, error: TransportError) -> None:
        super().on_lost(error)
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(TransportError(error.condition, error.description))
                future.exception()


def encode_ids(message_id: str, reply_to: str) -> bytes:
    """Properties with nothing else, both short: the bytes that `encode_properties` writes."""
    fields = b"\xa1%c%b\x40\x40\x40\xa1%c%b%b" % (
        len(message_id),
        message_id.encode(),
        len(reply_to),
        reply_to.encode(),
        b"\x40" * 8,
    )
    return b"\x00\x53\x73\xc0%c\x0d%b" % (len(fields) + 1, fields)


# What is asked of a thousand queues has the same words, and so have the answers.


@lru_cache(maxsize=64)
def _encode_words(*items: tuple[str, str]) -> bytes:
    return encode_application_properties(dict(items))


@lru_cache(maxsize=64)
def _read_words(section: bytes) -> Mapping[str, Any]:
    found = scan(section).application_properties
    return MappingProxyType({str(key): value for key, value in found.items()})
