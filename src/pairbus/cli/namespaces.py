"""Which single namespace a command works on: one of a running broker, one side of a pair, or a variable's."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import read_given
from pairbus.plumbing.json_text import parse_json

from .candidates import offer_namespaces, offer_variables
from .config import PairConfig, SideConfig, check_variable_name, find_config
from .pairs import SideAddress, address_of, config_option, pair_option, parse_side
from .ready_file import ready_file_option
from .suggestions import completing_errors

if TYPE_CHECKING:
    from pairbus.pump.pair import Side
    from pairbus.sdk.side import SdkSide

_F = TypeVar("_F", bound=Callable[..., Any])
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
    side: str
    primary_env: str | None
    secondary_env: str | None

    def resolve(self) -> ChosenNamespace:
        """The namespace, with its connection string. What is named on the command line counts before
        PAIRBUS_READY_FILE, and that before a pairbus.toml.
        """
        variable = self._variable()
        if variable is not None and self.pair is not None:
            raise ConfigurationError("--pair and --primary-env exclude each other")
        if variable is not None:
            return _choose(SideConfig(env=check_variable_name(variable, where="the name of the variable")))
        if self.pair is None and self.ready_file is not None:
            return self._of_broker(self.ready_file)
        pair = self._pair()
        return _choose(pair.primary if self.side == "primary" else pair.secondary, pair.certificate)

    def _variable(self) -> str | None:
        if self.side == "primary":
            return self.primary_env or self.secondary_env
        return self.secondary_env or self.primary_env

    def _pair(self) -> PairConfig:
        config = find_config(self.config)
        if config is None or (self.pair is None and not config.pairs):
            raise ConfigurationError(_HOW)
        if self.pair is None and len(config.pairs) > 1:
            raise ConfigurationError(
                f"{config.file}: say which pair with --pair; there are: {', '.join(config.pairs)}"
            )
        return config.pair(self.pair or next(iter(config.pairs)))

    def _of_broker(self, path: Path) -> ChosenNamespace:
        described = _read_ready_file(path)
        names = [name for name in described if name != "control"]
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


def namespace_options(command: _F) -> _F:
    """The options by which a command is told its namespace; it gets them as one `choice`."""

    @functools.wraps(command)
    def call(*arguments: Any, **given: Any) -> Any:
        names = NamespaceChoice.__dataclass_fields__
        choice = NamespaceChoice(**{name: given.pop(name) for name in names})
        with completing_errors():
            return command(*arguments, choice=choice, **given)

    decorated: Any = call
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


_OPTIONS = (
    functools.partial(ready_file_option, required=False),
    click.option(
        "--namespace",
        metavar="NAME",
        shell_complete=offer_namespaces,
        help="The namespace of that broker, if it has several.",
    ),
    click.option(
        "--primary-env",
        metavar="NAME",
        shell_complete=offer_variables,
        help="The variable with the namespace's connection string.",
    ),
    click.option(
        "--secondary-env",
        metavar="NAME",
        shell_complete=offer_variables,
        help="The same, for the other one of a pair.",
    ),
    config_option,
    pair_option,
    click.option(
        "--side",
        type=click.Choice(["primary", "secondary"]),
        default="primary",
        help="Which namespace of the pair.",
    ),
)


def _choose(side: SideConfig, certificate: Path | None = None) -> ChosenNamespace:
    from pairbus.pairing.names import primary_name  # late, as above

    address, found = address_of(side), parse_side(side, os.environ)
    assert found is not None  # the variable is set, or there would be no address
    return ChosenNamespace(name=primary_name(found), address=address, certificate=certificate)


def _read_ready_file(path: Path) -> dict[str, Any]:
    try:
        described = parse_json(read_given(path))
        if all("connection_string" in one for name, one in described.items() if name != "control"):
            return dict(described)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the ready file {path}: {error.strerror}. "
            f"Start a broker first: pairbus broker --ready-file {shlex.quote(str(path))}"
        ) from None
    except (ValueError, AttributeError, TypeError):
        described = None
    raise ConfigurationError(f"{path} is not a ready file: it has no namespaces")
