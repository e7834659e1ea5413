"""Which single namespace a command works on: one of a running broker, one side of a pair, or a variable's."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairbus.errors import ConfigurationError

from .candidates import offer_namespaces
from .config import PairConfig, SideConfig, check_variable_name, find_config
from .pairs import SideAddress, address_of, config_option, pair_option
from .ready_file import ready_file_option
from .shared_options import gathered, variable_option

if TYPE_CHECKING:
    from pairbus.pump.pair import Side
    from pairbus.sdk.side import SdkSide

_HOW = (
    "Say which namespace: --ready-file FILE of a running broker, --primary-env NAME with the name of a "
    "variable that holds its connection string, or --pair NAME of a pairbus.toml"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceChoice:
    """What was said on the command line about the namespace."""

    ready_file: Path | None
    namespace: str | None
    config: Path | None
    pair: str | None
    side: str | None
    primary_env: str | None
    secondary_env: str | None

    def resolve(self) -> ChosenNamespace:
        """The namespace: the command line counts before PAIRBUS_READY_FILE, that before pairbus.toml."""
        named = self.primary_env, self.secondary_env
        variable = next(filter(None, reversed(named) if self.side == "secondary" else named), None)
        if variable is not None and self.pair is not None:
            raise ConfigurationError("--pair and --primary-env exclude each other")
        of_pair = self.pair is not None or self.side is not None
        if self.namespace is not None and (variable or of_pair or self.ready_file is None):
            raise ConfigurationError(
                "--namespace is one of a running broker: name its --ready-file too, or leave it out"
            )
        if variable is not None:
            return _choose(SideConfig(env=check_variable_name(variable, where="the name of the variable")))
        if not of_pair and self.ready_file is not None:
            return self._of_broker(self.ready_file)
        pair = self._pair()
        return _choose(pair.secondary if self.side == "secondary" else pair.primary, pair.certificate)

    def _pair(self) -> PairConfig:
        config = find_config(self.config)
        if config is None or (self.pair is None and not config.pairs):
            raise ConfigurationError(_HOW)
        return config.pair(self.pair)

    def _of_broker(self, path: Path) -> ChosenNamespace:
        from pairbus.broker.control import read_ready_file  # late: help needs no broker

        _, described = read_ready_file(path)
        names = list(described)
        if self.namespace is None and len(names) != 1:
            raise ConfigurationError(
                f"{path}: say which namespace with --namespace; there are: {', '.join(names)}"
            )
        name = self.namespace or names[0]
        if name not in names:
            raise ConfigurationError(f"{path}: there is no namespace {name!r}; there are: {', '.join(names)}")
        entry = described[name]
        address = SideAddress(connection_string=entry["connection_string"])
        return ChosenNamespace(name=name, address=address, certificate=Path(entry["cert"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenNamespace:
    """A namespace that can be reached."""

    name: str
    address: SideAddress
    certificate: Path | None

    @asynccontextmanager
    async def signed_in(self) -> AsyncIterator[SdkSide]:
        """The namespace for the SDK, with a credential if it is reached by host name; closed at the end."""
        from pairbus.sdk.credentials import default_credential  # late: help needs no SDK
        from pairbus.sdk.side import SdkSide

        credential = default_credential() if self.address.host is not None else None
        keywords = {} if self.certificate is None else {"connection_verify": str(self.certificate)}
        side = SdkSide(self.address.text, credential, keywords=keywords)
        try:
            yield side
        finally:
            await side.close(_GOODBYE)
            if credential is not None:
                await credential.close()

    def for_transport(self) -> Side:
        """The namespace for our own AMQP."""
        from pairbus.pump.pair import Side  # late, as above

        return Side(
            connection_string=self.address.connection_string,
            host=self.address.host,
            ca_file=None if self.certificate is None else str(self.certificate),
        )


# How long connections may take to close.
_GOODBYE = 5.0


#: The options by which a command is told its namespace.
NAMESPACE_OPTIONS = (
    functools.partial(ready_file_option, required=False),
    click.option(
        "--namespace",
        metavar="NAME",
        shell_complete=offer_namespaces,
        help="The namespace of that broker, if it has several.",
    ),
    variable_option("--primary-env", "The variable with the namespace's connection string."),
    variable_option("--secondary-env", "The same, for the other one of a pair."),
    config_option,
    pair_option,
    click.option(
        "--side",
        type=click.Choice(["primary", "secondary"]),
        help="Which namespace of the pair. [default: primary]",
    ),
)
namespace_options = gathered(NamespaceChoice, *NAMESPACE_OPTIONS)


def _choose(side: SideConfig, certificate: Path | None = None) -> ChosenNamespace:
    from pairbus.pairing.names import primary_name  # late, as above

    address = address_of(side)
    return ChosenNamespace(name=primary_name(address.parsed), address=address, certificate=certificate)
