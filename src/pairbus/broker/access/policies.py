"""Shared access policies: names, keys and what their holders may do.

A namespace has the policy `RootManageSharedAccessKey` with every right, `send` and `listen` with one
each, and those that its owner adds. The keys of the first three are random and kept in a file, so that a
connection string outlives restarts; those of the others come with every start, so that leaving one out takes
it away.
Keys are secrets: they stand in the file and in connection strings, and in no repr, log line or exception.
"""

from __future__ import annotations

import base64
import enum
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import SECRET, make_directory, publish, tighten
from pairbus.plumbing.json_text import parse_json

ROOT_POLICY: Final = "RootManageSharedAccessKey"
KEY_BYTES: Final = 32
# The service's own limits. Such names need no quoting in a token, in which clients quote them differently.
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,256}")
# A key is used as it is written. It must fit between the semicolons of a connection string.
KEY: Final = re.compile(r"[!-:<-~]{1,256}")


class Claim(enum.StrEnum):
    """A right. Manage includes the two others."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_CLAIMS: Final = frozenset(Claim)
_CLAIMS_BY_WORD: Final = {claim.lower(): claim for claim in Claim}


def make_key() -> str:
    """A random key, in the form that the service gives them."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


@dataclass(frozen=True)
class Policy:
    """One policy. Manage implies Send and Listen."""

    name: str
    key: str = field(repr=False)
    claims: frozenset[Claim]

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigurationError(
                # Not quoted: whoever forgets the name gives the key in its place.
                "The name of a policy cannot be used. Use letters, digits, '.', '-' and '_'."
            )
        if not KEY.fullmatch(self.key) or not self.key.strip("="):
            raise ConfigurationError(
                "The key of a policy cannot be used. Write NAME=KEY:RIGHTS, with up to 256 printable ASCII "
                "characters as the key, without spaces and semicolons, such as the output of "
                "`openssl rand -base64 32`."
            )
        claims = frozenset(Claim(claim) for claim in self.claims)
        if not claims:
            raise ConfigurationError(
                f"The policy {self.name!r} gives no right. Give it send, listen or manage."
            )
        object.__setattr__(self, "claims", ALL_CLAIMS if Claim.MANAGE in claims else claims)

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read `NAME=KEY:send,listen,manage`: the first `=` and the last `:` separate."""
        # What is wrong may be the key, so the text itself is never quoted.
        named, colon, rights = text.rpartition(":")
        name, equals, key = named.partition("=")
        form = "Write it as NAME=KEY:RIGHTS, for example orders=c2VjcmV0:send,listen."
        if not colon or not equals:
            raise ConfigurationError(f"A policy lacks its '=' or its ':'. {form}")
        words = [word.strip().lower() for word in rights.split(",")]
        if not all(word in _CLAIMS_BY_WORD for word in words):
            raise ConfigurationError(
                f"The rights of a policy, after its last ':', must be of send, listen, manage. {form}"
            )
        return cls(name, key, frozenset(_CLAIMS_BY_WORD[word] for word in words))

    @classmethod
    def parse_all(cls, text: str, *, source: str) -> list[Policy]:
        """Read policies, one a line, from a file or a variable, which errors call `source`.

        Empty lines and those that begin with `#` are passed over; a semicolon ends a line as well.
        """
        policies = []
        for number, line in enumerate(re.split("[\n;]", text), start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    policies.append(cls.parse(line.strip()))
                except ConfigurationError as error:
                    raise ConfigurationError(f"{source}, line {number}: {error}") from None
        return policies

    @classmethod
    def generate(cls, name: str, *claims: Claim) -> Policy:
        """Make a policy with a random key."""
        return cls(name, make_key(), frozenset(claims))


class Policies(dict[str, Policy]):
    """The policies of one namespace, by name. A later one takes the place of an earlier one of its name.

    They are as old as the namespace: `made_at` is in Unix seconds.
    """

    def __init__(self, policies: Iterable[Policy], *, made_at: float = 0.0) -> None:
        super().__init__({policy.name: policy for policy in policies})
        self.made_at = made_at

    def __repr__(self) -> str:
        return f"Policies({', '.join(self)})"

    @property
    def root(self) -> Policy:
        """The policy with every right that each namespace has."""
        return self[ROOT_POLICY]

    @classmethod
    def generate(cls, given: Iterable[Policy] = (), *, now: float = 0.0) -> Policies:
        """Make the three default policies with random keys, and add those that are given."""
        defaults = [
            Policy.generate(ROOT_POLICY, *ALL_CLAIMS),
            Policy.generate("send", Claim.SEND),
            Policy.generate("listen", Claim.LISTEN),
        ]
        return cls([*defaults, *given], made_at=now)

    @classmethod
    def load_or_create(cls, path: Path, *, given: Iterable[Policy] = (), now: float = 0.0) -> Policies:
        """Read the default policies from their file, or make them and write it; add those that are given."""
        if path.exists():
            tighten(path)
            kept = cls.load(path)
        else:
            kept = cls.generate(now=now)
            kept.save(path)
        return cls([*kept.values(), *given], made_at=kept.made_at)

    @classmethod
    def load(cls, path: Path) -> Policies:
        """Read policies from a file that `save` wrote."""
        try:
            kept = parse_json(path.read_bytes())
            made_at = float(kept.get("made_at") or path.stat().st_mtime)  # older files do not tell it
            policies = [Policy(one["name"], one["key"], frozenset(one["claims"])) for one in kept["policies"]]
            loaded = cls(policies, made_at=made_at)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigurationError) as error:
            # The cause may quote the file, and with it keys; its type is enough.
            raise ConfigurationError(
                f"The policies in {path} cannot be read ({type(error).__name__}). Bring the file back from a "
                "copy, or delete it: new keys are then made, and connection strings change."
            ) from None
        if ROOT_POLICY not in loaded:
            raise ConfigurationError(
                f"The policies in {path} lack {ROOT_POLICY}. Delete the file to make new ones."
            )
        return loaded

    def save(self, path: Path) -> None:
        """Write all policies with their keys to a file that only its owner may read."""
        entries = [{"name": one.name, "key": one.key, "claims": sorted(one.claims)} for one in self.values()]
        content = json.dumps({"made_at": self.made_at, "policies": entries}, indent=2)
        make_directory(path.parent)
        publish(path, f"{content}\n", mode=SECRET)


def connection_string(host: str, port: int, *, namespace: str, policy: Policy) -> str:
    """Write what a client needs to reach a namespace with the rights of a policy. It holds the key."""
    bracketed = f"[{host}]" if ":" in host else host
    return (
        f"Endpoint=sb://{bracketed}:{port};SharedAccessKeyName={policy.name};SharedAccessKey={policy.key};"
        f"UseDevelopmentEmulator=true;Namespace={namespace}"
    )
