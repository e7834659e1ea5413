"""``pairbus.toml``: pairs by name, their options and entities. It names secrets and never holds them.

    prices                              a price sheet for ``pairbus cost``; relative to the file

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

What is not of this form is refused with the place and the nearest name. Values are never quoted: someone may
have put a connection string where a name belongs.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigurationError
from ..options import SendAvailabilityOptions

__all__ = [
    "DEFAULT_CONFIG",
    "PAIR_KEYS",
    "Config",
    "EntityConfig",
    "PairConfig",
    "SideConfig",
    "check_variable_name",
    "find_config",
    "load_config",
    "make_options",
]

#: Where the configuration is looked for when none is named.
DEFAULT_CONFIG = Path("pairbus.toml")

EntityKind = Literal["queue", "topic"]

_OPTIONS = {entry.name for entry in fields(SendAvailabilityOptions)}
#: What a pair may have.
PAIR_KEYS = {
    "primary_env",
    "primary_host",
    "secondary_env",
    "secondary_host",
    "primary_name",
    "state_dir",
    "certificate",
    "options",
    "entities",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideConfig:
    """How one side is reached: by a connection string in a variable, or by host name and Entra ID."""

    env: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityConfig:
    """One entity of the primary."""

    path: str
    kind: EntityKind | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A configuration file."""

    file: Path
    pairs: Mapping[str, PairConfig]
    prices: Path | None = None

    def pair(self, name: str) -> PairConfig:
        if name not in self.pairs:
            raise ConfigurationError(f"{self.file}: there is no pair {name!r}{_nearest(name, self.pairs)}")
        return self.pairs[name]


def find_config(file: Path | None) -> Config | None:
    """The file that was named, or else the default one, if there is one."""
    if file is not None:
        return load_config(file)
    return load_config(DEFAULT_CONFIG) if DEFAULT_CONFIG.exists() else None


def load_config(file: Path) -> Config:
    """Read a configuration file; whatever is wrong with it is told with its place."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"{file}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file}: is not TOML: {error}") from None
    _check_keys(found, {"options", "pairs", "prices"}, f"{file}")
    shared = _options_in(found, f"{file}: [options]")
    pairs = _table(found, "pairs", f"{file}")
    reader = _PairReader(file, shared)
    return Config(
        file=file,
        pairs={name: reader.read(name, _table(pairs, name, f"{file}")) for name in pairs},
        prices=_path_beside(file, found, "prices", where=f"{file}"),
    )


def make_options(values: Mapping[str, Any], *, where: str) -> SendAvailabilityOptions:
    """Options from plain values; a mistake is told with its place."""
    _check_keys(values, _OPTIONS, where)
    try:
        return SendAvailabilityOptions(**values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def check_variable_name(name: str, *, where: str) -> str:
    """The name of an environment variable; anything else is refused, and not shown."""
    if not _VARIABLE.fullmatch(name):
        raise ConfigurationError(
            f"{where}: give the name of an environment variable that holds the connection string, not the "
            "connection string itself"
        )
    return name


@dataclass(frozen=True, slots=True)
class _PairReader:
    file: Path
    shared: Mapping[str, Any]

    def read(self, name: str, table: Mapping[str, Any]) -> PairConfig:
        where = f"{self.file}: [pairs.{name}]"
        _check_keys(table, PAIR_KEYS, where)
        policies = dict(self.shared.get("ttl_policies", {}))
        options = {**self.shared, **_options_in(table, f"{self.file}: [pairs.{name}.options]")}
        policies.update(options.get("ttl_policies", {}))
        entities = self._entities(table, f"{self.file}: [pairs.{name}.entities", policies)
        if policies:
            options["ttl_policies"] = policies
        make_options(options, where=f"{self.file}: [pairs.{name}.options]")  # tell of mistakes now
        return PairConfig(
            name=name,
            primary=_side(table, "primary", where),
            secondary=_side(table, "secondary", where),
            primary_name=_text(table, "primary_name", where),
            state_dir=_path_beside(self.file, table, "state_dir", where=where),
            certificate=_path_beside(self.file, table, "certificate", where=where),
            options=options,
            entities=entities,
        )

    def _entities(
        self, table: Mapping[str, Any], where: str, policies: dict[str, Any]
    ) -> tuple[EntityConfig, ...]:
        entities = []
        for path in (found := _table(table, "entities", where)):
            place = f"{where}.{path!r}]"
            entity = _table(found, path, place)
            _check_keys(entity, {"kind", "ttl_policy"}, place)
            policy = _text(entity, "ttl_policy", place)
            if policy is not None:
                policies[path] = policy
            entities.append(EntityConfig(path=path, kind=_kind(entity, place)))
        return tuple(entities)


def _kind(table: Mapping[str, Any], where: str) -> EntityKind | None:
    match _text(table, "kind", where):
        case None:
            return None
        case "queue" | "topic" as kind:
            return kind
        case _:
            raise ConfigurationError(f'{where}: kind must be "queue" or "topic"')


def _side(table: Mapping[str, Any], side: str, where: str) -> SideConfig:
    env, host = _text(table, f"{side}_env", where), _text(table, f"{side}_host", where)
    if (env is None) == (host is None):
        raise ConfigurationError(f"{where}: give one of {side}_env and {side}_host")
    if env is not None:
        check_variable_name(env, where=f"{where}: {side}_env")
    elif host is not None and not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", host):
        raise ConfigurationError(
            f"{where}: {side}_host must be a host name, such as contoso.servicebus.windows.net"
        )
    return SideConfig(env=env, host=host)


def _options_in(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    options = _table(table, "options", where)
    _check_keys(options, _OPTIONS, where)
    return dict(options)


def _table(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{where}: {key} must be a table")
    return value


def _text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigurationError(f"{where}: {key} must be a text that is not empty")
    return value


def _path_beside(file: Path, table: Mapping[str, Any], key: str, *, where: str) -> Path | None:
    value = _text(table, key, where)
    return None if value is None else file.parent / Path(value).expanduser()


def _check_keys(table: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigurationError(f"{where}: {key!r} is not known{_nearest(key, known)}")


def _nearest(name: str, known: Collection[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
