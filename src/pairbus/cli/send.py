"""`pairbus send`: lines of a file or of standard input through the paired client."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pairbus.client.observers.observer import Observer, Sending, Undertaking
from pairbus.errors import ConfigurationError, PairbusError, UnreachableError

from .candidates import offer_entities
from .group import examples
from .lines import FedMessage, Feed, LineMessage, lines_of, read_json_lines, read_plain_lines
from .logs import configure_logs, log_options
from .numbers import AT_LEAST_ONE, POSITIVE
from .pairs import PairChoice, pair_options, signed_in
from .progress import DrawnLine
from .tables import json_option, per_second, tell

if TYPE_CHECKING:
    from pairbus.client.sender import PairedSender
    from pairbus.sdk.side import EntitySender

log = logging.getLogger(__name__)
# What a caller did wrong, by the class of the SDK's error.
_MISTAKES = {
    "MessageSizeExceededError": "too large",
    "ValueError": "bad argument",
    "TypeError": "bad argument",
}
# What the messages of one batch must have in common.
_BELONGING = ("session_id", "partition_key")
# What the SDK adds to a text, for those who look for the condition.
_CONDITION = re.compile(r" *Error condition: [\w.:-]+")


@examples(
    "pairbus send orders --primary-env PRIMARY --secondary-env SECONDARY --file orders.txt",
    "tail -f orders.jsonl | pairbus send orders --pair shop --json-lines",
    "pairbus send orders --pair shop --batch 500 --timeout 30 < orders.txt",
)
@click.command()
@click.argument("path", shell_complete=offer_entities)
@pair_options
@click.option("--file", "source", type=click.File("rb"), default="-", help="The file; - is standard input.")
@click.option("--json-lines", is_flag=True, help="Each line is a JSON object: body, message_id, and so on.")
@click.option("--batch", type=AT_LEAST_ONE, default=100, help="Messages a send.")
@click.option("--session", metavar="ID", help="The session of messages that have none of their own.")
@click.option(
    "--timeout",
    type=POSITIVE,
    metavar="SECONDS",
    help="How long one send may take. [default: as long as it needs]",
)
@log_options
@json_option
def send(
    path: str,
    *,
    choice: PairChoice,
    source: BinaryIO,
    json_lines: bool,
    batch: int,
    session: str | None,
    timeout: float | None,
    log_level: str,
    log_format: str,
    as_json: bool,
) -> None:
    """Send the lines of a file to an entity of a pair.

    PATH is a queue or topic of the primary. Each line is a message. While the primary is down they go to the
    backlog, as those of any application with the paired client do.
    """
    settings = choice.resolve()
    configure_logs(log_level, log_format)
    read = read_json_lines if json_lines else read_plain_lines
    messages = read(lines_of(source.fileno()), session=session)
    tally = SendTally(clock=time.monotonic)

    async def work() -> None:
        async with signed_in(settings) as pair, pair.client([tally]) as client:
            await send_all(client.get_queue_sender(path), Feed(messages), batch=batch, timeout=timeout)

    try:
        asyncio.run(work())
    finally:
        tally.finish()
        tell({"path": path, **tally.described()}, f"{path}: {tally}", as_json=as_json)


async def send_all(
    sender: PairedSender | EntitySender,
    feed: Feed,
    *,
    batch: int,
    timeout: float | None,
    advice: str = "neither primary nor backlog took it, `pairbus check` tells more",
    on_sent: Callable[[int], None] = lambda count: None,
) -> None:
    """Send a feed, in batches where it can; `timeout` is for a link, and for each send. `advice` for what
    nobody took; `on_sent` hears how many were.
    """
    trying: list[FedMessage] = []
    try:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout):
                    await stack.enter_async_context(sender)
            except TimeoutError:
                told = f"{sender.entity_name}: no answer within {timeout} s; {advice}"
                raise UnreachableError(told) from None
            while messages := await feed.take(batch):
                for _, group in itertools.groupby(messages, key=lambda one: [*map(one.get, _BELONGING)]):
                    async for count in _send_group(sender, list(group), timeout, trying):
                        on_sent(count)
    except (PairbusError, OSError):
        raise
    except Exception as error:
        raise _told(sender.entity_name, error, advice, _lines_of(trying)) from error


async def _send_group(
    sender: PairedSender | EntitySender,
    group: Sequence[FedMessage],
    timeout: float | None,
    trying: list[FedMessage],
) -> AsyncIterator[int]:
    """How many were sent, send by send; `trying` has those that are being sent."""
    waiting = deque(group)
    if len(group) == 1:
        trying[:] = group
        await sender.send_messages(waiting.popleft(), timeout=timeout)
        yield 1
    while waiting:
        trying.clear()
        batch = await sender.create_message_batch()
        try:
            while waiting:
                batch.add_message(waiting[0])
                trying.append(waiting.popleft())
        except ValueError:
            if not len(batch):  # too large for any batch, or no message at all: the sender will tell
                trying.append(waiting[0])
                await sender.send_messages(waiting.popleft(), timeout=timeout)
                yield 1
                continue
        await sender.send_messages(batch, timeout=timeout)
        yield len(batch)


def _lines_of(messages: Sequence[FedMessage]) -> str:
    """Where messages came from, if that is known."""
    numbers = [one.line for one in messages if isinstance(one, LineMessage)]
    if not numbers:
        return ""
    return f"line {numbers[0]}: " if len(numbers) == 1 else f"lines {numbers[0]} to {numbers[-1]}: "


def _told(path: str, error: Exception, advice: str, where: str) -> PairbusError:
    """An error of the SDK in one line, with the exit code that it deserves."""
    from pairbus.pairing.failures import FailureKind, classify
    from pairbus.sdk.failures import describe

    failure = describe(error)
    told = _CONDITION.sub("", failure.text).strip().rstrip(".") or failure.name
    texts = {
        FailureKind.CALLER: f"{where}{_MISTAKES.get(failure.name, 'refused')}: {told}",
        FailureKind.MISSING: "there is no such entity; create it, or mend the path (`pairbus entity ls`)",
        FailureKind.UNAUTHORIZED: f"its key is wrong, or its policy lacks the Send claim ({told})",
        FailureKind.CERTIFICATE: f"`certificate` of the pair names the PEM file to verify it with ({told})",
    }
    mends = {
        FailureKind.DISABLED: "let it be enabled",
        FailureKind.FULL: "receive from it, or make it larger",
        FailureKind.THROTTLED: "try again later",
    }
    kind = classify(failure)
    if kind in texts:
        return ConfigurationError(f"{path}: {texts[kind]}")
    return UnreachableError(f"{path}: {failure.summary.rstrip('.')}; {mends.get(kind, advice)}")


# How often the progress is drawn.
_PAUSE = 0.2


class SendTally(Observer):
    """Counts the messages that were taken, each once: not again when the spool sends it on."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._counts = {"primary": 0, "backlog": 0, "spool": 0}
        self._clock = clock
        self._line = DrawnLine()
        self._began = clock()
        self._draws_at = self._began + _PAUSE

    @contextmanager
    def around(self, undertaking: Undertaking) -> Iterator[None]:
        taken = 0
        try:
            yield
            taken = undertaking.messages
        except Exception as error:
            taken = getattr(error, "taken", 0)
            raise
        finally:
            if undertaking.route is not None and not undertaking.is_replay:
                self._add(undertaking.route, taken)

    def sent(self, sending: Sending) -> None:
        """Somebody who waits for a namespace that throttles sees why."""
        if sending.outcome != "ok":
            log.info("%s: an attempt at the %s: %s", sending.path, sending.route, sending.outcome)

    def _add(self, route: str, messages: int) -> None:
        self._counts[route] += messages
        now = self._clock()
        if now >= self._draws_at:
            self._draws_at = now + _PAUSE
            self._line.draw(str(self))

    def finish(self) -> None:
        self._line.take_away()

    def described(self) -> dict[str, Any]:
        seconds = round(self._clock() - self._began, 3)
        return {"sent": sum(self._counts.values()), **self._counts, "seconds": seconds}

    def __str__(self) -> str:
        total = sum(self._counts.values())
        ways = ", ".join(f"{count:,} to the {route}" for route, count in self._counts.items() if count)
        seconds = self._clock() - self._began
        rate = f"; {seconds:.1f} s, {per_second(total / seconds)} a second" if seconds > 0 else ""
        return f"{total:,} sent{f' ({ways})' if ways else ''}{rate}"
