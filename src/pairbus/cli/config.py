"""`pairbus.toml`: pairs by name, their options and entities. It names secrets and never holds them.

    prices                              a price sheet for `pairbus cost`; relative to the file

    [options]                           for every pair: any option of SendAvailabilityOptions

    [pairs.NAME]
    primary_env, secondary_env          the names of variables that hold connection strings, or
    primary_host, secondary_host        host names, signed in to with Entra ID; each side by itself
    primary_name                        begins the names of the backlog queues
    state_dir                           redirect records, spool, status; relative to the file
    certificate                         a PEM file that the namespaces' certificates are verified with

    [pairs.NAME.options]                above [options]

    [pairs.NAME.entities.PATH]
    kind                                "queue" or "topic"
    ttl_policy                          "pause" or "deduct"

There is one reader. It notes every mistake with its place and the nearest name, and goes on; `load_config`
refuses a file that has any, `pairbus config check` tells them all. Values are never quoted, short ones of
options apart: someone may have put a connection string where a name belongs.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions, TtlPolicy, find_conflict, find_mistake

__all__ = [
    "DEFAULT_CONFIG",
    "ENTITY_KEYS",
    "HOST_PATTERN",
    "PAIR_KEYS",
    "TOP_KEYS",
    "VARIABLE_PATTERN",
    "Config",
    "ConfigReading",
    "EntityConfig",
    "EntityKindName",
    "Mistake",
    "PairConfig",
    "SideConfig",
    "check_variable_name",
    "find_config",
    "load_config",
    "make_options",
    "read_config",
]

#: Where the configuration is looked for when none is named.
DEFAULT_CONFIG = Path("pairbus.toml")

EntityKindName = Literal["queue", "topic"]

_OPTIONS = {entry.name for entry in fields(SendAvailabilityOptions)}
#: What a file may have, and what it means.
TOP_KEYS = {
    "prices": "A price sheet for pairbus cost, relative to this file.",
    "options": "Options of every pair.",
    "pairs": "Pairs of namespaces, by name.",
}
#: What a pair may have, and what it means.
PAIR_KEYS = {
    "primary_env": "The name of the variable that holds the primary's connection string.",
    "primary_host": "The primary's host name instead, signed in to with Entra ID.",
    "secondary_env": "The name of the variable that holds the secondary's connection string.",
    "secondary_host": "The secondary's host name instead, signed in to with Entra ID.",
    "primary_name": "What begins the names of the backlog queues.",
    "state_dir": "Where records and status lie, relative to this file.",
    "certificate": "A PEM file with which the namespaces' certificates are verified, relative to this file.",
    "options": "Options of this pair, above those of all.",
    "entities": "Entities of the primary, by path.",
}
#: What an entity may have, and what it means.
ENTITY_KEYS = {
    "kind": "What it is.",
    "ttl_policy": "Whether the time in the backlog counts against the time to live, above the options.",
}
VARIABLE_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"
HOST_PATTERN = r"[A-Za-z0-9.:\[\]-]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideConfig:
    """How one side is reached: by a connection string in a variable, or by host name and Entra ID."""

    env: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityConfig:
    """One entity of the primary."""

    path: str
    kind: EntityKindName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairConfig:
    """One pair as the file has it."""

    name: str
    primary: SideConfig
    secondary: SideConfig
    primary_name: str | None = None
    state_dir: Path | None = None
    certificate: Path | None = None
    options: Mapping[str, Any]
    entities: tuple[EntityConfig, ...] = ()

    @property
    def place(self) -> str:
        """Where the file has it."""
        return f"[pairs.{_key(self.name)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A configuration file."""

    file: Path
    pairs: Mapping[str, PairConfig]
    prices: Path | None = None

    def pair(self, name: str) -> PairConfig:
        if name not in self.pairs:
            hint = _nearest(name, self.pairs) or f"; there are: {', '.join(self.pairs) or 'none'}"
            raise ConfigurationError(f"{self.file}: there is no pair {name!r}{hint}")
        return self.pairs[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is wrong at one place of a file; the text does not repeat the place."""

    #: The table, as TOML writes it: `pairs.shop.options`; empty for the top of the file.
    table: str
    text: str
    #: The pair that it is about, or None if it concerns all.
    pair: str | None = None

    def __str__(self) -> str:
        return f"[{self.table}]: {self.text}" if self.table else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReading:
    """What a file says, as far as it can be understood, and what cannot be."""

    config: Config
    mistakes: tuple[Mistake, ...]


def find_config(file: Path | None) -> Config | None:
    """The file that was named, or else the default one, if there is one."""
    if file is not None:
        return load_config(file)
    return load_config(DEFAULT_CONFIG) if DEFAULT_CONFIG.exists() else None


def load_config(file: Path) -> Config:
    """Read a configuration file that has no mistakes; otherwise the first is told with its place."""
    reading = read_config(file)
    if not reading.mistakes:
        return reading.config
    first, *others = reading.mistakes
    more = f" (and {len(others)} more; `pairbus config check` tells all)" if others else ""
    raise ConfigurationError(f"{file}: {first}{more}")


def read_config(file: Path) -> ConfigReading:
    """Read a configuration file, and note whatever is wrong with it."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file}: there is no such file; `pairbus config example` prints one to begin with"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        mistake = Mistake(table="", text=f"is not TOML: {error}")
        return ConfigReading(config=Config(file=file, pairs={}), mistakes=(mistake,))
    return _Reader(file).read(found)


def make_options(values: Mapping[str, Any], *, where: str) -> SendAvailabilityOptions:
    """Options from plain values; a mistake is told with its place."""
    for name in values:
        if name not in _OPTIONS:
            raise ConfigurationError(f"{where}: {_unknown(name, _OPTIONS)}")
    try:
        return SendAvailabilityOptions(**values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def check_variable_name(name: str, *, where: str) -> str:
    """The name of an environment variable; anything else is refused, and not shown."""
    if not re.fullmatch(VARIABLE_PATTERN, name):
        raise ConfigurationError(f"{where}: {_NOT_A_VARIABLE}")
    return name


_NOT_A_VARIABLE = (
    "give the name of an environment variable that holds the connection string, not the connection string "
    "itself"
)


class _Reader:
    """One pass through a file. Each method takes what is right, and notes the rest."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._mistakes: list[Mistake] = []
        self._pair: str | None = None

    def read(self, found: Mapping[str, Any]) -> ConfigReading:
        self._check_keys(found, TOP_KEYS, "")
        shared = self._options(found, "options")
        prices = self._path(found, "prices", "")
        pairs = {}
        for name, table in self._tables(found, "pairs", "").items():
            self._pair = name
            pairs[name] = self._read_pair(name, table, shared)
        config = Config(file=self._file, pairs=pairs, prices=prices)
        return ConfigReading(config=config, mistakes=tuple(self._mistakes))

    def _read_pair(self, name: str, table: Mapping[str, Any], shared: Mapping[str, Any]) -> PairConfig:
        where = f"pairs.{_key(name)}"
        self._check_keys(table, PAIR_KEYS, where)
        own = self._options(table, f"{where}.options")
        policies = {**shared.get("ttl_policies", {}), **own.get("ttl_policies", {})}
        entities = self._entities(table, where, policies)
        options = {**shared, **own} | ({"ttl_policies": policies} if policies else {})
        if (conflict := find_conflict(options)) is not None:
            self._note(f"{where}.options", conflict)
        return PairConfig(
            name=name,
            primary=self._side(table, "primary", where),
            secondary=self._side(table, "secondary", where),
            primary_name=self._text(table, "primary_name", where),
            state_dir=self._path(table, "state_dir", where),
            certificate=self._path(table, "certificate", where),
            options=options,
            entities=entities,
        )

    def _options(self, table: Mapping[str, Any], where: str) -> dict[str, Any]:
        options = self._table(table, "options", where.rpartition(".")[0])
        self._check_keys(options, _OPTIONS, where)
        good = {}
        for name, value in options.items():
            if name not in _OPTIONS:
                continue
            if (mistake := find_mistake(name, value)) is not None:
                self._note(where, mistake)
            else:
                good[name] = value
        return good

    def _entities(
        self, table: Mapping[str, Any], where: str, policies: dict[str, Any]
    ) -> tuple[EntityConfig, ...]:
        entities = []
        for path, entity in self._tables(table, "entities", where).items():
            place = f"{where}.entities.{_key(path)}"
            self._check_keys(entity, ENTITY_KEYS, place)
            policy = self._choice(entity, "ttl_policy", get_args(TtlPolicy), place)
            if policy is not None:
                policies[path] = policy
            kind = self._choice(entity, "kind", get_args(EntityKindName), place)
            entities.append(EntityConfig(path=path, kind=kind))
        return tuple(entities)

    def _side(self, table: Mapping[str, Any], side: str, where: str) -> SideConfig:
        env, host = f"{side}_env", f"{side}_host"
        if (env in table) == (host in table):
            self._note(where, f"give one of {env} and {host}")
        return SideConfig(
            env=self._matching(table, env, VARIABLE_PATTERN, where, _NOT_A_VARIABLE),
            host=self._matching(
                table, host, HOST_PATTERN, where, "give a host name, such as contoso.servicebus.windows.net"
            ),
        )

    def _matching(
        self, table: Mapping[str, Any], key: str, pattern: str, where: str, advice: str
    ) -> str | None:
        value = self._text(table, key, where)
        if value is None or re.fullmatch(pattern, value):
            return value
        self._note(where, f"{key}: {advice}")
        return None

    def _choice(self, table: Mapping[str, Any], key: str, choices: Collection[Any], where: str) -> Any | None:
        value = table.get(key)
        if value is None or (isinstance(value, str) and value in choices):
            return value
        words = " or ".join(f'"{choice}"' for choice in choices)
        self._note(where, f"{key} must be {words}")
        return None

    def _tables(self, table: Mapping[str, Any], key: str, where: str) -> dict[str, Mapping[str, Any]]:
        """The tables below one, by name."""
        below = f"{where}.{key}" if where else key
        found = self._table(table, key, where)
        for name, value in found.items():
            if not isinstance(value, Mapping):
                self._note(below, f"{name} must be a table")
        return {name: value for name, value in found.items() if isinstance(value, Mapping)}

    def _table(self, table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if isinstance(value, Mapping):
            return value
        self._note(where, f"{key} must be a table")
        return {}

    def _path(self, table: Mapping[str, Any], key: str, where: str) -> Path | None:
        value = self._text(table, key, where)
        return None if value is None else self._file.parent / Path(value).expanduser()

    def _text(self, table: Mapping[str, Any], key: str, where: str) -> str | None:
        value = table.get(key)
        if value is None or (isinstance(value, str) and value):
            return value
        self._note(where, f"{key} must be a text that is not empty")
        return None

    def _check_keys(self, table: Mapping[str, Any], known: Collection[str], where: str) -> None:
        for key in table:
            if key not in known:
                self._note(where, _unknown(key, known))

    def _note(self, where: str, text: str) -> None:
        self._mistakes.append(Mistake(table=where, text=text, pair=self._pair))


def _key(name: str) -> str:
    """A key as TOML writes it: in quotes where it is no bare word."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _unknown(key: str, known: Collection[str]) -> str:
    return f"{key!r} is not known{_nearest(key, known)}"


def _nearest(name: str, known: Collection[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
