"""A scenario: who sends what, what breaks when, and what must come true. Written in TOML.

    title, story                        what it is about, for people
    seed                                fixes the moments of the faults and the bodies of the messages
    send_for                            seconds of sending
    clients                             paired clients, each of which sends to every entity

    [options]                           any option of SendAvailabilityOptions

    [[entity]]
    path, kind                          "queue" or "topic"
    subscriptions                       of a topic: their names
    sessions                            how many sessions its messages belong to; 0: none
    duplicate_detection                 whether the primary drops what it has seen
    rate, size, batch                   messages a second of all clients together, bytes of a body,
                                        messages that are sent by one call

    [[fault]]                           as in a fault plan, with `namespace` "primary" or "secondary";
                                        `at` is seconds after the first send

    [syphon]
    at                                  when it begins; by default when all is well again
    max_rate                            messages a second, at most
    patience                            how long it is run again for messages that wait for their entity
    heal_after                          after so many runs all faults are ended; by default none is

    [expect]
    failover                            the entities that must fail over; no other one may
    within                              seconds from the first failing send to the failover
    back_within                         seconds from the end of the faults to the failback
    refused, waiting                    whether sends may raise, and messages be left in the backlog
    spool, put_aside                    whether the spool must be needed, and the syphon be made to wait

What is not of this form is refused with the place and the nearest name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pairbus.broker.faults.plan import FaultPlan
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.names import path_key

from .toml_table import Table, nearest

__all__ = [
    "DEFAULT",
    "PRIMARY",
    "SECONDARY",
    "EntityPlan",
    "Expectation",
    "Scenario",
    "SyphonPlan",
    "find_scenario",
    "load_scenario",
    "parse_scenario",
    "shipped_scenarios",
    "shipped_text",
]

PRIMARY = "primary"
SECONDARY = "secondary"
#: The scenario that is played when none is named.
DEFAULT = "namespace-down"

_TOP = (
    "title",
    "story",
    "seed",
    "send_for",
    "clients",
    "options",
    "entity",
    "fault",
    "syphon",
    "expect",
)
_ENTITY = ("path", "kind", "subscriptions", "sessions", "duplicate_detection", "rate", "size", "batch")
_SYPHON = ("at", "max_rate", "patience", "heal_after")
_EXPECT = ("failover", "within", "back_within", "refused", "waiting", "spool", "put_aside")
_OPTIONS = tuple(entry.name for entry in fields(SendAvailabilityOptions))
# What a drill may last and send, so that a slip of the pen does not fill a machine.
_LONGEST = 3600.0
_MOST_MESSAGES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPlan:
    """One queue or topic of the primary, and what is sent to it."""

    path: str
    kind: Literal["queue", "topic"]
    subscriptions: tuple[str, ...]
    sessions: int
    duplicate_detection: bool
    rate: float
    size: int
    batch: int

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where its messages are received: the queue itself, or the subscriptions."""
        if self.kind == "queue":
            return (self.path,)
        return tuple(f"{self.path}/Subscriptions/{name}" for name in self.subscriptions)

    def session_names(self, clients: int) -> tuple[str, ...]:
        """Its sessions. Each client has one at least: the messages of one that two clients send to have no
        order.
        """
        count = max(self.sessions, clients) if self.sessions else 0
        return tuple(f"session-{number}" for number in range(count))

    def messages(self, seconds: float) -> int:
        """How many are sent in so long."""
        return int(self.rate * seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonPlan:
    """When and how the backlog is drained."""

    at: float | None
    max_rate: float | None
    patience: float
    heal_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must come true, beyond that nothing is lost."""

    failover: tuple[str, ...]
    within: float
    back_within: float
    refused: bool
    waiting: bool
    spool: bool
    put_aside: bool

    def must_fail_over(self, path: str) -> bool:
        return path_key(path) in map(path_key, self.failover)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole."""

    name: str
    title: str
    story: str
    seed: int
    send_for: float
    clients: int
    given_options: Mapping[str, Any]
    options: SendAvailabilityOptions
    entities: tuple[EntityPlan, ...]
    faults: FaultPlan
    syphon: SyphonPlan
    expect: Expectation

    def entity(self, path: str) -> EntityPlan | None:
        """The entity with this path, however it is spelled."""
        key = path_key(path)
        return next((one for one in self.entities if path_key(one.path) == key), None)


def shipped_scenarios() -> tuple[str, ...]:
    """The names of those that come with the package, the default first."""
    names = sorted(
        entry.name.removesuffix(".toml")
        for entry in (files("pairbus.drill") / "scenarios").iterdir()
        if entry.name.endswith(".toml")
    )
    return (DEFAULT, *(name for name in names if name != DEFAULT))


def shipped_text(name: str) -> str:
    """The TOML of a shipped scenario."""
    known = shipped_scenarios()
    if name not in known:
        raise ConfigurationError(
            f"there is no scenario {name!r}{nearest(name, known)} (a file of your own ends in .toml)"
        )
    return (files("pairbus.drill") / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")


def find_scenario(name: str, *, seed: int | None = None) -> Scenario:
    """A shipped scenario by its name, or one of a file, which ends in `.toml`."""
    if name.endswith(".toml"):
        return load_scenario(Path(name), seed=seed)
    return parse_scenario(shipped_text(name), name=name, where=name, seed=seed)


def load_scenario(file: Path, *, seed: int | None = None) -> Scenario:
    """A scenario of the user's own."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{file}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: cannot be read: {error}") from None
    return parse_scenario(text, name=file.stem, where=str(file), seed=seed)


def parse_scenario(text: str, *, name: str, where: str, seed: int | None = None) -> Scenario:
    """Read a scenario; `seed` takes the place of its own."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where}: is not TOML: {error}") from None
    top = Table(document, where, known=_TOP)
    send_for = top.number("send_for", 20.0, low=0.1, high=_LONGEST)
    assert send_for is not None
    chosen = top.whole("seed", 0, low=0, high=2**63 - 1) if seed is None else seed
    options = _options(top)
    entities = _entities(top)
    if sum(one.messages(send_for) for one in entities) > _MOST_MESSAGES:
        raise top.fail(f"sends more than {_MOST_MESSAGES:,} messages; lower rate or send_for")
    return Scenario(
        name=name,
        title=top.text("title"),
        story=" ".join(top.text("story", top.text("title")).split()),
        seed=chosen,
        send_for=send_for,
        clients=top.whole("clients", 1, low=1, high=50),
        given_options=dict(top.raw("options", {})),
        options=options,
        entities=entities,
        faults=_faults(top, chosen, entities),
        syphon=_syphon(top),
        expect=_expectation(top, options, entities),
    )


def _options(top: Table) -> SendAvailabilityOptions:
    values = top.raw("options", {})
    where = f"{top.where}: [options]"
    Table(values, where, known=_OPTIONS)
    try:
        return SendAvailabilityOptions(**values)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _tables(top: Table, key: str) -> Sequence[Any]:
    tables = top.raw(key, [])
    if not isinstance(tables, list):
        raise top.fail(f"{key} is written as [[{key}]], once for each")
    return tables


def _entities(top: Table) -> tuple[EntityPlan, ...]:
    tables = _tables(top, "entity")
    found = tuple(
        _entity(Table(table, f"{top.where}: [[entity]] {number}", known=_ENTITY))
        for number, table in enumerate(tables, start=1)
    )
    if not found:
        raise top.fail("needs at least one [[entity]] with a path")
    if len({path_key(one.path) for one in found}) < len(found):
        raise top.fail("two [[entity]] tables have the same path")
    return found


def _entity(table: Table) -> EntityPlan:
    kind = table.choice("kind", ("queue", "topic"), default="queue")
    rate = table.number("rate", 20.0, low=0.1, high=100_000)
    assert rate is not None
    plan = EntityPlan(
        path=table.text("path").strip("/"),
        kind="queue" if kind == "queue" else "topic",
        subscriptions=table.texts("subscriptions"),
        sessions=table.whole("sessions", 0, low=0, high=1000),
        duplicate_detection=table.flag("duplicate_detection"),
        rate=rate,
        size=table.whole("size", 256, low=0, high=200_000),
        batch=table.whole("batch", 1, low=1, high=1000),
    )
    if kind == "topic" and not plan.subscriptions:
        raise table.fail('a topic needs subscriptions, such as subscriptions = ["audit"]')
    if kind == "queue" and plan.subscriptions:
        raise table.fail('only a topic has subscriptions; say kind = "topic"')
    return plan


def _faults(top: Table, seed: int, entities: Sequence[EntityPlan]) -> FaultPlan:
    try:
        plan = FaultPlan.of(top.raw("fault", []), seed=seed)
        plan.check_namespaces((PRIMARY, SECONDARY))
    except ConfigurationError as error:
        raise ConfigurationError(f"{top.where}: {error}") from None
    known = [path for one in entities for path in (one.path, *one.nodes)]
    keys = {path_key(path) for path in known}
    for step in plan.steps:
        if step.namespace == PRIMARY and step.entity is not None and path_key(step.entity) not in keys:
            raise top.fail(f"a [[fault]] names the entity {step.entity!r}{nearest(step.entity, known)}")
    return plan


def _syphon(top: Table) -> SyphonPlan:
    table = Table(top.raw("syphon", {}), f"{top.where}: [syphon]", known=_SYPHON)
    patience = table.number("patience", 30.0, high=_LONGEST)
    assert patience is not None
    return SyphonPlan(
        at=table.number("at", None, high=_LONGEST),
        max_rate=table.number("max_rate", None, low=1.0),
        patience=patience,
        heal_after=table.whole("heal_after", 0, low=0, high=1000),
    )


def _expectation(top: Table, options: SendAvailabilityOptions, entities: Sequence[EntityPlan]) -> Expectation:
    table = Table(top.raw("expect", {}), f"{top.where}: [expect]", known=_EXPECT)
    paths = [one.path for one in entities]
    failover = table.texts("failover")
    for path in failover:
        if path_key(path) not in map(path_key, paths):
            raise table.fail(f"failover names the entity {path!r}{nearest(path, paths)}")
    # What the client promises: see docs/promises.md.
    patience = options.failover_interval if options.failover_interval > 0 else options.send_timeout
    within = table.number("within", patience + 1.0, high=_LONGEST)
    back = table.number(
        "back_within", options.ping_primary_interval * options.good_pings + 1.0, high=_LONGEST
    )
    assert within is not None
    assert back is not None
    return Expectation(
        failover=failover,
        within=within,
        back_within=back,
        refused=table.flag("refused"),
        waiting=table.flag("waiting"),
        spool=table.flag("spool"),
        put_aside=table.flag("put_aside"),
    )
