"""Which pair a command works on: named in `pairbus.toml`, or by the names of two variables; what reaches it.

Connection strings come from variables alone: command lines stand in histories and lists of processes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.toml_tables import parse_value

from .candidates import offer_options, offer_pairs
from .config import (
    DEFAULT_CONFIG,
    EntityConfig,
    PairConfig,
    SideConfig,
    check_variable_name,
    find_config,
    make_options,
)
from .places import FILE
from .shared_options import gathered, repeatable, variable_option

if TYPE_CHECKING:
    from pairbus.client.aio import PairedServiceBusClient
    from pairbus.client.observers.observer import Observer
    from pairbus.options import SendAvailabilityOptions
    from pairbus.pairing.names import ConnectionString, Endpoint
    from pairbus.sdk.side import SdkSide
    from pairbus.stores.places import RecordPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class SideAddress:
    """A connection string, which does not show in the repr, or a host name."""

    connection_string: str | None = field(default=None, repr=False)
    host: str | None = None

    @property
    def text(self) -> str:
        """What the clients are given as an address."""
        return self.connection_string or self.host or ""

    @property
    def parsed(self) -> ConnectionString | Endpoint:
        """What the address says; ConfigurationError if it is none."""
        from pairbus.pairing.names import endpoint_of, parse_connection_string  # late: help needs none

        text = self.connection_string
        return endpoint_of(self.host or "") if text is None else parse_connection_string(text)

    @property
    def endpoint(self) -> Endpoint:
        from pairbus.pairing.names import ConnectionString

        found = self.parsed
        return found.endpoint if isinstance(found, ConnectionString) else found


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSettings:
    """A pair with everything that a command needs to work on it."""

    primary: SideAddress
    secondary: SideAddress
    #: What begins the names of the backlog queues.
    name: str
    options: SendAvailabilityOptions
    entities: tuple[EntityConfig, ...]
    state_dir: Path
    #: Where records of all hosts come together, if the file says so.
    shared_records: RecordPlace | None
    certificate: Path | None

    @property
    def records(self) -> RecordPlace:
        """Where records lie: those of all hosts, or of this one."""
        from pairbus.client.state.directory import records_dir

        return self.shared_records or records_dir(self.state_dir).absolute()

    @property
    def sdk_options(self) -> dict[str, Any]:
        """The keywords for the SDK's clients."""
        return {} if self.certificate is None else {"connection_verify": str(self.certificate)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairChoice:
    """What was said on the command line about the pair."""

    config: Path | None
    pair: str | None
    primary_env: str | None
    secondary_env: str | None
    primary_name: str | None
    options: tuple[str, ...]

    def resolve(
        self, *, state: Path | None = None, overrides: Mapping[str, Any] | None = None
    ) -> PairSettings:
        """The pair, with its connection strings. `overrides` are options above all others."""
        from pairbus.client.state.directory import default_state_dir  # late: help needs no clients
        from pairbus.pairing.names import check_distinct, primary_name

        chosen = self.configured()
        primary, secondary = address_of(chosen.primary), address_of(chosen.secondary)
        check_distinct(primary.endpoint, secondary.endpoint)
        name = primary_name(primary.parsed, alias=self.primary_name or chosen.primary_name)
        options = {**chosen.options, **_parse_options(self.options), **(overrides or {})}
        return PairSettings(
            primary=primary,
            secondary=secondary,
            name=name,
            options=make_options(options, where="options"),
            entities=chosen.entities,
            state_dir=state or chosen.state_dir or default_state_dir(name),
            shared_records=chosen.records,
            certificate=chosen.certificate,
        )

    @property
    def is_made(self) -> bool:
        """Whether the command line, or a configuration with one pair, says which pair is meant."""
        if self.pair or self.primary_env or self.secondary_env:
            return True
        config = find_config(self.config)
        return config is not None and len(config.pairs) == 1

    def configured(self) -> PairConfig:
        """The pair as it is named, before any variable is read: what may travel to other processes."""
        if self.primary_env or self.secondary_env:
            return self._from_variables()
        config = find_config(self.config)
        if config is None and self.pair is not None:
            raise ConfigurationError(
                f"--pair {self.pair}: there is no {DEFAULT_CONFIG} in {Path.cwd()}; "
                "name the file with --config"
            )
        if config is None:
            raise ConfigurationError(
                "Say which pair: --primary-env NAME --secondary-env NAME, the names of variables that hold "
                f"connection strings, or --pair NAME with a {DEFAULT_CONFIG}"
            )
        return config.pair(self.pair)

    def _from_variables(self) -> PairConfig:
        if self.pair is not None:
            raise ConfigurationError("--pair and --primary-env exclude each other")
        if self.primary_env is None or self.secondary_env is None:
            raise ConfigurationError("--primary-env and --secondary-env belong together")
        return PairConfig(
            name="",
            primary=SideConfig(env=check_variable_name(self.primary_env, where="--primary-env")),
            secondary=SideConfig(env=check_variable_name(self.secondary_env, where="--secondary-env")),
            options={},
        )


config_option = click.option(
    "--config",
    type=FILE,
    envvar="PAIRBUS_CONFIG",
    show_envvar=True,
    help="The configuration file. [default: pairbus.toml, if there is one]",
)
pair_option = click.option(
    "--pair", metavar="NAME", shell_complete=offer_pairs, help="A pair of the configuration file."
)
#: The options by which every command is told which pair it works on.
pair_options = gathered(
    PairChoice,
    config_option,
    pair_option,
    variable_option("--primary-env", "The variable with the primary's connection string."),
    variable_option("--secondary-env", "The variable with the secondary's connection string."),
    click.option("--primary-name", metavar="NAME", help="What begins the names of the backlog queues."),
    repeatable(
        "--option",
        "options",
        "NAME=VALUE",
        "An option of the pair, above those of the file.",
        offer=offer_options,
    ),
)


def _parse_options(given: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"--option {text}: write NAME=VALUE, such as failover_interval=30")
        values[name] = parse_value(value)
    return values


def address_of(side: SideConfig) -> SideAddress:
    """The connection string out of its variable, or the host name."""
    try:
        found = find_side(side, os.environ)
    except ConfigurationError as error:
        where = "" if side.env is None else f"The environment variable {side.env}: "
        raise ConfigurationError(f"{where}{error}") from None
    if found is None:
        raise ConfigurationError(
            f"The environment variable {side.env} is not set; it has to hold a connection string"
        )
    return found


def find_side(side: SideConfig, environment: Mapping[str, str]) -> SideAddress | None:
    """Where a side is, or None if its variable is not set; ConfigurationError if it cannot be understood."""
    value = environment.get(side.env or "", "").strip() or None
    if side.host is None and value is None:
        return None
    found = SideAddress(host=side.host, connection_string=value if side.host is None else None)
    _ = found.parsed  # which raises
    return found


@asynccontextmanager
async def signed_in(settings: PairSettings) -> AsyncIterator[ReachablePair]:
    """The pair, with a credential for the sides that are reached by host name, closed at the end."""
    if settings.primary.host is None and settings.secondary.host is None:
        yield ReachablePair(settings, None)
        return
    from pairbus.sdk.credentials import default_credential  # late: most pairs have connection strings

    credential = default_credential()
    try:
        yield ReachablePair(settings, credential)
    finally:
        await credential.close()


@dataclass(frozen=True, slots=True)
class ReachablePair:
    """A pair that can be reached."""

    settings: PairSettings
    credential: Any

    @property
    def primary(self) -> SdkSide:
        """The primary; close it."""
        return self._side(self.settings.primary)

    @property
    def secondary(self) -> SdkSide:
        """The secondary; close it."""
        return self._side(self.settings.secondary)

    def client(self, observers: Iterable[Observer]) -> PairedServiceBusClient:
        from pairbus.client.aio import PairedServiceBusClient
        from pairbus.stores.places import write_uri

        settings = self.settings
        return PairedServiceBusClient(
            settings.primary.text,
            self._credential_of(settings.primary),
            settings.secondary.text,
            self._credential_of(settings.secondary),
            options=settings.options,
            primary_name=settings.name,
            state_dir=settings.state_dir,
            records=None if settings.shared_records is None else write_uri(settings.shared_records),
            observers=observers,
            sdk_options=settings.sdk_options,
        )

    def _side(self, address: SideAddress) -> SdkSide:
        from pairbus.sdk.side import SdkSide

        return SdkSide(address.text, self._credential_of(address), keywords=self.settings.sdk_options)

    def _credential_of(self, side: SideAddress) -> Any:
        return None if side.host is None else self.credential
