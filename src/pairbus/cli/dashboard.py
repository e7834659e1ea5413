"""`pairbus dashboard`: pairs, backlogs, money and embedded namespaces on a page, live."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairbus import __version__
from pairbus.errors import ConfigurationError

from .backlogs import choose_backlog
from .config import DEFAULT_CONFIG, find_config
from .group import examples
from .logs import configure_logs, log_options
from .numbers import PORT, POSITIVE
from .pairs import PairChoice, pair_options
from .places import DIRECTORY, FILE, check_target
from .prices import budget_option, choose_budget, choose_sheet, prices_option
from .shared_options import repeatable

if TYPE_CHECKING:
    from pairbus.dashboard.server import Serving
    from pairbus.dashboard.watched import WatchedPair

TOKEN_ENV = "PAIRBUS_DASHBOARD_TOKEN"


@examples(
    "pairbus dashboard",
    "pairbus dashboard --pair shop --ready-file ready.json --control",
    "pairbus dashboard --state /var/lib/shop/pairbus --budget 250",
    "pairbus dashboard --host 0.0.0.0 --allow-host bus.example.com --port 8400",
)
@click.command()
@pair_options
@click.option(
    "--state",
    "states",
    multiple=True,
    type=DIRECTORY,
    help="A state directory of clients, without a pair: backlog unknown. Repeatable.",
)
@click.option(
    "--ready-file",
    type=FILE,
    envvar="PAIRBUS_READY_FILE",
    show_envvar=True,
    help="The ready file of a broker whose embedded namespaces are shown.",
)
@click.option("--host", default="127.0.0.1", help="The address to listen on.")
@click.option("--port", type=PORT, default=8400, help="The port; 0 picks one.")
@repeatable("--allow-host", "names", "NAME", "A name that browsers call it by.")
@click.option("--control", is_flag=True, help="Let the page pause, drain, redrive, break and heal.")
@click.option("--address-file", type=FILE, help="Write address and token there, as JSON, once it is served.")
@click.option(
    "--history", type=FILE, help="Where the history is kept. [default: in the first state directory]"
)
@budget_option
@prices_option
@click.option("--interval", type=POSITIVE, default=1, help="Seconds between two looks at files.")
@click.option(
    "--peek-interval",
    type=POSITIVE,
    default=30,
    help="Seconds between two looks into backlog queues, which are billed.",
)
@log_options
def dashboard(
    *,
    choice: PairChoice,
    states: tuple[Path, ...],
    ready_file: Path | None,
    host: str,
    port: int,
    names: tuple[str, ...],
    control: bool,
    address_file: Path | None,
    history: Path | None,
    budget: Decimal | None,
    prices: Path | None,
    interval: float,
    peek_interval: float,
    log_level: str,
    log_format: str,
) -> int:
    """Show pairs, backlogs, money and embedded namespaces on a page, live.

    Without a pair, every pair of pairbus.toml is shown. It is read-only unless --control is given. With
    --control, or off the loopback, a token is needed: PAIRBUS_DASHBOARD_TOKEN, or one that is made up.
    """
    from pairbus.dashboard.server import Serving, serve_until_signal  # late: help needs no server
    from pairbus.dashboard.watched import LookPace, Watched
    from pairbus.plumbing.hosts import is_loopback

    configure_logs(log_level, log_format)
    pairs = list(_pairs(choice, states))
    if not pairs and ready_file is None:
        raise ConfigurationError(
            f"Say what to show: --pair NAME, or --primary-env and --secondary-env, a {DEFAULT_CONFIG} with "
            "pairs, --state DIR, or the --ready-file of a broker"
        )
    if address_file is not None:
        check_target("--address-file", address_file)
    config = find_config(choice.config)
    watched = Watched(
        pairs=pairs,
        ready_file=ready_file,
        sheet=choose_sheet(prices, config),
        budget=choose_budget(budget, config),
        pace=LookPace(glance=interval, count=max(5.0, interval), peek=peek_interval),
    )
    given = os.environ.get(TOKEN_ENV, "").strip() or None  # a secret in a file often ends with a new line
    needs_token = control or not is_loopback(host)
    how = Serving(
        host=host,
        port=port,
        token=given or (secrets.token_urlsafe(24) if needs_token else None),
        control=control,
        names=names,
        history=history or (pairs[0].state_dir / "dashboard.jsonl" if pairs else None),
        version=__version__,
    )
    announce = partial(_announce, how=how, address_file=address_file, is_secret=given is not None)
    asyncio.run(serve_until_signal(watched, how, announce))
    return 0


def _pairs(choice: PairChoice, states: tuple[Path, ...]) -> Iterator[WatchedPair]:
    from pairbus.dashboard.watched import WatchedPair

    config = find_config(choice.config)
    chosen = [choice] if choice.is_made else []
    if not chosen and config is not None and not states:
        chosen = [replace(choice, pair=name) for name in config.pairs]
    for one in chosen:
        found = choose_backlog(one)
        yield WatchedPair(
            name=one.configured().name or found.settings.name,
            state_dir=found.settings.state_dir,
            shared_records=found.settings.shared_records,
            backlog=found.backlog,
            options=found.options,
        )
    for state, name in zip(states, _short_names(states), strict=True):
        yield WatchedPair(name=name, state_dir=state)


def _short_names(states: Sequence[Path]) -> list[str]:
    """The last part of each path, or the whole of it where that part is not its own."""
    paths = [state.resolve() for state in states]
    parts = [path.name for path in paths]
    return [path.name if parts.count(path.name) == 1 else str(path) for path in paths]


def _announce(address: str, *, how: Serving, address_file: Path | None, is_secret: bool) -> None:
    """Tell the address. A token that was given stays out of it: what a service prints is kept in logs."""
    from pairbus.plumbing.files import SECRET, publish

    url = address.partition("#")[0]
    click.echo(f"dashboard: {url if is_secret else address}  (Ctrl-C ends it)")
    if is_secret:
        click.echo(f"           the token is that of {TOKEN_ENV}")
    if address_file is not None:
        said = {"url": url, "token": how.token, "pid": os.getpid()}
        publish(address_file, json.dumps(said), mode=SECRET, durable=False)
