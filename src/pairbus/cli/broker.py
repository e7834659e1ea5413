"""`pairbus broker`: embedded Service Bus namespaces in a process of their own."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.collector import CalmCollector
from pairbus.plumbing.files import make_directory
from pairbus.plumbing.toml_tables import read_text

from .exit_codes import FOUND, UNREACHABLE
from .group import examples
from .logs import configure_logs, log_options
from .numbers import AT_LEAST_ONE, PORT, POSITIVE
from .places import DIRECTORY, EXISTING_FILE, FILE
from .ready_file import announced, remove_stale
from .shared_options import repeatable
from .tables import json_option, print_json, tell

if TYPE_CHECKING:
    from pairbus.broker import Broker

# The pair of every example. 5672 is AMQP's own port, and what SDKs dial when a connection string names none.
_FIRST_PORT = 5672
_DEFAULT_NAMESPACES = {"contoso": _FIRST_PORT, "contoso-dr": _FIRST_PORT + 1}
# Seconds between two looks at the files with entities.
_LOOK_AGAIN = 1.0


@examples(
    "pairbus broker",
    "pairbus broker --namespace contoso=0 --namespace contoso-dr=0 --ready-file ready.json",
    "pairbus broker --data ./data --policy app=c2VjcmV0:send,listen",
    "pairbus broker --data ./data --salvage",
    "pairbus broker --entities Config.json",
    "pairbus broker --tier premium",
)
@click.command()
@repeatable(
    "--namespace",
    "namespaces",
    "NAME=PORT",
    "A namespace and its port; 0 picks a free one.",
    default="contoso=5672, contoso-dr=5673",
)
@click.option(
    "--entities",
    type=EXISTING_FILE,
    multiple=True,
    help="Queues and topics to have: TOML, or the emulator's Config.json; followed on change. Repeatable.",
)
@click.option("--data", type=DIRECTORY, help="Keep everything in this directory.")
@click.option("--memory", is_flag=True, help="Keep nothing on disk. This is the default.")
@click.option(
    "--salvage", is_flag=True, help="Save what can be read of damaged stores in --data, and start nothing."
)
@click.option("--ready-file", type=FILE, help="Write JSON here when ready.")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME=KEY:RIGHTS", help="Rights: send,listen,manage."
)
@click.option(
    "--policy-file",
    "policy_files",
    type=EXISTING_FILE,
    multiple=True,
    help="Policies, one a line: keys stay private.",
)
@click.option(
    "--policy-env", "policy_variables", metavar="NAME", multiple=True, help="A variable with policies."
)
@click.option("--hide-keys", is_flag=True, help="Print no keys; the ready file has them.")
@click.option("--host", default="127.0.0.1", help="The address to listen on.")
@click.option(
    "--cert", type=EXISTING_FILE, help="A certificate (PEM) instead of one made at the first start."
)
@click.option("--key", type=EXISTING_FILE, help="The private key of --cert (PEM).")
@click.option("--jwt-key", type=EXISTING_FILE, help="A key file that verifies JSON web tokens.")
@repeatable("--jwt-issuer", "jwt_issuers", "ISS", "Whose tokens count.")
@click.option("--control-port", type=PORT, default=0, help="0 picks a free one.")
@click.option(
    "--max-connections", type=AT_LEAST_ONE, default=5000, help="Connections with a token, for each namespace."
)
@click.option(
    "--max-strangers",
    type=AT_LEAST_ONE,
    default=128,
    help="Connections that have shown no token yet; the oldest makes room for the next.",
)
@click.option(
    "--token-timeout", type=POSITIVE, default=60, help="Seconds from the connection to its first token."
)
@click.option(
    "--read-timeout",
    type=POSITIVE,
    default=30,
    help="Seconds that a client may leave what is written to it unread.",
)
@click.option(
    "--idle-timeouts",
    is_flag=True,
    help="End links after 10 idle minutes, and connections after 5 without a link, as Azure does.",
)
@click.option(
    "--tier",
    type=click.Choice(["basic", "standard", "premium"]),
    default="standard",
    help="Whose quotas the namespaces have.",
)
@click.option(
    "--limits",
    "strictness",
    type=click.Choice(["strict", "relaxed"]),
    default="strict",
    help="relaxed: short locks, windows and lives too, for tests.",
)
@click.option(
    "--credits",
    type=AT_LEAST_ONE,
    metavar="N",
    help="Throttle each namespace beyond N credits a second; Standard has 1000. [default: no limit]",
)
@click.option("--fault-plan", type=EXISTING_FILE, help="A script of faults to run (TOML).")
@log_options
@json_option
def broker(
    *,
    namespaces: tuple[str, ...],
    entities: tuple[Path, ...],
    data: Path | None,
    memory: bool,
    salvage: bool,
    ready_file: Path | None,
    policies: tuple[str, ...],
    policy_files: tuple[Path, ...],
    policy_variables: tuple[str, ...],
    hide_keys: bool,
    cert: Path | None,
    key: Path | None,
    jwt_key: Path | None,
    jwt_issuers: tuple[str, ...],
    max_connections: int,
    max_strangers: int,
    token_timeout: float,
    read_timeout: float,
    idle_timeouts: bool,
    log_level: str,
    log_format: str,
    as_json: bool,
    **others: Any,
) -> int:
    """Run embedded Service Bus namespaces until stopped.

    Each namespace has one port, on which AMQP, TLS, HTTP and WebSockets are told apart. The official
    SDKs connect with the connection strings that are printed. SIGINT and SIGTERM stop the broker cleanly.
    """
    if data is not None and memory:
        raise click.UsageError("--data and --memory exclude each other")
    if (cert is None) != (key is None):
        raise click.UsageError("--cert and --key belong together")
    if jwt_issuers and jwt_key is None:
        raise click.UsageError("--jwt-issuer needs --jwt-key")
    if salvage and data is None:
        raise click.UsageError("--salvage needs --data, the directory whose stores are damaged")
    ports = _parse_namespaces(namespaces) or _declared_namespaces(entities) or _DEFAULT_NAMESPACES
    if salvage and data is not None:
        return _salvage(data, list(ports) if namespaces else None, as_json=as_json)
    _make_directory(data)
    remove_stale(ready_file)
    configure_logs(log_level, log_format)
    from pairbus.broker import (  # late: the help of this command needs neither TLS nor an engine
        Broker,
        ConnectionLimits,
        IdleTimeouts,
        Policy,
    )

    given = [(f"--policy-file {path}", read_text(path)) for path in policy_files]
    given += map(_read_variable, policy_variables)
    embedded = Broker(
        ports,
        data_dir=data,
        policies=[
            *(policy for each in given for policy in Policy.parse_all(each[1], source=each[0])),
            *map(Policy.parse, policies),
        ],
        certificate=(cert, key) if cert and key else None,
        jwt_key=jwt_key,
        jwt_issuers=jwt_issuers,
        entities=entities,
        idle_timeouts=IdleTimeouts() if idle_timeouts else None,
        connection_limits=ConnectionLimits(
            connections=max_connections,
            strangers=max_strangers,
            token_timeout=token_timeout,
            read_timeout=read_timeout,
        ),
        **others,
    )
    asyncio.run(_serve(embedded, ready_file, as_json=as_json, with_keys=not hide_keys))
    return 0


def _read_variable(name: str) -> tuple[str, str]:
    """Name and content of a variable with policies."""
    text = os.environ.get(name)
    if text is None:
        raise ConfigurationError(f"--policy-env {name}: there is no variable of this name; set it first")
    return f"--policy-env {name}", text


def _salvage(data: Path, names: list[str] | None, *, as_json: bool) -> int:
    """Save what can be saved; 1 if something is lost, 3 if a store cannot be saved at all."""
    from pairbus.broker.errors import StoreError  # late, as below
    from pairbus.broker.store.salvage import salvage_store

    if names is None:
        names = sorted({found.parent.name for found in data.glob("*/store.*")})
    if not names:
        raise ConfigurationError(
            f"--data {data}: there is no store below it; name the data directory of a broker"
        )
    results: dict[str, dict[str, Any] | None] = {}
    codes = {0}
    for name in names:  # each by itself: what is hopeless hides nothing of the others
        try:
            found = salvage_store(data / name / "store.db")
        except StoreError as error:
            results[name] = {"error": str(error)}
            codes.add(UNREACHABLE)
            click.echo(f"pairbus: {name}: {error}", err=True)
            continue
        results[name] = None if found is None else found.describe()
        codes.add(0 if found is None or found.is_complete else FOUND)
        if not as_json:
            click.echo(f"{name}: {'nothing is wrong with it' if found is None else found.summary()}")
            for lost in found.lost if found is not None else ():
                click.echo(f"  lost: {lost}")
    if as_json:
        print_json(results)
    return max(codes)


def _parse_namespaces(given: tuple[str, ...]) -> Mapping[str, int]:
    ports: dict[str, int] = {}
    for text in given:
        name, separator, port = text.partition("=")
        if not (name and separator and port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ConfigurationError(
                f"--namespace {text}: write NAME=PORT, for example contoso=5672 or contoso=0"
            )
        if name == "control":
            raise ConfigurationError(
                f"--namespace {text}: the ready file has the control address below this name; choose another"
            )
        if name in ports:
            raise ConfigurationError(f"--namespace {text}: the namespace {name} was named before")
        ports[name] = int(port)
    return ports


def _declared_namespaces(entities: tuple[Path, ...]) -> Mapping[str, int]:
    """Those that files with entities name, from AMQP's own port on: where the official emulator listens."""
    if not entities:
        return {}
    from pairbus.broker.entities.files import read_entity_file  # late, as above

    names = dict.fromkeys(name for path in entities for name in read_entity_file(path).namespaces)
    return {name: _FIRST_PORT + number for number, name in enumerate(names)}


def _make_directory(data: Path | None) -> None:
    try:
        if data is not None:
            make_directory(data)
    except OSError as error:
        raise ConfigurationError(
            f"--data {data}: cannot be made: {error.strerror}; name a directory that you may write to"
        ) from None


async def _serve(embedded: Broker, ready_file: Path | None, *, as_json: bool, with_keys: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with embedded:
        shown = embedded.describe(with_keys=with_keys)
        with announced(embedded.describe(), ready_file), CalmCollector():
            tell(shown, _draw(shown, ready_file), as_json=as_json)
            watch = asyncio.create_task(_watch_entities(embedded))
            await embedded.serve_until(stop)
            watch.cancel()


async def _watch_entities(embedded: Broker) -> None:
    while True:
        await asyncio.sleep(_LOOK_AGAIN)
        embedded.reload_entities()


def _draw(described: Mapping[str, Any], ready_file: Path | None) -> Iterator[str]:
    certificates = set()
    for name, entry in described.items():
        if name == "control":
            continue
        certificates.add(entry["cert"])
        yield f"{name} on port {entry['port']}"
        policies = entry["policies"]
        width = max(map(len, policies), default=0)
        for policy in policies:
            shown = f"{policy:<{width}}  {policies[policy]}" if "connection_string" in entry else policy
            yield f"  {shown}"
    for path in sorted(certificates):
        yield f"certificate for administration clients: {path}"
    control = described["control"]["url"]
    if ready_file:
        control = f"pairbus fault list --ready-file {shlex.quote(str(ready_file))}"
    yield f"control: {control}"
    yield "Ctrl-C stops."
