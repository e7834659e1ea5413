"""`pairbus messages`: what lies in a queue or subscription: listed, sent, purged, exported, imported."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import drafted, write_all
from pairbus.plumbing.ranges import ranges_of
from pairbus.plumbing.toml_tables import parse_value
from pairbus.plumbing.wording import counted

from .exit_codes import INCOMPLETE
from .group import CommandGroup, examples
from .lines import FedMessage, Feed, lines_of, property_value, read_json_lines, read_plain_lines
from .namespaces import NAMESPACE_OPTIONS, NamespaceChoice, namespace_options
from .numbers import AT_LEAST_ONE, LONG
from .places import BODY, FILE, check_target
from .progress import working
from .send import send_all
from .shared_options import confirm, gathered, repeatable, yes_option
from .tables import draw_table, json_option, print_json, shown, tell

if TYPE_CHECKING:
    from .message_moves import ImportedMessages, MessagePlace

_LONGEST_CELL = 40
# What a body of text may have besides what can be printed.
_LINES = "\n\t"
# How long a namespace may take to open a link, or to answer a send: the SDK alone would wait for ever.
ANSWER = 60
_ADVICE = "is the namespace up, and its connection string right?"


@examples(
    "pairbus messages ls orders --ready-file ready.json --namespace contoso",
    "pairbus messages export orders --dead-letter --file dead.jsonl --primary-env PRIMARY",
    "pairbus messages purge orders --dead-letter --primary-env PRIMARY",
)
@click.group(cls=CommandGroup)
def messages() -> None:
    """Look at messages, send, purge, export and import them.

    The namespace is that of a running broker (--ready-file, or the variable PAIRBUS_READY_FILE), or one of
    Azure's: --primary-env names a variable with its connection string, --pair a pair of pairbus.toml. PATH is
    a queue, or TOPIC/Subscriptions/NAME.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlaceChoice(NamespaceChoice):
    """What was said on the command line about the messages that are meant."""

    path: str
    dead_letter: bool
    transfer: bool
    session: str | None

    def place(self) -> MessagePlace:
        """Where they are."""
        from pairbus import words  # late: help needs no AMQP
        from pairbus.sdk.entities import EntityAddress

        from .message_moves import MessagePlace

        address = EntityAddress(self.path)
        if self.dead_letter and self.transfer:
            raise ConfigurationError("--dead-letter and --transfer-dead-letter exclude each other")
        if address.rule is not None:
            raise ConfigurationError(f"{self.path} is a rule; name a queue, or TOPIC/Subscriptions/NAME")
        chosen = address.entity
        if address.subscription is not None:
            chosen = f"{address.entity}/Subscriptions/{address.subscription}"
        if self.dead_letter or self.transfer:
            chosen += f"/{words.TRANSFER_DEAD_LETTER_QUEUE if self.transfer else words.DEAD_LETTER_QUEUE}"
        return MessagePlace(self.resolve(), chosen, self.session)


_place_options = gathered(
    _PlaceChoice,
    click.argument("path"),
    *NAMESPACE_OPTIONS,
    click.option("--dead-letter", is_flag=True, help="The dead letters of the entity instead."),
    click.option(
        "--transfer-dead-letter", "transfer", is_flag=True, help="Those that could not be forwarded."
    ),
    click.option("--session", metavar="ID", help="Only the messages of this session."),
)
_from_option = click.option(
    "--from",
    "begin",
    type=LONG,
    default=0,
    help="The first sequence number to look at.",
)


@examples(
    "pairbus messages ls orders --ready-file ready.json --namespace contoso",
    "pairbus messages ls events/Subscriptions/audit --dead-letter --pair shop --limit 20",
)
@messages.command("ls")
@_place_options
@_from_option
@click.option("--limit", type=AT_LEAST_ONE, default=100, help="How many at most.")
@json_option
def list_messages(*, choice: _PlaceChoice, begin: int, limit: int, as_json: bool) -> None:
    """List messages, one a line: number, state, time, id, session, subject, size.

    Nothing is taken or locked: scheduled and deferred messages show too.
    """
    place = choice.place()
    found = asyncio.run(_described(place, begin, limit))
    for one in found:
        for name in ("body", "body_base64", "body_value"):
            one.pop(name, None)
    names = ("sequence_number", "state", "enqueued_time_utc", "message_id", "session_id", "subject")
    header = ("NUMBER", "STATE", "ENQUEUED", "MESSAGE ID", "SESSION", "SUBJECT", "BYTES")
    rows = [(*(_cell(one.get(name, "")) for name in names), one["size"]) for one in found]
    tell(found, draw_table(header, rows, numbers=(0,), empty=f"no messages in {place}"), as_json=as_json)


@examples(
    "pairbus messages peek orders --ready-file ready.json --namespace contoso",
    "pairbus messages peek orders --from 42 --json --pair shop",
)
@messages.command()
@_place_options
@_from_option
@click.option("--limit", type=AT_LEAST_ONE, default=1, help="How many at most.")
@json_option
def peek(*, choice: _PlaceChoice, begin: int, limit: int, as_json: bool) -> None:
    """Show messages with their properties and bodies, and take nothing."""
    place = choice.place()
    found = asyncio.run(_described(place, begin, limit))
    texts = [
        "\n".join(f"{name}: {shown(str(value), keeps=_LINES)}" for name, value in one.items())
        for one in found
    ]
    tell(found, "\n\n".join(texts) or f"no messages in {place}", as_json=as_json)


async def _described(place: MessagePlace, begin: int, limit: int) -> list[dict[str, Any]]:
    from .message_form import describe_message
    from .message_moves import peek_all

    async with place.reached() as transport:
        found = peek_all(transport, place, begin=begin, limit=limit)
        return [describe_message(one.sections) async for one in found]


def _cell(value: Any) -> str:
    text = shown(str(value))
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


@examples(
    "pairbus messages send orders 'hello' --ready-file ready.json --namespace contoso",
    "pairbus messages send orders 'hello' --session one --subject greeting --property priority=3",
    "pairbus messages send orders --file orders.jsonl --json-lines --primary-env PRIMARY",
)
@messages.command()
@click.argument("path")
@click.argument("body", type=BODY, required=False)
@namespace_options
@click.option(
    "--file", "source", type=click.File("rb"), help="A message a line, instead of BODY; - is standard input."
)
@click.option("--json-lines", is_flag=True, help="Each line is a JSON object: body, message_id, and so on.")
@click.option("--session", metavar="ID", help="The session of messages that have none of their own.")
@click.option("--message-id", metavar="ID", help="The id of the message.")
@click.option("--subject", metavar="TEXT", help="The subject of the message.")
@click.option("--content-type", metavar="TEXT", help="The content type of the message.")
@repeatable("--property", "properties", "NAME=VALUE", "An application property.")
@json_option
def send(
    path: str,
    body: str | None,
    *,
    choice: NamespaceChoice,
    source: BinaryIO | None,
    json_lines: bool,
    session: str | None,
    message_id: str | None,
    subject: str | None,
    content_type: str | None,
    properties: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send a message, or the lines of a file, to a queue or topic of one namespace.

    For a pair of namespaces there is `pairbus send`.
    """
    if (body is None) == (source is None):
        raise ConfigurationError("give either BODY, or --file with a message a line")
    given = {"message_id": message_id, "subject": subject, "content_type": content_type}
    own: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if properties:
        own["application_properties"] = _parse_properties(properties)
    if own and source is not None:
        raise ConfigurationError("--message-id, --subject, --content-type and --property are for BODY")
    if source is None:
        lines = [(body or "").encode()]
        found: Iterable[FedMessage] = [{**one, **own} for one in read_plain_lines(lines, session=session)]
    else:
        read = read_json_lines if json_lines else read_plain_lines
        found = read(lines_of(source.fileno()), session=session)
    chosen, count = choice.resolve(), 0

    def add(sent: int) -> None:
        nonlocal count
        count += sent

    async def work() -> None:
        async with chosen.signed_in() as side:
            sender = side.open_sender(path)
            await send_all(sender, Feed(found), batch=100, timeout=ANSWER, advice=_ADVICE, on_sent=add)

    try:
        asyncio.run(work())
    finally:  # also where it ends early: the rest can be sent then, and no more
        tell({"path": path, "sent": count}, f"{path} of {chosen.name}: {count:,} sent", as_json=as_json)


def _parse_properties(given: tuple[str, ...]) -> dict[str, Any]:
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"--property {text}: write NAME=VALUE, such as priority=3")
        parsed = parse_value(value)
        is_plain = isinstance(parsed, str | int) or (isinstance(parsed, float) and math.isfinite(parsed))
        try:
            # What no number can say stays a text.
            values[name] = property_value(parsed if is_plain else value)
        except OverflowError as error:
            raise ConfigurationError(f"--property {text}: {error}") from None
    return values


@examples(
    "pairbus messages purge orders --dead-letter --ready-file ready.json --namespace contoso",
    "pairbus messages purge orders --session one --pair shop --yes --json",
)
@messages.command()
@_place_options
@yes_option
@json_option
def purge(*, choice: _PlaceChoice, yes: bool, as_json: bool) -> int:
    """Take all messages of an entity away, for good.

    Those that are there when it begins go: active, deferred and scheduled ones. What somebody else has under
    lock stays, and makes the exit code 4. `pairbus messages export` keeps a copy first.
    """
    from .message_moves import count_messages
    from .message_moves import purge as take_away

    place = choice.place()
    if not yes:
        with working("counting"):
            count = asyncio.run(count_messages(place))
        if count:
            confirm(f"Delete {counted(count, 'message', 'messages')} of {place} for good?")
    with working("purging"):
        done = asyncio.run(take_away(place))
    described = {"path": place.path, "purged": done.purged, "left": done.left}
    tell(described, f"{place}: {done.purged:,} purged", as_json=as_json)
    if done.left and not as_json:
        click.echo(f"{done.left:,} are left: somebody holds their locks, or they changed meanwhile", err=True)
    return INCOMPLETE if done.left else 0


@examples(
    "pairbus messages export orders --file orders.jsonl --ready-file ready.json --namespace contoso",
    "pairbus messages export orders --dead-letter --pair shop | jq .message_id",
)
@messages.command("export")
@_place_options
@click.option("--file", "target", type=FILE, help="Where to. [default: standard output]")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@_from_option
@click.option("--limit", type=AT_LEAST_ONE, help="How many at most. [default: all]")
@json_option
def export_messages(
    *, choice: _PlaceChoice, target: Path | None, force: bool, begin: int, limit: int | None, as_json: bool
) -> None:
    """Write messages to a file, one JSON object a line, and take nothing away.

    Each line holds the message exactly (`amqp`) and readably (the rest). The file appears when it is whole.
    """
    place = choice.place()
    if target is not None:
        check_target("--file", target)
        if target.exists() and not force:
            raise ConfigurationError(f"--file {target}: there is such a file; say --force to replace it")
    if as_json and target is None:
        raise ConfigurationError("--json needs --file, as standard output has the messages")

    async def work(write: Callable[[str], None]) -> int:
        from .message_form import write_line
        from .message_moves import peek_all

        count = 0
        async with place.reached() as transport:
            async for one in peek_all(transport, place, begin=begin, limit=limit):
                write(write_line(one.sections))
                count += 1
        return count

    with _written(target) as write:
        count = asyncio.run(work(write))
    if as_json:
        print_json({"path": place.path, "exported": count, "file": str(target)})
    else:
        click.echo(f"{place}: {count:,} exported", err=True)


@contextmanager
def _written(target: Path | None) -> Iterator[Callable[[str], None]]:
    if target is None:
        yield lambda line: click.echo(line, nl=False)
        return
    with drafted(target) as descriptor:
        yield lambda line: write_all(descriptor, line.encode())


@examples(
    "pairbus messages import orders --file orders.jsonl --ready-file ready.json --namespace contoso",
    "pairbus messages import orders --file orders.jsonl --journal orders.journal --pair shop",
)
@messages.command("import")
@click.argument("path")
@namespace_options
@click.option("--file", "source", type=click.File("rb"), default="-", help="The export; - is standard input.")
@click.option(
    "--journal",
    type=FILE,
    help="Keep account of the lines that were taken here: repeated, the import goes on with the rest.",
)
@json_option
def import_messages(
    path: str, *, choice: NamespaceChoice, source: BinaryIO, journal: Path | None, as_json: bool
) -> int:
    """Send the messages of an export, exactly as they were.

    They go in the order of the file, with their ids; scheduled ones wait for their time again, deferred ones
    come as active, and times to live begin anew. The exit code is 4 if not all were taken; repeat the import
    then, with the same journal.
    """
    from .message_form import read_line
    from .message_moves import ImportJournal, MessagePlace
    from .message_moves import import_messages as send_lines

    place = MessagePlace(choice.resolve(), path.strip("/"))
    numbered = enumerate(lines_of(source.fileno()), start=1)
    lines = ((number, read_line(line, number)) for number, line in numbered if line.strip())
    done = asyncio.run(send_lines(place, lines, ImportJournal(journal, str(place))))
    described = {
        "path": place.path,
        "imported": len(done.imported),
        "imported_before": done.before,
        "lines": ranges_of(done.imported),
        "refused": [{"line": line, "reason": reason} for line, reason in done.refused.items()],
        "stopped_at": done.stopped_at,
        "reason": None if done.failure is None else done.failure.description,
    }
    before = f", {done.before:,} were before" if done.before else ""
    tell(described, f"{place}: {len(done.imported):,} imported{before}", as_json=as_json)
    if not as_json:
        _print_missing(done, has_journal=journal is not None and done.is_noted)
    return INCOMPLETE if done.refused or done.failure is not None else 0


def _print_missing(done: ImportedMessages, *, has_journal: bool) -> None:
    for line, reason in done.refused.items():
        click.echo(f"line {line} was refused: {reason}", err=True)
    if done.failure is not None:
        click.echo(f"stopped at line {done.stopped_at}: {done.failure.description}", err=True)
        taken = ", ".join(f"{first}-{last}" for first, last in ranges_of(done.imported))
        if has_journal:
            click.echo("repeat the import with the same journal: it goes on with the rest", err=True)
        else:
            click.echo(f"the lines {taken} were taken; repeat the import without them", err=True)
