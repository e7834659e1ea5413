"""`pairbus entity`: queues, topics, subscriptions and rules of one namespace, embedded or Azure's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.errors import ConfigurationError

from .group import CommandGroup, examples
from .namespaces import NamespaceChoice, namespace_options
from .progress import working
from .shared_options import confirm, repeatable, yes_option
from .tables import draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.sdk.entities import EntityAddress

T = TypeVar("T")


@examples(
    "pairbus entity ls --ready-file ready.json --namespace contoso",
    "pairbus entity create orders --set requires_session=true --primary-env PRIMARY",
)
@click.group(cls=CommandGroup)
def entity() -> None:
    """List, show, create and delete queues, topics, subscriptions and rules.

    The namespace is that of a running broker (--ready-file, or the variable PAIRBUS_READY_FILE), or one of
    Azure's: --primary-env names a variable with its connection string, --pair a pair of pairbus.toml. The
    Manage claim is needed. PATH is a queue or topic, TOPIC/Subscriptions/NAME, or one with /Rules/RULE.
    """


@examples(
    "pairbus entity ls --ready-file ready.json --namespace contoso",
    "pairbus entity ls --pair shop --side secondary --json",
)
@entity.command("ls")
@namespace_options
@json_option
def list_entities(*, choice: NamespaceChoice, as_json: bool) -> None:
    """List queues, topics and subscriptions, and how many messages they have."""
    from pairbus.sdk import entities  # late: help needs no SDK

    with working("listing entities"):
        rows = _administer(choice, entities.list_entities)
    head = ("KIND", "PATH", "STATUS", "ACTIVE", "DEAD LETTERS", "SCHEDULED")
    names = ("kind", "path", "status", "active", "dead_letter", "scheduled")
    cells = [[row.get(name, 0) for name in names] for row in rows]
    tell(rows, draw_table(head, cells, empty="there are no entities"), as_json=as_json)


@examples(
    "pairbus entity show orders --ready-file ready.json --namespace contoso",
    "pairbus entity show events/Subscriptions/audit --pair shop --json",
)
@entity.command()
@click.argument("path")
@namespace_options
@json_option
def show(path: str, *, choice: NamespaceChoice, as_json: bool) -> None:
    """Show the settings of an entity, its counts, and the rules of a subscription."""
    from pairbus.sdk.entities import EntityAddress, show_entity  # late: help needs no SDK

    address = EntityAddress(path)
    described = _administer(choice, partial(show_entity, address=address), path=address.path)
    tell(described, _draw(described), as_json=as_json)


def _draw(described: Mapping[str, Any]) -> Iterator[str]:
    told = [(name, _in_words(value)) for name, value in described.items() if name != "rules"]
    yield from draw_table(("NAME", "VALUE"), told)
    if rules := described.get("rules"):
        rows = [(rule["name"], rule["filter"], rule["action"] or "") for rule in rules]
        yield from ("", *draw_table(("RULE", "FILTER", "ACTION"), rows))


@examples(
    "pairbus entity create orders --set requires_session=true --set lock_duration=30",
    "pairbus entity create events --topic --if-missing",
    "pairbus entity create events/Subscriptions/audit --set max_delivery_count=5",
    "pairbus entity create events/Subscriptions/audit/Rules/large --sql 'amount > 100'",
)
@entity.command()
@click.argument("path")
@namespace_options
@click.option("--topic", is_flag=True, help="Create a topic; without it a path of one name is a queue.")
@repeatable(
    "--set",
    "settings",
    "NAME=VALUE",
    "A setting, named as in the Python client; durations in seconds or like PT1M.",
)
@click.option(
    "--sql", metavar="TEXT", help="The filter of a rule, or of the only rule of a new subscription."
)
@click.option(
    "--action", metavar="TEXT", help="What the rule does to the messages, such as SET size = 'big'."
)
@click.option(
    "--if-missing", is_flag=True, help="It is no mistake if it is there already; it stays as it is."
)
@json_option
def create(
    path: str,
    *,
    choice: NamespaceChoice,
    topic: bool,
    settings: tuple[str, ...],
    sql: str | None,
    action: str | None,
    if_missing: bool,
    as_json: bool,
) -> None:
    """Create a queue, topic, subscription or rule."""
    from pairbus.sdk.entities import EntityAddress, create_entity  # late: help needs no SDK

    address = EntityAddress(path)
    _check_create(address, topic=topic, settings=settings, sql=sql, action=action)
    make = partial(
        create_entity,
        address=address,
        is_topic=topic,
        settings=settings,
        sql=sql,
        action=action,
        if_missing=if_missing,
    )
    is_new = _administer(choice, make, path=address.path)
    word = "created" if is_new else "is there already"
    tell({"path": address.path, "created": is_new}, f"{address.path}: {word}", as_json=as_json)


@examples(
    "pairbus entity delete orders --ready-file ready.json --namespace contoso",
    "pairbus entity delete events/Subscriptions/audit --pair shop --yes --if-exists",
)
@entity.command()
@click.argument("path")
@namespace_options
@yes_option
@click.option("--if-exists", is_flag=True, help="It is no mistake if there is none.")
@json_option
def delete(path: str, *, choice: NamespaceChoice, yes: bool, if_exists: bool, as_json: bool) -> None:
    """Delete an entity with all that is in it.

    The messages of a queue or subscription go with it, and with a topic its subscriptions.
    """
    from pairbus.sdk.entities import EntityAddress, delete_entity  # late: help needs no SDK

    address = EntityAddress(path)
    name = choice.resolve().name
    if not yes:
        confirm(f"Delete {address.path} of {name}, and all that is in it?")
    remove = partial(delete_entity, address=address, if_exists=if_exists)
    is_gone = _administer(choice, remove, path=address.path)
    word = "deleted" if is_gone else "is not there"
    tell({"path": address.path, "deleted": is_gone}, f"{address.path}: {word}", as_json=as_json)


def _administer(choice: NamespaceChoice, work: Callable[[Any], Awaitable[T]], *, path: str = "") -> T:
    from pairbus.sdk.entities import administer  # late: help needs no SDK

    chosen = choice.resolve()

    async def perform() -> T:
        async with chosen.signed_in() as side:
            return await administer(side, work, name=chosen.name, path=path)

    return asyncio.run(perform())


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {count:,}" for name, count in value.items())
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _check_create(
    address: EntityAddress, *, topic: bool, settings: tuple[str, ...], sql: str | None, action: str | None
) -> None:
    if topic and address.subscription is not None:
        raise ConfigurationError(f"{address.path} is no path of a topic; leave --topic out")
    if (sql is not None or action is not None) and address.subscription is None:
        raise ConfigurationError("--sql and --action are for subscriptions and rules")
    if address.rule is not None and settings:
        raise ConfigurationError("a rule has no settings; give it --sql, and --action")
    if action is not None and sql is None:
        raise ConfigurationError("--action needs --sql; 1=1 takes every message")
