"""`pairbus.toml`: pairs by name, their options and entities. It names secrets and never holds them.

Every mistake is noted with its place; `load_config` refuses a file that has any, `pairbus config check` tells
them all. Longer texts are never quoted: someone may have put a connection string where a name belongs. What
each key means stands in `config_schema`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions, TtlPolicy, find_conflict, find_mistake
from pairbus.plumbing.toml_tables import Mistake, TomlTable, name_nearest, parse_toml, read_text
from pairbus.stores.places import RecordPlace, looks_like_uri, parse_place

#: Where the configuration is looked for when none is named.
DEFAULT_CONFIG = Path("pairbus.toml")

EntityKindName = Literal["queue", "topic"]

_OPTIONS = tuple(entry.name for entry in fields(SendAvailabilityOptions))
#: What a month may cost: from less than any price of an hour to more than anybody pays in any currency.
BUDGETS = 0.0001, 1e12
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
    records: RecordPlace | None = None
    certificate: Path | None = None
    options: Mapping[str, Any]
    entities: tuple[EntityConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A configuration file: what it says, as far as it can be understood, and what cannot be."""

    file: Path
    pairs: Mapping[str, PairConfig]
    prices: Path | None = None
    budget: Decimal | None = None
    mistakes: tuple[Mistake, ...] = ()

    def pair(self, name: str | None) -> PairConfig:
        """The pair of that name; without one, the only pair that there is."""
        if name is None:
            if not self.pairs:
                raise ConfigurationError(
                    f"{self.file}: there is no pair; add [pairs.NAME], as `pairbus config example` shows"
                )
            if len(self.pairs) > 1:
                names = ", ".join(self.pairs)
                raise ConfigurationError(f"{self.file}: say which pair with --pair NAME; there are: {names}")
            (name,) = self.pairs
        if name not in self.pairs:
            raise ConfigurationError(
                f"{self.file}: there is no pair {name!r}{name_nearest(name, self.pairs)}"
            )
        return self.pairs[name]


def find_config(file: Path | None) -> Config | None:
    """The file that was named, or else the default one, if there is one."""
    if file is not None:
        return load_config(file)
    return load_config(DEFAULT_CONFIG) if DEFAULT_CONFIG.exists() else None


def load_config(file: Path) -> Config:
    """Read a configuration file that has no mistakes; otherwise the first is told with its place."""
    config = read_config(file)
    if not config.mistakes:
        return config
    first, *others = config.mistakes
    more = f" (and {len(others)} more; `pairbus config check` tells all)" if others else ""
    raise ConfigurationError(f"{file}: {first}{more}")


def read_config(file: Path) -> Config:
    """Read a configuration file, and note whatever is wrong with it."""
    text = read_text(file, advice="; `pairbus config example` prints one to begin with")
    top = parse_toml(text, where=str(file))
    shared = _options(top.table("options"))
    config = Config(
        file=file,
        prices=_path(top, "prices", file),
        budget=_amount(top, "budget"),
        pairs={
            name: _pair(name, table, shared=shared, file=file) for name, table in top.tables("pairs").items()
        },
    )
    return replace(config, mistakes=tuple(top.mistakes))


def make_options(values: Mapping[str, Any], *, where: str) -> SendAvailabilityOptions:
    """Options from plain values; a mistake is told with its place."""
    for name in values:
        if name not in _OPTIONS:
            raise ConfigurationError(f"{where}: {name!r} is not known{name_nearest(name, _OPTIONS)}")
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


def _pair(name: str, table: TomlTable, *, shared: Mapping[str, Any], file: Path) -> PairConfig:
    below = table.table("options")
    own = _options(below)
    policies = {**shared.get("ttl_policies", {}), **own.get("ttl_policies", {})}
    entities = []
    for path, entity in table.tables("entities").items():
        policy = entity.choice("ttl_policy", get_args(TtlPolicy), None)
        if policy is not None:
            policies[path] = policy
        entities.append(EntityConfig(path=path, kind=entity.choice("kind", get_args(EntityKindName), None)))
    options = {**shared, **own} | ({"ttl_policies": policies} if policies else {})
    if (conflict := find_conflict(options)) is not None:
        below.note(conflict)
    return PairConfig(
        name=name,
        primary=_side(table, "primary"),
        secondary=_side(table, "secondary"),
        primary_name=table.text("primary_name", None),
        state_dir=_path(table, "state_dir", file),
        records=_place(table, "records", file),
        certificate=_path(table, "certificate", file),
        options=options,
        entities=tuple(entities),
    )


def _amount(table: TomlTable, key: str) -> Decimal | None:
    found = table.number(key, None, low=BUDGETS[0], high=BUDGETS[1])
    return None if found is None else Decimal(str(found))


def _options(table: TomlTable) -> dict[str, Any]:
    return table.checked(_OPTIONS, find_mistake)


def _side(table: TomlTable, side: str) -> SideConfig:
    env, host = f"{side}_env", f"{side}_host"
    if (env in table) == (host in table):
        table.note(f"give one of {env} and {host}", env)
    return SideConfig(
        env=_matching(table, env, VARIABLE_PATTERN, _NOT_A_VARIABLE),
        host=_matching(table, host, HOST_PATTERN, "give a host name, such as contoso.servicebus.windows.net"),
    )


def _matching(table: TomlTable, key: str, pattern: str, advice: str) -> str | None:
    value = table.text(key, None)
    if value is None or re.fullmatch(pattern, value):
        return value
    table.note(f"{key}: {advice}", key)
    return None


def _place(table: TomlTable, key: str, file: Path) -> RecordPlace | None:
    """A directory or an object store. A URI that cannot be read is not quoted, see above."""
    value = table.text(key, None)
    try:
        if value is not None and looks_like_uri(value):
            return parse_place(value)
    except ConfigurationError as error:
        table.note(f"{key}: {error}", key)
        return None
    return _beside(table, key, file, value)


def _path(table: TomlTable, key: str, file: Path) -> Path | None:
    return _beside(table, key, file, table.text(key, None))


def _beside(table: TomlTable, key: str, file: Path, value: str | None) -> Path | None:
    """A path that is relative to the file."""
    if value is None:
        return None
    if "\0" in value:
        table.note(f"{key} has the character NUL, which no path has", key)
        return None
    try:
        return file.parent / Path(value).expanduser()
    except RuntimeError:
        table.note(f"{key} begins with the home of a user that there is not", key)
        return None
