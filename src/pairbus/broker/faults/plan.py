"""A scripted plan of faults: what goes wrong when, the same again for the same seed.

seed = 7

[[fault]]
at = 2.0                    # seconds after the start; [low, high] picks a moment in between
namespace = "contoso"
kind = "refuse"
for = [5.0, 10.0]           # leave it out to keep the fault
entity = "orders"           # leave it out for the whole namespace
                            # and what the kind takes: seconds, condition, every, up, down
[[fault]]
at = 30
namespace = "contoso"
kind = "clear"              # with an entity: only what was set on that
"""

import math
import random
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairbus.errors import ConfigurationError

from .board import FaultBoard
from .fault import FAULT_ARGUMENTS, FaultKind

__all__ = ["FaultPlan", "FaultStep"]

CLEAR = "clear"
_NEEDED = {"at", "namespace", "kind"}
_FIELDS = _NEEDED | {"for", "entity", *FAULT_ARGUMENTS}
_FIELDS_OF_CLEAR = _NEEDED | {"entity"}


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One thing that a plan does, `at` seconds after its start."""

    at: float
    namespace: str
    kind: str
    entity: str | None = None
    duration: float | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def apply(self, faults: FaultBoard, now: float) -> None:
        """Do it to the faults of the step's namespace."""
        if self.kind == CLEAR:
            faults.clear(self.entity)
        else:
            faults.set(self.kind, now=now, entity=self.entity, duration=self.duration, **self.arguments)

    def describe(self) -> dict[str, Any]:
        """The step as plain values, for the log."""
        shown = {"kind": self.kind, "entity": self.entity, "for": self.duration, **self.arguments}
        return {name: value for name, value in shown.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Steps in the order in which they happen."""

    steps: tuple[FaultStep, ...]

    @classmethod
    def load(cls, path: Path, *, seed: int | None = None) -> "FaultPlan":
        """Read a plan from a TOML file; `seed` takes the place of the file's own."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"), seed=seed)
        except OSError as error:
            raise ConfigurationError(f"cannot read the fault plan {path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path}: the fault plan is not valid TOML: it is not UTF-8") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str, *, seed: int | None = None) -> "FaultPlan":
        """Read a plan from TOML text."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"the fault plan is not valid TOML: {error}") from None
        unknown = document.keys() - {"seed", "fault"}
        if unknown:
            wrong = ", ".join(sorted(unknown))
            raise ConfigurationError(f"a fault plan has 'seed' and [[fault]] tables, not {wrong}")
        return cls.of(document.get("fault", []), seed=_seed(document) if seed is None else seed)

    @classmethod
    def of(cls, tables: Any, *, seed: int) -> "FaultPlan":
        """A plan of `[[fault]]` tables that were read already, as part of a larger file."""
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ConfigurationError("a fault plan is a list of [[fault]] tables")
        chance = random.Random(seed)
        steps = [_step(table, number, chance) for number, table in enumerate(tables, start=1)]
        return cls(tuple(sorted(steps, key=lambda step: step.at)))

    def check_namespaces(self, known: Collection[str]) -> None:
        """Raise ConfigurationError if a step names a namespace that is not known."""
        for step in self.steps:
            if step.namespace not in known:
                raise ConfigurationError(
                    f"the fault plan names the namespace {step.namespace!r}; there are {', '.join(known)}"
                )


def _seed(document: dict[str, Any]) -> int:
    seed = document.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigurationError(f"the seed of a fault plan is a whole number, not {seed!r}")
    return seed


def _step(table: dict[str, Any], number: int, chance: random.Random) -> FaultStep:
    where = f"fault {number} of the plan"
    missing = _NEEDED - table.keys()
    if missing:
        raise ConfigurationError(f"{where} needs {', '.join(sorted(missing))}")
    fields = _FIELDS_OF_CLEAR if table["kind"] == CLEAR else _FIELDS
    unknown = table.keys() - fields
    if unknown:
        wrong, right = ", ".join(sorted(unknown)), ", ".join(sorted(fields))
        raise ConfigurationError(f"{where} does not know {wrong}; it takes {right}")
    step = FaultStep(
        at=_pick(table["at"], f"'at' of {where}", chance),
        namespace=str(table["namespace"]),
        kind=str(table["kind"]),
        entity=table.get("entity"),
        duration=_pick(table["for"], f"'for' of {where}", chance) if "for" in table else None,
        arguments={name: table[name] for name in FAULT_ARGUMENTS if name in table},
    )
    _rehearse(step, where)
    return step


def _rehearse(step: FaultStep, where: str) -> None:
    """Do the step to an empty board: bad arguments show now, not in the middle of the night."""
    if step.kind != CLEAR and step.kind not in set(FaultKind):
        kinds = ", ".join(FaultKind)
        raise ConfigurationError(
            f"{where}: there is no fault {step.kind!r}; choose {CLEAR} or one of {kinds}"
        )
    try:
        step.apply(FaultBoard(), 0.0)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _pick(value: Any, what: str, chance: random.Random) -> float:
    bounds = value if isinstance(value, list) else [value, value]
    if len(bounds) != 2 or not all(_is_time(bound) for bound in bounds):
        raise ConfigurationError(f"{what} is a number of seconds, or two of them to pick a moment in between")
    low, high = sorted(float(bound) for bound in bounds)
    return low if low == high else chance.uniform(low, high)


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and value >= 0
        and not math.isinf(value)
    )
