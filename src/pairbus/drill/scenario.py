"""A scenario: who sends what, what breaks when, and what must come true. docs/drill.md has its form in TOML.

What is not of that form is refused with the place and the nearest name.
"""

from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pairbus.broker.faults.plan import CLEAR, FaultPlan
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions, find_mistake
from pairbus.pairing.names import path_key
from pairbus.plumbing.toml_tables import TomlTable, name_nearest, parse_toml, read_text

PRIMARY = "primary"
SECONDARY = "secondary"
# Paired clients of one drill, all of them in this process.
_MOST_CLIENTS = 50
#: The scenario that is played when none is named.
DEFAULT = "namespace-down"

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
        """Its sessions, one for each client at least: messages that two clients send to one have no order."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole."""

    name: str
    title: str
    story: str
    seed: int
    send_for: float
    clients: int
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
            f"there is no scenario {name!r}{name_nearest(name, known)} (a file of your own ends in .toml)"
        )
    return (files("pairbus.drill") / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")


def find_scenario(name: str, *, seed: int | None = None, clients: int | None = None) -> Scenario:
    """A shipped scenario by its name, or one of a file, which ends in `.toml`."""
    if name.endswith(".toml"):
        file = Path(name)
        return parse_scenario(read_text(file), name=file.stem, where=name, seed=seed, clients=clients)
    return parse_scenario(shipped_text(name), name=name, where=name, seed=seed, clients=clients)


def parse_scenario(
    text: str, *, name: str, where: str, seed: int | None = None, clients: int | None = None
) -> Scenario:
    """Read a scenario; `seed` and `clients` take the place of its own."""
    top = parse_toml(text, where=where)
    top.need("title")
    title = top.text("title", "")
    own_seed = top.whole("seed", 0, low=0, high=2**63 - 1)
    chosen = own_seed if seed is None else seed
    own_clients = top.whole("clients", 1, low=1, high=_MOST_CLIENTS)
    if clients is not None and clients > _MOST_CLIENTS:
        raise ConfigurationError(f"a drill has at most {_MOST_CLIENTS} clients, and {clients} are asked for")
    send_for = top.number("send_for", 20.0, low=0.1, high=_LONGEST)
    options = _options(top)
    entities = tuple(_entity(table) for table in top.rows("entity"))
    expect = top.table("expect")
    scenario = Scenario(
        name=name,
        title=title,
        story=" ".join(top.text("story", title).split()),
        seed=chosen,
        send_for=send_for,
        clients=own_clients if clients is None else clients,
        options=options,
        entities=entities,
        faults=FaultPlan.of(top, seed=chosen),
        syphon=_syphon(top.table("syphon")),
        expect=_expectation(expect, options),
    )
    top.refuse()
    _check_entities(top, scenario)
    _check_faults(top, scenario)
    _check_failover(expect, scenario)
    top.refuse()
    return scenario


def _options(top: TomlTable) -> SendAvailabilityOptions:
    table = top.table("options")
    try:
        return SendAvailabilityOptions(**table.checked(_OPTIONS, find_mistake))
    except ConfigurationError as error:
        table.note(str(error))
        return SendAvailabilityOptions()


def _entity(table: TomlTable) -> EntityPlan:
    table.need("path")
    plan = EntityPlan(
        path=table.text("path", "").strip("/"),
        kind=table.choice("kind", ("queue", "topic"), "queue"),
        subscriptions=table.texts("subscriptions"),
        sessions=table.whole("sessions", 0, low=0, high=1000),
        duplicate_detection=table.flag("duplicate_detection"),
        rate=table.number("rate", 20.0, low=0.1, high=100_000),
        size=table.whole("size", 256, low=0, high=200_000),
        batch=table.whole("batch", 1, low=1, high=1000),
    )
    if plan.kind == "topic" and "subscriptions" not in table:
        table.note('a topic needs subscriptions, such as subscriptions = ["audit"]', "subscriptions")
    if plan.kind == "queue" and plan.subscriptions:
        table.note('only a topic has subscriptions; say kind = "topic"', "subscriptions")
    return plan


def _syphon(table: TomlTable) -> SyphonPlan:
    return SyphonPlan(
        at=table.number("at", None, high=_LONGEST),
        max_rate=table.number("max_rate", None, low=1.0),
        patience=table.number("patience", 30.0, high=_LONGEST),
        heal_after=table.whole("heal_after", 0, low=0, high=1000),
    )


def _expectation(table: TomlTable, options: SendAvailabilityOptions) -> Expectation:
    # What the client promises: see docs/promises.md.
    patience = options.failover_interval if options.failover_interval > 0 else options.send_timeout
    return Expectation(
        failover=table.texts("failover"),
        within=table.number("within", patience + 1.0, high=_LONGEST),
        back_within=table.number(
            "back_within", options.ping_primary_interval * options.good_pings + 1.0, high=_LONGEST
        ),
        refused=table.flag("refused"),
        waiting=table.flag("waiting"),
        spool=table.flag("spool"),
        put_aside=table.flag("put_aside"),
    )


def _check_entities(top: TomlTable, scenario: Scenario) -> None:
    found = scenario.entities
    if not found:
        top.note("needs at least one [[entity]] with a path", "entity")
    if len({path_key(one.path) for one in found}) < len(found):
        top.note("two [[entity]] tables have the same path", "entity")
    if sum(one.messages(scenario.send_for) for one in found) > _MOST_MESSAGES:
        top.note(f"sends more than {_MOST_MESSAGES:,} messages; lower rate or send_for", "send_for")


def _check_faults(top: TomlTable, scenario: Scenario) -> None:
    try:
        scenario.faults.check_namespaces((PRIMARY, SECONDARY))
    except ConfigurationError as error:
        top.note(str(error), "fault")
    known = [path for one in scenario.entities for path in (one.path, *one.nodes)]
    keys = {path_key(path) for path in known}
    for step in scenario.faults.steps:
        if step.kind != CLEAR and step.at >= scenario.send_for:
            top.note(
                f"a [[fault]] begins {step.at:g} s after the first send, when all is sent: sending ends "
                f"after {scenario.send_for:g} s; let it begin earlier, or raise send_for",
                "fault",
            )
        if step.namespace == PRIMARY and step.entity is not None and path_key(step.entity) not in keys:
            near = name_nearest(step.entity, known)
            top.note(f"a [[fault]] names the entity {step.entity!r}{near}", "fault")


def _check_failover(expect: TomlTable, scenario: Scenario) -> None:
    paths = [one.path for one in scenario.entities]
    for path in scenario.expect.failover:
        if path_key(path) not in map(path_key, paths):
            expect.note(f"failover names the entity {path!r}{name_nearest(path, paths)}", "failover")
