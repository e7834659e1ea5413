"""A pair as a pump knows it: names, and where to find what is secret.

Configuration travels to executors by pickle. What travels is names: of environment variables that hold
connection strings, of hosts, of classes of credentials. A side that was given a connection string itself
works in this process and refuses to be pickled.
"""

from __future__ import annotations

import importlib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.pairing.names import (
    ConnectionString,
    Endpoint,
    endpoint_of,
    parse_connection_string,
    primary_name,
)
from pairbus.plumbing.hosts import is_loopback
from pairbus.wire.line import Place
from pairbus.wire.tokens import CredentialTokens, TokenSource, tokens_of_string


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One namespace of a pair. Give one of: `env`, `connection_string`, or `host` with `credential`."""

    env: str | None = None
    connection_string: str | None = field(default=None, repr=False)
    host: str | None = None
    credential: str = "default"
    ca_file: str | None = None
    #: Gives the tokens instead of all that is named above; like a connection string for this process only.
    token_source: TokenSource | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = [value for value in (self.env, self.connection_string, self.host) if value]
        if len(given) != 1:
            raise ConfigurationError(
                "A side of a pair is given by exactly one of env= (the name of an environment variable that "
                "holds its connection string), connection_string= and host="
            )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.connection_string is not None:
            raise ConfigurationError(
                "A connection string is not sent to other processes. Put it into an environment variable "
                "of the executors and give that one's name: Side(env='NAME')"
            )
        if self.token_source is not None:
            raise ConfigurationError(
                "A credential is not sent to other processes. Give the name of its class: "
                "Side(host='HOST', credential='package.module:Class')"
            )
        side = partial(Side, env=self.env, host=self.host, credential=self.credential, ca_file=self.ca_file)
        return side, ()

    def resolve(self, environment: Mapping[str, str] | None = None) -> ResolvedSide:
        """Look up what the names stand for, in this process."""
        if self.host is not None:
            return ResolvedSide(endpoint_of(self.host), None, self)
        text = self.connection_string
        if text is None:
            assert self.env is not None
            text = (os.environ if environment is None else environment).get(self.env)
            if not text:
                raise ConfigurationError(
                    f"The environment variable {self.env} is not set; it must hold the connection string"
                )
        parsed = parse_connection_string(text)
        return ResolvedSide(parsed.endpoint, parsed, self)


@dataclass(frozen=True, slots=True)
class ResolvedSide:
    """A side with its secrets, for one process."""

    endpoint: Endpoint
    parsed: ConnectionString | None = field(repr=False)
    side: Side

    def place(self) -> Place:
        """Where to connect: by TLS, except for emulators, and on the loopback unless there is a CA for it."""
        is_emulator = self.parsed is not None and self.parsed.emulator
        is_plain = is_emulator or (self.side.ca_file is None and is_loopback(self.endpoint.host))
        return Place(self.endpoint.host, self.endpoint.port, None if is_plain else self._tls())

    @property
    def is_service(self) -> bool:
        """Whether this is Azure's service, as far as can be told: no emulator, and not on this machine."""
        is_emulator = self.parsed is not None and self.parsed.emulator
        return not is_emulator and not is_loopback(self.endpoint.host)

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.side.ca_file)
        except OSError as error:  # also what the file holds is no certificate
            raise ConfigurationError(
                f"There is no certificate in {self.side.ca_file}: give the PEM file of the CA ({error})"
            ) from error

    def tokens(self) -> TokenSource:
        """Where tokens come from."""
        if self.side.token_source is not None:
            return self.side.token_source
        if self.parsed is not None:
            return tokens_of_string(self.parsed)
        return CredentialTokens(self.credential(), owns=True)

    def credential(self) -> Any:
        """A new credential of the class that the side names."""
        name = self.side.credential
        if name == "default":
            from pairbus.sdk.credentials import default_credential  # the SDK is slow to import

            return default_credential()
        module, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)()
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(
                f"There is no credential {name!r}: give 'default' or 'package.module:Class' ({error})"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpPair:
    """A pair. `name` is how it shows in receipts; by default the primary's name."""

    primary: Side
    secondary: Side
    name: str = ""

    @classmethod
    def from_env(cls, primary: str, secondary: str, *, name: str = "") -> PumpPair:
        """A pair given by the names of two environment variables."""
        return cls(primary=Side(env=primary), secondary=Side(env=secondary), name=name)

    @classmethod
    def from_connection_strings(cls, primary: str, secondary: str, *, name: str = "") -> PumpPair:
        """A pair for this process only."""
        return cls(
            primary=Side(connection_string=primary), secondary=Side(connection_string=secondary), name=name
        )

    def label(self) -> str:
        """The name, or that of the primary."""
        if self.name:
            return self.name
        resolved = self.primary.resolve()
        return primary_name(resolved.parsed or resolved.endpoint)
