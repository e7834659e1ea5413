"""`pairbus broker`: embedded Service Bus namespaces in a process of their own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import make_directory

from .examples import examples
from .logs import configure_logs, log_options
from .ready_file import announced, remove_stale
from .tables import json_option, print_json

if TYPE_CHECKING:
    from pairbus.broker import Broker

# The pair of every example. 5672 is AMQP's own port, and what SDKs dial when a connection string names none.
_DEFAULT_NAMESPACES = {"contoso": 5672, "contoso-dr": 5673}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog=examples(
        "pairbus broker",
        "pairbus broker --namespace contoso=0 --namespace contoso-dr=0 --ready-file ready.json",
        "pairbus broker --data ./data --policy app=c2VjcmV0:send,listen",
    )
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME=PORT",
    help="A namespace and its port; 0 picks a free one. Repeatable. [default: contoso=5672, contoso-dr=5673]",
)
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Keep everything in this directory."
)
@click.option("--memory", is_flag=True, help="Keep nothing on disk. This is the default.")
@click.option(
    "--ready-file", type=click.Path(dir_okay=False, path_type=Path), help="Write JSON here when ready."
)
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME=KEY:RIGHTS", help="Rights: send,listen,manage."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--cert", type=_FILE, help="A certificate (PEM) instead of one made at the first start.")
@click.option("--key", type=_FILE, help="The private key of --cert (PEM).")
@click.option("--jwt-key", type=_FILE, help="A key file that verifies JSON web tokens.")
@click.option("--control-port", type=click.IntRange(0, 65535), default=0, help="0 picks a free one.")
@click.option("--fault-plan", type=_FILE, help="A script of faults to run (TOML).")
@log_options
@json_option
def broker(
    *,
    namespaces: tuple[str, ...],
    data: Path | None,
    memory: bool,
    ready_file: Path | None,
    policies: tuple[str, ...],
    host: str,
    cert: Path | None,
    key: Path | None,
    jwt_key: Path | None,
    control_port: int,
    fault_plan: Path | None,
    log_level: str,
    log_format: str,
    as_json: bool,
) -> None:
    """Run embedded Service Bus namespaces until stopped.

    Each namespace has one port, on which AMQP, TLS and HTTP are told apart by their first bytes. The official
    SDKs connect with the connection strings that are printed. SIGINT and SIGTERM stop the broker cleanly.
    """
    if data is not None and memory:
        raise click.UsageError("--data and --memory exclude each other")
    if (cert is None) != (key is None):
        raise click.UsageError("--cert and --key belong together")
    ports = _parse_namespaces(namespaces)
    _make_directory(data)
    remove_stale(ready_file)
    configure_logs(log_level, log_format)
    from pairbus.broker import (  # late: the help of this command needs neither TLS nor an engine
        Broker,
        Policy,
    )

    embedded = Broker(
        ports,
        data_dir=data,
        policies=[Policy.parse(text) for text in policies],
        host=host,
        control_port=control_port,
        certificate=(cert, key) if cert and key else None,
        jwt_key=jwt_key,
        fault_plan=fault_plan,
    )
    asyncio.run(_serve(embedded, ready_file, as_json=as_json))


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
    return ports or _DEFAULT_NAMESPACES


def _make_directory(data: Path | None) -> None:
    try:
        if data is not None:
            make_directory(data)
    except OSError as error:
        raise ConfigurationError(
            f"--data {data}: cannot be made: {error.strerror}; name a directory that you may write to"
        ) from None


async def _serve(embedded: Broker, ready_file: Path | None, *, as_json: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with embedded:
        described = embedded.describe()
        with announced(described, ready_file):
            if as_json:
                print_json(described)
            else:
                _print_for_people(described, ready_file)
            await embedded.serve_until(stop)


def _print_for_people(described: Mapping[str, Any], ready_file: Path | None) -> None:
    certificates = set()
    for name, entry in described.items():
        if name == "control":
            continue
        certificates.add(entry["cert"])
        click.echo(f"{name} on port {entry['port']}")
        for policy, connection_string in entry["policies"].items():
            click.echo(f"  {policy:<8}{connection_string}")
    for path in sorted(certificates):
        click.echo(f"certificate for administration clients: {path}")
    control = f"pairbus fault list --ready-file {ready_file}" if ready_file else described["control"]["url"]
    click.echo(f"control: {control}")
    click.echo("Ctrl-C stops.")
